"""A lost progress topic: what was released is read from the ordered topic, and nothing is released twice."""

from __future__ import annotations

import pytest
from tests.simulation.by_hand import ByHand
from tests.simulation.topic import CODEC

from lowwater.errors import MergeError
from lowwater.records.codec import decode_commit
from lowwater.records.positions import Order
from lowwater.records.types import Commit, Position, Progress, Skip, Skipped, ThreadPosition
from lowwater_merger.core.lanes import ReleaseKey
from lowwater_merger.core.merger import Released as ReleasedTransaction
from lowwater_merger.rebuild import ChangesTopic, Released, before, rebuilt


def _ordered(found: list[ReleasedTransaction]) -> Released:
    """What the ordered topic then holds."""
    released = Released()
    for one in found:
        released.add(one.gsn, decode_commit(one.transaction.commit))
    return released


def _rebuild(group: ByHand, released: Released, skips: tuple[Skip, ...] = ()) -> None:
    sources = {
        name: ChangesTopic("", dict.fromkeys(range(len(topic.partitions)), 0), None)
        for name, topic in group.topics.items()
    }
    progress = rebuilt("g", released, sources, skips, 0)
    group.progress = CODEC.decode(CODEC.encode(progress), Progress)
    group.restart()


def test_rebuilt_merger_goes_on_after_the_last_gsn_and_releases_nothing_twice() -> None:
    group = ByHand("a", "b", partitions=2)
    group.mark({1: 0, 2: 0}, source="a")
    group.mark({1: 0}, source="b")
    group.transaction("a1", 5, clock=10, source="a")
    group.transaction("a2", 6, clock=20, source="a", thread=2, partition=1)
    group.transaction("b1", 3, clock=15, source="b")
    group.mark({1: 9, 2: 9}, 100, source="a")
    group.mark({1: 9}, 100, source="b")
    group.read()
    released = group.released()
    assert [r.transaction.key.txid for r in released] == ["a1", "b1", "a2"]
    _rebuild(group, _ordered(released))
    group.transaction("a3", 10, clock=101, source="a", thread=2, partition=1)
    group.mark({1: 19, 2: 19}, 200, source="a")
    group.mark({1: 19}, 200, source="b")
    group.read()
    again = group.released()
    assert [(r.gsn, r.transaction.key.txid) for r in again] == [(4, "a3")]
    assert group.merger.released_again_dropped == 3


def test_transaction_with_the_last_order_on_a_higher_thread_is_still_released() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0, 3: 0})
    group.transaction("t1", 5, thread=1)
    group.transaction("t2", 5, thread=2)
    group.transaction("t3", 5, thread=3)
    group.mark({1: 5, 2: 5, 3: 5})
    group.read()
    released = group.released()[:2]
    _rebuild(group, _ordered(released))
    group.mark({1: 6, 2: 6, 3: 6})
    group.read()
    assert [(r.gsn, r.transaction.key.txid) for r in group.released()] == [(3, "t3")]


def test_commanded_skips_count_as_used_after_a_rebuild() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5)
    group.mark({1: 5})
    group.read()
    skip = Skip("a", 1, "t2", "known", "r1")
    _rebuild(group, _ordered(group.released()), (skip,))
    group.merger.skip(skip)
    group.transaction("t2", 7)
    group.mark({1: 9})
    assert group.read_and_release() == ["t2"]


def test_the_order_right_below() -> None:
    assert before(Order(7, 1)) == Order(7, 0)
    assert before(Order(7, 0)) == Order.mark(6)
    assert before(Order(0, 0)) == Order(0, 0)


def test_first_of_a_generation_counts_with_it_though_it_was_skipped() -> None:
    released = Released()
    released.add(1, Commit("a", 1, "t1", Order(50, 1), 0, 7, 0, 0, generation=1))
    released.add(2, Skipped("a", 1, "t2", Order(5, 1), 0, "known", generation=2))
    assert released.last["a"] == ReleaseKey(2, Order(5, 1), 1, "t2")


def test_what_an_excluded_thread_still_had_is_not_taken_for_released() -> None:
    """The group went on without it: they lie below the source's last one."""
    released = Released()
    released.add(1, Commit("a", 2, "t3", Order(3, 1), 0, 7, 0, 0))
    released.add(2, Commit("a", 1, "t5", Order(5, 1), 0, 7, 0, 0))
    (source,) = rebuilt("g", released, {"a": ChangesTopic("", {0: 0}, None, frozenset({2}))}, (), 0).sources
    assert [(t.thread, t.order.major, t.txid) for t in source.threads] == [(1, 5, "t5"), (2, 3, "t3")]


def test_excluded_thread_that_the_ordered_topic_has_nothing_of_is_refused() -> None:
    released = Released()
    released.add(9, Commit("a", 1, "t1", Order(5, 1), 0, 7, 0, 0))
    topic = ChangesTopic("", {0: 0}, _position(threads=(1, 2)), frozenset({2}))
    with pytest.raises(MergeError, match="thread 2 is excluded") as refused:
        rebuilt("g", released, {"a": topic}, (), 0)
    assert "source reset a" in str(refused.value.hint)


def test_reading_begins_at_the_generation_that_something_was_released_of() -> None:
    released = Released()
    released.add(9, Commit("a", 1, "t1", Order(5, 1), 0, 7, 0, 0, generation=2))
    topic = ChangesTopic("", {0: 3, 1: 500}, _position(threads=(1,), generation=2, starts=(100, 200)))
    (source,) = rebuilt("g", released, {"a": topic}, (), 0).sources
    assert {p.partition: p.offset for p in source.partitions} == {0: 100, 1: 500}


def _position(threads: tuple[int, ...], generation: int = 0, starts: tuple[int, ...] = ()) -> Position:
    named = tuple(ThreadPosition(thread, b"", Order(0, 0), Order(0, 0), "open") for thread in threads)
    return Position("a", "i", 1, 0, None, named, generation, "", starts)
