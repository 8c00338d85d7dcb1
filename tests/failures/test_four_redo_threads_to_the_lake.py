"""The whole way, killed again and again: four redo threads, extractor, Kafka, merger, Spark, lake."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from lowwater.lake import Lake
from lowwater.lake.chain.chain import Chain
from lowwater.lake.store.base import open_lake_store
from lowwater_devkit.demo.lake import check
from lowwater_devkit.verify.history import read_history
from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload, skip_without_spark, wait_until

SEED = 4
THREADS = 4


def _killed(fleet: Fleet, work: Workload, kills: int) -> None:
    rng = random.Random(SEED)
    services = [fleet.extractor(), fleet.merger(), fleet.lander()]
    fleet.wait_for_capture()
    for number in range(kills):
        work.step(40)
        if number == kills // 2:
            work.cluster.switch(1 + rng.randrange(THREADS))
        time.sleep(rng.choice((0.2, 1.0, 3.0)))
        victim = rng.choice(services)
        victim.kill()
        victim.start()
    work.run()
    fleet.wait_for_all(240)


@pytest.mark.timeout(600)
def test_the_bank_is_in_balance_at_every_version(new_fleet: NewFleet, tmp_path: Path) -> None:
    skip_without_spark()
    fleet = new_fleet(lake={"uri": str(tmp_path / "lake")})
    work = Workload(fleet.cluster(threads=THREADS), transactions=400, transfers=2, rollbacks=0.1, savepoints=0.1)
    _killed(fleet, work, kills=6)
    verdict = fleet.assert_good()
    config = fleet.settings.group(fleet.group).lake
    assert config is not None

    def has_landed() -> bool:
        time.sleep(0.3)
        return Chain.open(open_lake_store(config)).head.gsn == verdict.transactions

    wait_until(f"{verdict.transactions} transactions in the lake; {fleet.log_tails()}", has_landed)
    source = fleet.sources[0]
    history = read_history(fleet.clusters[source] / "history.jsonl")
    checked = check(Lake.open(config), source, history, None, [], print)
    assert checked.is_good, checked.problems
    assert {thread for thread, _ in history} == set(range(1, THREADS + 1))
