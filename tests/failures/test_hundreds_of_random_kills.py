"""P3 at length: extractor, merger and broker are killed at random moments, some hundred times."""

from __future__ import annotations

import os
import random
import time

import pytest

from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.conftest import NewFleet, NewKafka
from tests.support.harness import Fleet, Workload

KILLS = 200
#: out of a hundred kills: how many hit the broker, which takes seconds to come back
BROKER_SHARE = 5


class Chaos:
    """Kills one process after another, and starts each again at once."""

    def __init__(self, fleet: Fleet, broker: EmbeddedKafka, rng: random.Random) -> None:
        self._broker = broker
        self._rng = rng
        self._services = [*(fleet.extractor(source) for source in fleet.sources), fleet.merger()]

    def kill_one(self) -> None:
        if self._rng.randrange(100) < BROKER_SHARE:
            self._broker.kill()
            self._broker.start()
            return
        service = self._rng.choice(self._services)
        service.kill()
        service.start()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_sources_under_random_kills(new_kafka: NewKafka, new_fleet: NewFleet) -> None:
    seed = int(os.environ.get("LOWWATER_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
    print(f"LOWWATER_SEED={seed}")
    rng = random.Random(seed)
    broker = new_kafka()
    broker.start()
    fleet = new_fleet(bootstrap_servers=broker.bootstrap_servers, sources=2)
    works = [Workload(fleet.cluster(s), transactions=0, transfers=3, xa=0.1, rollbacks=0.1) for s in fleet.sources]
    chaos = Chaos(fleet, broker, rng)
    for source in fleet.sources:
        fleet.wait_for_capture(source)
    for _ in range(KILLS):
        for work in works:
            work.step(rng.randrange(20))
        # from less than a start takes to a few batches
        time.sleep(rng.choice((0.05, 0.3, 1.0, 2.0)))
        chaos.kill_one()
    for work in works:
        work.cluster.heartbeat()
    fleet.wait_for_all(300)
    verdict = fleet.assert_good()
    print(f"{KILLS} kills: {verdict}")
