"""A thread's mark is the lowest over the partitions, a source's watermark the lowest over its threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.by_hand import ByHand

from lowwater.errors import MarkWentBackError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Mark, MarkedThread
from lowwater_merger.core.watermark import PartitionMark, Watermark, mark_clock, thread_mark, watermark

orders = st.builds(Order, st.integers(0, 6), st.integers(0, 3))
threads = st.dictionaries(st.integers(1, 3), orders, max_size=3)


def _mark(epoch: int, clock_us: int, said: dict[int, Order]) -> Mark:
    return Mark(epoch, clock_us, tuple(MarkedThread(t, o, "open") for t, o in sorted(said.items())))


partition_marks = st.builds(_mark, st.just(1), st.integers(0, 9), threads).map(PartitionMark.of)
partitions = st.lists(st.none() | partition_marks, min_size=1, max_size=3)


@given(partitions, st.sets(st.integers(1, 3)))
def test_no_thread_that_counts_is_below_the_watermark_in_any_partition(
    marks: list[PartitionMark | None], excluded: set[int]
) -> None:
    found = watermark(marks, excluded)
    counted = {t for mark in marks if mark is not None for t in mark.orders} - excluded
    for thread in counted:
        for mark in marks:
            said = ORDER_MIN if mark is None else mark.orders.get(thread, ORDER_MIN)
            assert found.order <= said
    if found.thread is not None:
        assert found.thread in counted
        assert thread_mark(found.thread, marks) == (found.order, found.partition)


@given(partitions)
def test_a_silent_partition_holds_everything(marks: list[PartitionMark | None]) -> None:
    silent = len(marks)
    assert watermark([*marks, None], set()).order == ORDER_MIN
    assert mark_clock([*marks, None]) is None
    if None not in marks:
        assert watermark([*marks, None], set()) == Watermark(ORDER_MIN, None, silent)


def test_a_thread_that_one_partition_has_not_heard_of_holds_everything() -> None:
    known = PartitionMark.of(_mark(1, 0, {1: Order.mark(9), 2: Order.mark(9)}))
    older = PartitionMark.of(_mark(1, 0, {1: Order.mark(9)}))
    assert watermark([known, older], set()) == Watermark(ORDER_MIN, 2, 1)


def _reach(marks: list[Mark]) -> Iterator[PartitionMark]:
    now = PartitionMark.of(marks[0])
    yield now
    for mark in marks[1:]:
        now = now.followed_by(mark, "a", 0)
        yield now


@given(st.lists(st.tuples(st.integers(0, 9), orders, orders), min_size=1, max_size=6), st.data())
def test_what_a_partition_has_marked_never_falls_whatever_later_epochs_say(
    said: list[tuple[int, Order, Order]], data: st.DataObject
) -> None:
    marks = [_mark(epoch, clock, {1: one, 2: two}) for epoch, (clock, one, two) in enumerate(said, start=1)]
    reached = list(_reach(marks))
    for before, after in pairwise(reached):
        assert not before.is_ahead_of(after)
        assert after.clock_us >= before.clock_us
        assert all(after.orders[t] >= order for t, order in before.orders.items())
    # and it is the same whether it was read in one go or from a progress in between
    stop = data.draw(st.integers(0, len(marks) - 1))
    resumed = PartitionMark.of(reached[stop].record())
    for mark in marks[stop + 1 :]:
        resumed = resumed.followed_by(mark, "a", 0)
    assert resumed.record() == reached[-1].record()


@given(partition_marks, partition_marks)
def test_within_an_epoch_a_lower_mark_is_an_error(before: PartitionMark, after: PartitionMark) -> None:
    is_lower = after.clock_us < before.clock_us or any(
        after.orders.get(thread, ORDER_MIN) < order for thread, order in before.orders.items()
    )
    is_unnamed = not before.orders.keys() <= after.orders.keys()
    if is_lower or is_unnamed:
        with pytest.raises(MarkWentBackError):
            before.followed_by(after.record(), "a", 0)
    else:
        assert before.followed_by(after.record(), "a", 0).record() == after.record()


def test_a_new_epoch_is_strict_again_once_it_has_said_as_much_as_the_one_before() -> None:
    marks = [_mark(1, 9, {1: Order.mark(9)}), _mark(2, 5, {1: Order.mark(5)}), _mark(2, 9, {1: Order.mark(9)})]
    *_, reached = _reach(marks)
    assert reached.epoch == 2
    with pytest.raises(MarkWentBackError):
        reached.followed_by(_mark(2, 9, {1: Order.mark(8)}), "a", 0)


@given(st.lists(partition_marks, min_size=1, max_size=4))
def test_some_partition_is_never_ahead_of_another(marks: list[PartitionMark]) -> None:
    """So there is always one that is read, whatever is paused."""
    assert any(not any(mark.is_ahead_of(other) for other in marks) for mark in marks)


def test_a_registered_thread_that_has_not_marked_holds_everything() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.transaction("t1", 5)
    group.mark({1: 9, 2: 0})
    assert group.read_and_release() == []
    group.mark({1: 9, 2: 5})
    assert group.read_and_release() == ["t1"]


def test_a_mark_that_one_partition_has_not_seen_frees_nothing() -> None:
    group = ByHand(partitions=2)
    group.mark({1: 0})
    group.transaction("t2", 6, partition=0)
    group.transaction("t1", 5, partition=1)
    group.mark({1: 9})
    group.read(partition=0)
    assert group.release() == []
    assert group.source().watermark().partition == 1
    group.read(partition=1)
    assert group.release() == ["t1", "t2"]


def test_a_thread_that_is_added_holds_at_its_first_scn() -> None:
    group = ByHand()
    group.mark({1: 10})
    group.transaction("t1", 25)
    group.mark({1: 19, 2: 19})
    group.transaction("t2", 20, thread=2)
    group.mark({1: 30, 2: 19})
    assert group.read_and_release() == []
    group.mark({1: 30, 2: 30})
    assert group.read_and_release() == ["t2", "t1"]
