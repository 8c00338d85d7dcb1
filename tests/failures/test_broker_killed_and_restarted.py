"""The broker dies in the middle and comes back: the services wait, then go on."""

from __future__ import annotations

import time

from tests.conftest import NewFleet, NewKafka
from tests.support.harness import Workload


def test_broker_killed_twice_under_load(new_kafka: NewKafka, new_fleet: NewFleet) -> None:
    broker = new_kafka()
    broker.start()
    fleet = new_fleet(bootstrap_servers=broker.bootstrap_servers)
    work = Workload(fleet.cluster(), transactions=600, transfers=3)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    for _ in range(2):
        for _ in range(10):
            work.step(15)
            time.sleep(0.03)
        broker.kill()
        work.step(50)
        broker.start()
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    assert extractor.is_running
    assert merger.is_running


def test_who_is_told_to_stop_while_the_broker_is_away_stops(new_kafka: NewKafka, new_fleet: NewFleet) -> None:
    broker = new_kafka()
    broker.start()
    fleet = new_fleet(bootstrap_servers=broker.bootstrap_servers)
    work = Workload(fleet.cluster(), transactions=60, transfers=3)
    services = [fleet.extractor(), fleet.merger()]
    fleet.wait_for_capture()
    broker.kill()
    work.step(50)
    time.sleep(3)
    for service in services:
        assert service.process is not None
        service.process.terminate()
    assert [service.wait(30) for service in services] == [0, 0], fleet.log_tails()
    broker.start()
    services = [fleet.extractor(), fleet.merger()]
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
