"""Commit times that lie: the sources' clock decides, and one that is far ahead moves nothing but its own landing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction
from tests.unit.lake.test_reader import schema

from lowwater.codec.table import INT64
from lowwater.lake.chain.chain import Chain
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory
from lowwater.runtime.config import LakeConfig
from lowwater_spark.maintenance.retention import retention_gsn

SECOND = 1_000_000
YEARS = 20 * 365 * 86_400 * SECOND


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def _landings(maker: LakeMaker, times: list[list[tuple[int, int]]]) -> None:
    """Commit time and clock of each transaction, in seconds; one list for each landing."""
    table = maker.version(schema("s.n.t", {"id": INT64}))
    for landing in times:
        maker.at_us = (landing[-1][1] + 1) * SECOND
        maker.land(
            [
                MadeTransaction([Made(table, "c", {"id": maker.gsn + n})], commit * SECOND, clock * SECOND)
                for n, (commit, clock) in enumerate(landing)
            ]
        )


AHEAD = YEARS // SECOND
#: the third transaction's commit time is twenty years ahead
LYING = [[(1, 1), (2, 2)], [(AHEAD, 3), (4, 4)], [(5, 5), (6, 6)]]


@pytest.mark.parametrize(
    ("has_clock", "expected"), [(True, [0, 1, 2, 2, 4, 5, 6, 6]), (False, [0, 1, 2, 2, 2, 5, 5, 6])]
)
def test_one_commit_time_in_the_future_does_not_freeze_as_of(
    tmp_path: Path, has_clock: bool, expected: list[int]
) -> None:
    """In its own landing nothing is known beyond it. A lake from before clocks is told by when its landings were."""
    maker = LakeMaker(LocalDirectory(tmp_path))
    maker.has_clock = has_clock
    _landings(maker, LYING)
    lake = Lake(maker.store)
    assert [lake.at(_time(second * SECOND)).gsn for second in range(8)] == expected


def test_one_commit_time_in_the_future_does_not_freeze_retention(tmp_path: Path) -> None:
    maker = LakeMaker(LocalDirectory(tmp_path))
    _landings(maker, LYING)
    config = LakeConfig(uri=str(tmp_path), retention_hours=1)
    chain = Chain.open(maker.store)
    hour = 3600 * SECOND
    assert [retention_gsn(chain, config, hour + second * SECOND) for second in range(8)] == [0, 0, 2, 2, 4, 4, 6, 6]


def test_commit_times_that_go_back_never_turn_an_answer_back(tmp_path: Path) -> None:
    maker = LakeMaker(LocalDirectory(tmp_path))
    _landings(maker, [[(10, 10), (20, 20), (5, 30)], [(4, 31), (40, 40)]])
    lake = Lake(maker.store)
    found = [lake.at(_time(second * SECOND)).gsn for second in range(45)]
    assert found == sorted(found)
    assert (found[15], found[25], found[30], found[40]) == (1, 2, 4, 5)


def test_a_checkpoint_from_before_clocks_is_read(tmp_path: Path) -> None:
    maker = LakeMaker(LocalDirectory(tmp_path))
    maker.has_clock = False
    _landings(maker, LYING)
    chain = Chain.open(maker.store)
    chain.write_checkpoint()
    opened = Chain.open(maker.store)
    assert opened.first_after(2 * SECOND) == 2
    assert opened.first_after(60 * SECOND) is None
