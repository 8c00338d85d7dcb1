"""Two processes with one name: one is fenced and ends, and the order does not notice."""

from __future__ import annotations

import os
import signal
import time

from lowwater_fleet.runner.services import Service
from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload, metric, wait_until

FENCED = 3


def _run_beside(fleet: Fleet, work: Workload, first: Service, second: Service) -> None:
    """One takes over from the other while the work goes on.

    Mostly the second does. A first that is in a slow commit at that moment cannot know how it ended, begins a new
    session, and so takes the name back: which of the two stays is chance, that just one does is not.
    """
    while work.step(20):
        time.sleep(0.02)
    wait_until("one to be fenced", lambda: not (first.is_running and second.is_running))
    fenced, stays = (first, second) if second.is_running else (second, first)
    assert fenced.wait(60) == FENCED, fleet.log_tails()
    assert stays.is_running
    fleet.wait_for_all()
    fleet.assert_good()


def test_two_mergers_of_one_group(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=400, transfers=3)
    fleet.extractor()
    first = fleet.merger()
    fleet.wait_for_capture()
    work.run(100)
    _run_beside(fleet, work, first, fleet.merger())


def test_two_extractors_of_one_source(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=400, transfers=3)
    fleet.merger()
    first = fleet.extractor()
    fleet.wait_for_capture()
    work.run(100)
    _run_beside(fleet, work, first, fleet.extractor())


def _stopped_across_take_over(fleet: Fleet, work: Workload, first: Service, start: str) -> None:
    assert first.process is not None
    work.run(100)
    # it must have had the name for itself before it is stopped, or it would take it back when woken
    fleet.wait_for_all()
    os.kill(first.process.pid, signal.SIGSTOP)
    work.run(200)
    second: Service = getattr(fleet, start)()
    fleet.wait_for_all()
    os.kill(first.process.pid, signal.SIGCONT)
    work.run()
    assert first.wait(60) == FENCED, fleet.log_tails()
    assert second.is_running
    fleet.wait_for_all()
    fleet.assert_good()


def test_merger_stopped_across_the_take_over_and_woken(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=300, transfers=3)
    fleet.extractor()
    first = fleet.merger()
    fleet.wait_for_capture()
    _stopped_across_take_over(fleet, work, first, "merger")


def test_merger_that_wakes_in_the_middle_of_a_spooled_transaction_writes_into_no_file_of_its_successor(
    new_fleet: NewFleet,
) -> None:
    """Both have a part of the same transaction on the same disk, under the same names.

    The other thread is silent until both have one: a merger that has released the transaction has no file left.
    """
    fleet = new_fleet(
        source={"batch": {"count_max": 200, "milliseconds_max": 10}},
        group={"memory_bytes_max": 1 << 16, "progress_seconds": 1.0, "delete_seconds": 0.3},
    )
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=40, transfers=3)
    fleet.extractor()
    first = fleet.merger()
    fleet.wait_for_capture()
    work.run(20)
    fleet.wait_for_all()
    large = cluster.begin(1)
    for number in range(12_000):
        cluster.insert(large, "BANK.ACCOUNTS", (100_000 + number, 0, 0, 5))
    cluster.commit(large)

    def spooled(service: Service) -> float:
        return metric(service, "lowwater_merger_spooled_bytes", group=fleet.group) or 0.0

    wait_until("the first one has spooled", lambda: spooled(first) > 0)
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    second = fleet.merger()
    directories = fleet.directory / "spool"
    wait_until("the second one has spooled", lambda: len(list(directories.glob("*/*.spool"))) >= 2)
    cluster.heartbeat()
    os.kill(first.process.pid, signal.SIGCONT)
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    wait_until("one to be fenced", lambda: not (first.is_running and second.is_running))


def test_extractor_stopped_across_the_take_over_and_woken(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=300, transfers=3)
    fleet.merger()
    first = fleet.extractor()
    fleet.wait_for_capture()
    _stopped_across_take_over(fleet, work, first, "extractor")
