"""Only a generation that is whole in its topic can be released without a gap."""

from __future__ import annotations

from lowwater.records.types import Position
from lowwater_merger.joining import is_whole

POSITION = Position("a", "i", 3, 0, None, (), generation=2, topic_id="t", starts=(10, 20))


def test_generation_whose_beginning_is_left_is_whole() -> None:
    assert is_whole(POSITION, "t", {0: 10, 1: 5}, 1)


def test_generation_whose_beginning_was_deleted_by_another_group_is_not() -> None:
    assert not is_whole(POSITION, "t", {0: 11, 1: 5}, 1)


def test_generation_that_was_published_to_a_lost_topic_is_not() -> None:
    assert not is_whole(POSITION, "made again", {0: 0, 1: 0}, 1)


def test_generation_that_the_merger_knows_is_not() -> None:
    assert not is_whole(POSITION, "t", {0: 0, 1: 0}, 2)


def test_source_that_was_reset_and_has_published_nothing_since_is_whole() -> None:
    reset = Position("a", "i", 3, 0, None, (), generation=3)
    assert is_whole(reset, "made again", {0: 0, 1: 0}, 2)
