"""The end of one Kafka transaction arrives in the middle of the next: nothing is torn by it.

The client has no KIP-890, so a late copy of an end that it sent twice could commit half of what follows. A
producer whose end may have been sent twice is thrown away, and the epoch of its successor fences the late copy.
"""

from __future__ import annotations

import time

from lowwater_fleet.kafka.settings import Listener
from lowwater_fleet.runner.ports import free_port
from tests.conftest import NewFleet, NewKafka
from tests.failures.proxy import Delay, DelayingProxy
from tests.support.harness import Workload

#: INVALID_PRODUCER_EPOCH, PRODUCER_FENCED: the broker refused the late copy
REFUSED = {47, 90}


def test_ends_of_both_services_delayed(new_kafka: NewKafka, new_fleet: NewFleet) -> None:
    proxy_port, behind = free_port(), free_port()
    broker = new_kafka(listeners=(Listener("PROXY", port=behind, advertised_port=proxy_port),))
    broker.start()
    fleet = new_fleet(bootstrap_servers=f"127.0.0.1:{proxy_port}")
    numbers = frozenset({5, 9, 14, 20})
    delays = [
        Delay(f"lowwater.{fleet.sources[0]}".encode(), numbers, 1.5),
        Delay(f"lowwater.merger.{fleet.group}".encode(), numbers, 1.5),
    ]
    proxy = DelayingProxy(proxy_port, behind, delays)
    try:
        work = Workload(fleet.cluster(), transactions=600, transfers=5)
        fleet.extractor()
        fleet.merger()
        fleet.wait_for_capture()
        while work.step(10):
            time.sleep(0.05)
        fleet.wait_for_all()
        time.sleep(1)
        fleet.assert_good()
    finally:
        proxy.close()
    for delay in delays:
        assert len(delay.answers) >= 3, "the late copies did not reach the broker"
        # a copy that overtook the second one ended its own transaction, and was answered with 0
        assert set(delay.answers) & REFUSED, f"no late copy met a new epoch: {delay.answers}"
