"""A source that is captured from scratch, from a log with lower positions: all of it comes after what was before."""

from __future__ import annotations

import pytest
from tests.simulation.by_hand import ByHand

from lowwater.control.fold import ControlState
from lowwater.errors import MarkWentBackError
from lowwater.records.types import Control, Exclusion, Skip, Wanted
from lowwater_merger.core.commands import obey


def _reset_source(partitions: int = 1) -> ByHand:
    """At 100 in its first life, at 5 in its second."""
    group = ByHand(partitions=partitions)
    group.mark({1: 0})
    group.transaction("t1", 100)
    group.mark({1: 100})
    group.generation = 1
    group.mark({1: 2}, epoch=2)
    group.transaction("t1", 5)
    return group


def test_restored_database_with_lower_positions_is_released_after_the_first_life() -> None:
    group = _reset_source()
    group.mark({1: 9}, epoch=2)
    group.read()
    assert [(r.gsn, r.transaction.key.generation) for r in group.released()] == [(1, 0), (2, 1)]


def test_progress_older_than_the_reset_gives_the_same_order() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.read()
    group.save()
    group.transaction("t1", 100)
    group.mark({1: 100})
    group.generation = 1
    group.mark({1: 2}, epoch=2)
    group.transaction("t1", 5)
    group.mark({1: 9}, epoch=2)
    group.restart()
    group.read()
    assert [(r.gsn, r.transaction.key.generation) for r in group.released()] == [(1, 0), (2, 1)]


def test_progress_newer_than_the_reset_gives_the_same_order() -> None:
    group = _reset_source()
    group.read()
    assert group.release() == ["t1"]
    group.save()
    group.restart()
    group.mark({1: 9}, epoch=2)
    group.read()
    assert [(r.gsn, r.transaction.key.generation) for r in group.released()] == [(2, 1)]


def test_source_that_leaves_is_reset_and_joins_again_is_released() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 100)
    group.mark({1: 100})
    assert group.read_and_release() == ["t1"]
    group.save()
    group.merger.leave("a", "for a reset")
    group.generation = 1
    group.mark({1: 2}, epoch=2)
    group.transaction("t2", 5)
    group.mark({1: 9}, epoch=2)
    group.join("a")
    assert group.read_and_release() == ["t2"]


def test_topic_made_again_counts_from_the_generation_that_followed_its_loss() -> None:
    """What it has of the one before follows after a gap: nobody knows what was lost."""
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 100)
    group.mark({1: 100})
    assert group.read_and_release() == ["t1"]
    known = group.merger.known("a")
    assert known is not None
    assert known.generation == 0
    group.merger.leave("a", "its changes topic was made again")
    del group.topics["a"]
    group.join("a", topic_id="another", generation=1)
    group.mark({1: 150})
    group.transaction("after the gap", 200)
    group.mark({1: 200})
    group.generation = 1
    group.mark({1: 2}, epoch=2)
    group.transaction("t3", 5)
    group.mark({1: 9}, epoch=2)
    assert group.read_and_release() == ["t3"]
    assert group.merger.next_gsn == 3


def test_partition_without_the_new_generation_holds_the_source() -> None:
    group = ByHand(partitions=2)
    group.mark({1: 0})
    group.transaction("old", 100, partition=1)
    group.mark({1: 50}, partition=0)
    group.generation = 1
    group.mark({1: 2}, epoch=2, partition=0)
    group.transaction("new", 5)
    group.mark({1: 9}, epoch=2, partition=0)
    assert group.read_and_release() == [], "partition 1 may still have some of the first life"
    group.mark({1: 2}, epoch=2, partition=1)
    group.read()
    assert group.release() == ["old"], "all of the first life comes before the second"
    group.mark({1: 9}, epoch=2, partition=1)
    assert group.read_and_release() == ["new"]


def test_unfinished_transaction_of_the_first_life_is_dropped() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.change("cut", 1)
    group.generation = 1
    group.mark({1: 2}, epoch=2)
    group.read()
    assert group.merger.open_count == 0
    group.save()
    assert group.offset() == 3, "nothing of it is needed any more"


def test_mark_of_an_earlier_generation_stops_the_source() -> None:
    group = _reset_source()
    group.generation = 0
    group.mark({1: 200}, epoch=3)
    group.read()
    assert "generation 0 after 1" in group.error(MarkWentBackError).what


def test_skip_is_used_up_by_one_transaction() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.merger.skip(Skip("a", 1, "7.1.5", "damaged", "r1"))
    group.seek()
    group.transaction("7.1.5", 5)
    group.mark({1: 5})
    assert group.read_and_release() == ["-7.1.5"]
    group.save()
    group.restart()
    control = Control("g", "group", 0, Wanted.RUNNING, "", skips=(Skip("a", 1, "7.1.5", "damaged", "r1"),))
    obey(group.merger, ControlState(1, control), 0)
    group.seek()
    group.transaction("7.1.5", 9)
    group.mark({1: 9})
    assert group.read_and_release() == ["7.1.5"], "the database gave the id to another transaction"


@pytest.mark.parametrize("position", ["", "9.1"])
def test_skip_with_a_position_passes_over_that_transaction_only(position: str) -> None:
    group = ByHand()
    group.mark({1: 0})
    group.merger.skip(Skip("a", 1, "x", "why", "r1", position))
    group.seek()
    group.transaction("x", 5)
    group.mark({1: 5})
    assert group.read_and_release() == (["x"] if position else ["-x"])
    group.transaction("x", 9)
    group.mark({1: 9})
    assert group.read_and_release() == (["-x"] if position else ["x"])


def test_exclusion_commanded_before_its_source_joins_is_applied() -> None:
    group = ByHand("a")
    excluded = (Exclusion("b", 2, "its disk is gone"),)
    wanted = ControlState(1, Control("g", "group", 0, Wanted.RUNNING, "", excluded))
    assert obey(group.merger, wanted, 0)
    assert not obey(group.merger, wanted, 0)
    group.join("b")
    assert obey(group.merger, wanted, 0)
    assert group.source("b").excluded == {2}
    assert not obey(group.merger, wanted, 0), "once"


def test_source_read_again_inside_a_session_still_waits_for_what_it_had_read_of_an_excluded_thread() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.read()
    group.save()
    group.merger.exclude("a", 2, "its disk is gone")
    group.seek()
    group.transaction("excluded", 20, thread=2)
    group.transaction("t1", 30)
    group.mark({1: 40, 2: 0})
    group.read()
    # a command makes it read again, from the progress that was saved before all this
    group.merger.skip(Skip("a", 1, "other", "why", "r1"))
    group.seek()
    group.read(count=1)
    assert group.release() == [], "what waited of the excluded thread has its place, and is not read again yet"
    assert group.read_and_release() == ["excluded", "t1"]
