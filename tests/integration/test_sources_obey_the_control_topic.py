"""Pause, resume, stop: operators' words to a source, written to the control topic with the command line's own code."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload, metric, wait_until

from lowwater.control import fold as control
from lowwater.control.fold import ControlReader, ControlState, commit_control
from lowwater.errors import ControlConflictError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.records.types import Control, Wanted
from lowwater_fleet.cli import operate as operate_cli

STOPPED = 0


def test_a_paused_source_publishes_nothing_and_loses_nothing(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    work = Workload(fleet.cluster(), transactions=200, transfers=3)
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    work.run(60)
    fleet.wait_for_all()
    operate_cli.pause(source, "a migration", fleet.config)
    fleet.wait_for_status(extractor, "the pause", lambda s: s["state"] == "paused")
    before = fleet.position(), _ends(fleet)
    work.run()
    time.sleep(1.5)  # many times mark_seconds: an extractor that runs would have marked
    assert (fleet.position(), _ends(fleet)) == before
    assert extractor.is_running
    operate_cli.resume(source, "done", fleet.config)
    fleet.wait_for_all()
    fleet.assert_good()


def test_a_stopped_source_ends_with_code_0_and_stays_stopped_until_it_is_resumed(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    work = Workload(fleet.cluster(), transactions=100)
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    work.run(50)
    operate_cli.stop(source, "maintenance", fleet.config)
    assert extractor.wait(20) == STOPPED, fleet.log_tails()
    work.run()
    assert fleet.extractor().wait(20) == STOPPED, "the word still holds"
    operate_cli.resume(source, "", fleet.config)
    fleet.extractor()
    fleet.wait_for_all()
    fleet.assert_good()


def test_a_source_that_is_paused_before_its_first_start_captures_from_its_resume_on(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    cluster = fleet.cluster()
    operate_cli.pause(source, "not yet", fleet.config)
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_status(extractor, "the pause", lambda s: s["state"] == "paused")
    assert fleet.changes() == []
    operate_cli.resume(source, "now", fleet.config)
    fleet.wait_for_capture()
    Workload(cluster, transactions=50).run()
    fleet.wait_for_all()
    fleet.assert_good()


def test_a_group_is_paused_and_stopped_as_a_source_is(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=100)
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    work.run(50)
    fleet.wait_for_all()
    _want(fleet, "group", fleet.group, Wanted.PAUSED)
    fleet.wait_for_status(merger, "the pause", lambda s: s["state"] == "paused")
    released = len(fleet.ordered())
    work.run()
    time.sleep(1)
    assert len(fleet.ordered()) == released
    _want(fleet, "group", fleet.group, Wanted.RUNNING)
    fleet.wait_for_all()
    _want(fleet, "group", fleet.group, Wanted.STOPPED)
    assert merger.wait(20) == STOPPED, fleet.log_tails()
    fleet.assert_good()


def _ends(fleet: Fleet) -> list[int]:
    return [end for _, end in fleet.offsets().values()]


def _want(fleet: Fleet, kind: str, name: str, wanted: Wanted) -> ControlState:
    return operate_cli.say(fleet.settings, kind, name, lambda c: replace(c, wanted=wanted))


# -- two writers -----------------------------------------------------------------------------------------


def _write_at_once(fleet: Fleet, reasons: list[str]) -> list[ControlState | ControlConflictError]:
    """Every writer has read the same version before the first of them writes."""
    Admin(fleet.settings.kafka).ensure(topics.shared_topics())
    together = threading.Barrier(len(reasons))
    results: list[ControlState | ControlConflictError] = []

    def write(reason: str) -> None:
        def change(last: Control) -> Control:
            together.wait(20)
            return replace(last, wanted=Wanted.PAUSED, reason=reason)

        try:
            results.append(commit_control(fleet.settings.kafka, fleet.codec, "source", fleet.sources[0], change))
        except ControlConflictError as error:
            results.append(error)

    assert fleet.codec
    writers = [threading.Thread(target=write, args=(reason,)) for reason in reasons]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    return results


def test_of_two_writes_that_change_the_same_version_exactly_one_wins(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    results = _write_at_once(fleet, ["first", "second"])
    won = [r for r in results if isinstance(r, ControlState)]
    lost = [r for r in results if isinstance(r, ControlConflictError)]
    assert (len(won), len(lost)) == (1, 1)
    assert "read its state again" in str(lost[0])
    reader = ControlReader(fleet.settings.kafka, fleet.codec)
    assert reader.fold.get("source", fleet.sources[0]) == won[0], "all readers see the winner's"
    reader.close()
    assert won[0].version == 1


def test_also_of_two_writes_with_the_same_words_at_the_same_microsecond(
    new_fleet: NewFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = new_fleet()
    assert fleet.codec

    monkeypatch.setattr(control, "now_us", lambda: 1_700_000_000_000_000)
    results = _write_at_once(fleet, ["the same", "the same"])
    assert sorted(type(r).__name__ for r in results) == ["ControlConflictError", "ControlState"]


def test_a_word_is_counted_only_once_by_a_reader_that_follows(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    Admin(fleet.settings.kafka).ensure(topics.shared_topics())
    reader = ControlReader(fleet.settings.kafka, fleet.codec)
    for number in range(3):
        state = _want(fleet, "source", fleet.sources[0], Wanted.PAUSED if number % 2 else Wanted.RUNNING)
    wait_until("the words", lambda: reader.poll() or reader.fold.get("source", fleet.sources[0]).version == 3)
    assert reader.fold.get("source", fleet.sources[0]) == state
    reader.close()


def test_a_paused_source_still_ticks_and_says_that_it_is_paused(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    fleet.cluster()
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    operate_cli.pause(fleet.sources[0], "", fleet.config)
    shown = fleet.wait_for_status(extractor, "the pause", lambda s: s["state"] == "paused")
    assert set(shown["threads"]) == {"1", "2"}
    assert metric(extractor, "lowwater_extractor_sessions_total", source=fleet.sources[0]) == 1.0
