"""`kill -9` of the landing at each of its fail points, on a local disk and on S3, while a reader looks on."""

from __future__ import annotations

import pytest

from lowwater.lake.read.verify import verify
from lowwater.lake.store.base import open_lake_store
from lowwater.runtime.failpoints import FAIL_POINTS
from tests.support.bank_topic import Watcher
from tests.support.landed import Landed

POINTS = [name for name in FAIL_POINTS if name.startswith("land.")]
KILLED = -9


@pytest.mark.parametrize("landed", ["local"], indirect=True)
def test_killed_at_every_fail_point_with_and_without_the_checkpoint(landed: Landed) -> None:
    _kill_at(landed, POINTS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_every_fail_point_again_and_again(landed: Landed) -> None:
    _kill_at(landed, POINTS * 3)


def _kill_at(landed: Landed, points: list[str]) -> None:
    with Watcher(landed.lake) as watcher:
        for number, point in enumerate(points):
            landed.bank.work(5)
            service = landed.start(LOWWATER_FAIL_AT=point)
            # there is always something to land, so every point is passed
            landed.bank.work(5)
            assert service.wait(120) == KILLED, f"{point}: {landed.log()}"
            if number % 2:
                landed.forget_checkpoint()
        service = landed.start()
        landed.bank.work(5)
        landed.wait_for_all(service)
        service.stop()
    # at the least the version of the kill after its manifest, and the last one
    assert len(watcher.versions) >= 2
    landed.bank.check(landed.lake)
    assert not [d for d in verify(open_lake_store(landed.lake)) if not d.rubbish]
