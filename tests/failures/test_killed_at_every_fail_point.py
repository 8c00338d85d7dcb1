"""P3: `kill -9` before and after each durable step, and each committed transaction is released once."""

from __future__ import annotations

import signal

import pytest

from lowwater.runtime.failpoints import FAIL_POINTS
from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload

#: which pass through the fail point is the last one; the start has only one
PASSES = {"extractor.after_init": 1, "merger.after_init": 1, "merger.before_delete": 1, "merger.after_delete": 1}
#: one needs a config change between two starts, the others a source that copies: they have tests of their own
OWN_TESTS = {"extractor.abandon_produced", "extractor.chunks_produced", "extractor.copied_produced"}
POINTS = [p for p in FAIL_POINTS if p.startswith(("extractor.", "merger.")) and p not in OWN_TESTS]


def _die_at(fleet: Fleet, point: str) -> None:
    """Start the service that owns the fail point; it dies there."""
    environment = {"LOWWATER_FAIL_AT": f"{point}:{PASSES.get(point, 3)}"}
    service = fleet.extractor(**environment) if point.startswith("extractor") else fleet.merger(**environment)
    code = service.wait(60)
    assert code == -signal.SIGKILL, f"{point} was not reached: exit code {code}; {fleet.log_tails()}"


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=240, transfers=20, rollbacks=0.1, savepoints=0.1, xa=0.1)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run(60)
    extractor.kill()
    merger.kill()
    work.run(160)
    if point.startswith("extractor"):
        fleet.merger()
        _die_at(fleet, point)
        work.run()
        fleet.extractor()
    else:
        fleet.extractor()
        _die_at(fleet, point)
        work.run()
        fleet.merger()
    fleet.wait_for_all()
    assert fleet.assert_good().transactions > 150


def test_killed_at_abandon_produced(new_fleet: NewFleet) -> None:
    """The config changes while a large transaction is half published: its prefix is abandoned, once."""
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=20, transfers=100)
    fleet.merger()
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    extractor.kill()
    work.run()
    _die_at(fleet, "extractor.prefix_committed")
    fleet.change_source(columns={"mask": {"BANK.ACCOUNTS.BRANCH": "null"}})
    _die_at_first(fleet, "extractor.abandon_produced")
    fleet.extractor()
    fleet.wait_for_all()
    verdict = fleet.verdict(decode=False)
    assert verdict.is_good, verdict.details


def _die_at_first(fleet: Fleet, point: str) -> None:
    assert fleet.extractor(LOWWATER_FAIL_AT=point).wait(60) == -signal.SIGKILL
