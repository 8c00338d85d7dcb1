"""Gauges that must be right when they are needed: a failure, a source that is behind, disk that was given back."""

from __future__ import annotations

import gc
import math
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter

from lowwater.errors import LogGapError, SourceLostError
from lowwater.kafka.topics import Topic
from lowwater.runtime.config import HttpConfig, Settings
from lowwater.runtime.service import SessionService
from lowwater_extractor.session.clock import SourceClock
from lowwater_extractor.spill import SpillSpace

SECOND = 1_000_000


class Service(SessionService):
    kind = "source"
    service = "extractor"

    def __init__(self) -> None:
        errors = Counter("errors", "of this test", ["source", "error"], registry=CollectorRegistry())
        super().__init__(Settings(), "bank", HttpConfig(), errors)

    def _topics(self) -> list[Topic]:
        return []

    def _run_session(self) -> bool:
        return False


def _shown(metric: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(metric, {"service": "extractor", "name": "bank", **labels})


def test_a_failure_is_shown_by_its_class_until_the_service_gets_on_again() -> None:
    service = Service()
    assert _shown("lowwater_service_ready") == 0
    service.health.ready()
    assert _shown("lowwater_service_ready") == 1
    service._failed(LogGapError("log 7 is missing"))
    assert _shown("lowwater_service_failed", error="LogGapError") == 1
    assert _shown("lowwater_service_ready") == 0
    service._failed(SourceLostError("no answer"))
    assert _shown("lowwater_service_failed", error="LogGapError") is None
    assert _shown("lowwater_service_failed", error="SourceLostError") == 1
    service.health.ready()
    assert _shown("lowwater_service_failed", error="SourceLostError") == 1
    service.progressed()
    assert _shown("lowwater_service_failed", error="SourceLostError") == 0


def test_a_source_is_as_far_behind_as_its_clock_is_old() -> None:
    clock = SourceClock(0, 5 * SECOND)
    assert math.isnan(clock.age_seconds(100 * SECOND))
    clock.of_commit(90 * SECOND, 100 * SECOND)
    assert clock.age_seconds(100 * SECOND) == 10
    # idle, and at the end of its log: not behind, however old its last commit is
    clock.of_mark(True, 100 * SECOND)
    assert clock.age_seconds(100 * SECOND) == 0
    # a clock may be ahead of ours by what is allowed
    clock.of_commit(104 * SECOND, 100 * SECOND)
    assert clock.age_seconds(100 * SECOND) == 0


def _spilled() -> float:
    return REGISTRY.get_sample_value("lowwater_extractor_spill_bytes") or 0.0


def test_disk_that_was_given_back_is_no_longer_counted(tmp_path: Path) -> None:
    before = _spilled()
    space = SpillSpace(tmp_path)
    file = space.file()
    file.append(([b"x" * 1000], [1]))
    first = _spilled() - before
    assert first == pytest.approx(1000, abs=100)
    file.append(([b"y" * 500], [2]))
    file.take_back()
    assert _spilled() - before == first
    del file
    gc.collect()
    assert _spilled() == before
    space.close()
