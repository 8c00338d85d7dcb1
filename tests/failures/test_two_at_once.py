"""Two processes with one name: one is fenced and ends, and the order does not notice."""

from __future__ import annotations

import os
import signal
import time

from lowwater_fleet.services import Service
from tests.conftest import NewFleet
from tests.harness import Fleet, Workload, wait_until

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


def test_extractor_stopped_across_the_take_over_and_woken(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=300, transfers=3)
    fleet.merger()
    first = fleet.extractor()
    fleet.wait_for_capture()
    _stopped_across_take_over(fleet, work, first, "extractor")
