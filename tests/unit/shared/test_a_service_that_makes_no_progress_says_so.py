"""State and readiness are worked out when somebody asks: a loop that hangs cannot go on saying that it runs."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from lowwater.errors import BusDoubtError
from lowwater.kafka.client_log import LINES_MAX, PERIOD_SECONDS, ClientLog
from lowwater.kafka.read_check import ReadWatch
from lowwater.runtime.config import KafkaConfig
from lowwater.status.health import STALL_SECONDS, Health


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    made = Health(clock)
    made.ready()
    made.progressed()
    made.show({"state": "running", "gsn": 7})
    return made


def test_without_progress_it_is_stalled_after_seconds_and_says_since_when_and_why(health: Health, clock: Clock) -> None:
    health.doing("the commit of a Kafka transaction")
    clock.now += STALL_SECONDS
    assert health.status()["state"] == "running"
    clock.now += 1
    shown = health.status()
    assert (shown["state"], shown["gsn"]) == ("stalled", 7)
    assert shown["stalled"]["seconds"] == STALL_SECONDS + 1
    assert shown["stalled"]["why"] == "it does not return from: the commit of a Kafka transaction"
    assert shown["error"]["what"] == shown["stalled"]["why"]
    assert health.readiness()[0] is False
    # nothing but the loop's own progress ends it: neither a tick nor another overview
    health.tick()
    health.ready()
    health.show({"state": "running"})
    assert health.status()["state"] == "stalled"
    health.progressed()
    assert health.status() == {"state": "running"}
    assert health.readiness() == (True, "ready")


def test_a_known_reason_goes_before_what_it_was_doing(health: Health, clock: Clock) -> None:
    health.doing("something")
    health.trouble("Kafka does not answer", {"error": "BusError", "what": "x"})
    assert health.status()["state"] == "running"
    clock.now += STALL_SECONDS + 1
    assert health.status()["stalled"]["why"] == "Kafka does not answer"
    assert health.status()["error"]["error"] == "BusError"


@pytest.mark.parametrize("state", ["paused", "stopped", "failed"])
def test_who_is_at_rest_is_not_stalled(health: Health, clock: Clock, state: str) -> None:
    health.show({"state": state})
    clock.now += 1000
    assert health.status()["state"] == state


def test_a_start_is_stalled_only_for_a_reason(clock: Clock) -> None:
    health = Health(clock)
    clock.now += 100
    assert health.status() == {"state": "starting"}
    health.trouble("no broker")
    assert health.status()["state"] == "stalled"


def test_a_failure_lasts_until_there_is_progress(health: Health) -> None:
    health.failed({"error": "LogGapError", "what": "gone"}, {})
    health.ready()
    health.show({"state": "running"})
    assert (health.status()["state"], health.readiness()) == ("failed", (False, "gone"))
    health.progressed()
    assert health.status()["state"] == "running"


def test_a_full_disk_is_over_only_when_that_is_proven(health: Health) -> None:
    """It gets on for a while each time, and then meets the same again."""
    health.failed({"error": "DiskError", "what": "full"}, {}, needs_proof=True)
    health.progressed()
    health.show({"state": "running"})
    assert health.status()["state"] == "failed"
    health.recovered()
    assert health.status()["state"] == "running"


# -- what is there and is not read -----------------------------------------------------------------------

PLACE = ("t", 0)


class Asked:
    def __init__(self, ends: dict[tuple[str, int], tuple[int, int]]) -> None:
        self._ends = ends

    def take(self) -> dict[tuple[str, int], tuple[int, int]]:
        return self._ends


def _watch(clock: Clock, ends: tuple[int, int], has_record: bool, monkeypatch: pytest.MonkeyPatch) -> ReadWatch:
    def look(_kafka: Any, _place: Any, _start: int, _end: int, answer: Future[bool]) -> None:
        answer.set_result(has_record)

    monkeypatch.setattr("lowwater.kafka.read_check._look_for_record", look)
    return ReadWatch(KafkaConfig(stall_seconds=15), lambda _places: Asked({PLACE: ends}), clock)


def _look(watch: ReadWatch, clock: Clock, position: int, seconds: float) -> None:
    until = clock.now + seconds
    while clock.now < until:
        clock.now += 0.5
        watch.look({PLACE: position}, ())


def test_records_that_are_there_and_are_not_read_are_named_and_then_a_doubt(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = _watch(clock, (20, 20), True, monkeypatch)
    _look(watch, clock, 10, 5)
    assert watch.why == ""
    _look(watch, clock, 10, 5)
    assert "t[0] is not read from 10 on" in watch.why
    watch.check()
    _look(watch, clock, 10, 10)
    with pytest.raises(BusDoubtError, match="returned nothing from offset 10 on"):
        watch.check()
    _look(watch, clock, 11, 1)
    assert watch.why == ""
    watch.check()


def test_a_partition_with_nothing_but_markers_behind_the_last_record_is_read(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = _watch(clock, (11, 11), False, monkeypatch)
    _look(watch, clock, 10, 60)
    assert watch.why == ""
    watch.check()


def test_an_open_transaction_that_hides_the_end_of_a_silent_partition_is_named(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = _watch(clock, (10, 14), False, monkeypatch)
    _look(watch, clock, 10, 10)
    assert watch.hidden("t") == "t[0] 10 … 14"
    _look(watch, clock, 14, 1)
    assert watch.hidden("t") == ""


# -- the client's own lines ------------------------------------------------------------------------------


def _line(text: str) -> logging.LogRecord:
    return logging.LogRecord("k", logging.ERROR, "", 0, "%s [%s] %s", ("FAIL", "rdkafka#1", text), None)


def test_lines_of_the_client_are_events_and_are_limited(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    handler = ClientLog(clock)
    with capture_logs() as events:
        for number in range(100):
            handler.emit(_line(f"refused {number}"))
        clock.now += PERIOD_SECONDS
        handler.emit(_line("refused again"))
    assert len(events) == LINES_MAX + 1
    assert events[0]["event"] == "kafka client"
    assert (events[0]["facility"], events[0]["client"], events[0]["what"]) == ("FAIL", "rdkafka#1", "refused 0")
    assert events[-1]["left_out_before"] == 100 - LINES_MAX
