"""Both steps of the order: threads of one source by SCN, sources of a group by a clock."""

from __future__ import annotations

import heapq
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.by_hand import ByHand
from tests.simulation.memory_spool import MemorySpool

from lowwater.records.positions import Order
from lowwater_merger.core.assemble import Buffer
from lowwater_merger.core.lanes import Lanes, ReleaseKey, Waiting


def test_threads_of_one_source_come_by_their_scn_whatever_their_clocks() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.transaction("t7", 7, clock=10)
    group.transaction("t5", 5, clock=99, thread=2)
    group.mark({1: 9, 2: 9}, 100)
    group.read()
    assert [(r.transaction.key.txid, r.clock_us) for r in group.released()] == [("t5", 99), ("t7", 100)]


def test_equal_scns_come_by_thread_then_by_id() -> None:
    group = ByHand(partitions=2)
    group.mark({1: 0, 2: 0})
    group.transaction("x", 5, thread=2, partition=0)
    group.transaction("z", 5, thread=1, partition=1)
    group.transaction("y", 5, thread=1, partition=0)
    group.mark({1: 9, 2: 9})
    assert group.read_and_release() == ["y", "z", "x"]


def test_at_equal_clocks_the_sources_name_decides_and_nobody_stalls() -> None:
    group = ByHand("a", "b")
    for source in "ab":
        group.mark({1: 0}, 0, source=source)
        group.transaction(f"{source}1", 5, clock=50, source=source)
        group.mark({1: 9}, 50, source=source)
    assert group.read_and_release() == ["a1", "b1"]


def test_a_source_that_is_silent_holds_the_others_at_its_floor() -> None:
    group = ByHand("a", "b")
    group.mark({1: 0}, 40)
    group.mark({1: 0}, 0, source="b")
    for number, clock in ((1, 39), (2, 40), (3, 41)):
        group.transaction(f"b{number}", number, clock=clock, source="b")
    group.mark({1: 9}, 100, source="b")
    assert group.read_and_release() == ["b1", "b2"]
    assert group.holder() == "a"
    group.mark({1: 0}, 41)
    assert group.read_and_release() == ["b3"], "(41, b) lies below (42, a)"


def test_a_waiting_commit_with_an_old_clock_holds_the_others_though_the_marks_have_passed() -> None:
    """a's t1 waits for thread 2; its clock is 50, whatever a's marks say by now."""
    group = ByHand("a", "b")
    group.mark({1: 0, 2: 0}, 0)
    group.mark({1: 0}, 0, source="b")
    group.transaction("t1", 5, clock=50)
    group.mark({1: 9, 2: 0}, 90)
    group.transaction("b1", 5, clock=70, source="b")
    group.mark({1: 9}, 100, source="b")
    assert group.read_and_release() == []
    assert group.holder() == "a"
    group.mark({1: 9, 2: 9}, 95)
    assert group.read_and_release() == ["t1", "b1"]


def test_a_commit_below_its_partitions_marked_clock_is_lifted_above_it() -> None:
    group = ByHand()
    group.mark({1: 0}, 80)
    group.transaction("t1", 5, clock=50)
    group.mark({1: 9}, 90)
    group.read()
    assert [r.clock_us for r in group.released()] == [81]


def _waiting(key: ReleaseKey, first_offset: int, commit_offset: int, clock_us: int) -> Waiting:
    buffer = Buffer("a", 0, first_offset, None)
    return Waiting(key, buffer, b"", clock_us, 0, 0, 1, commit_offset, None)


steps = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(0, 3), st.sampled_from(("add", "pop", "spill"))),
    max_size=40,
)


@given(steps)
def test_lanes_give_the_lowest_key_and_know_what_they_still_need(
    todo: list[tuple[int, int, int, str]],
) -> None:
    """Against a plain heap: the lowest key, the lowest offset needed, the lowest clock; on disk or not."""
    lanes, spool, offsets = Lanes(), MemorySpool(), count(10)
    plain: list[tuple[ReleaseKey, int, Waiting]] = []
    for number, (partition, thread, before, what) in enumerate(todo):
        if what == "add":
            offset = next(offsets)
            key = ReleaseKey(0, Order(number + 1, 1), thread, f"t{number}")
            entry = _waiting(key, offset * 100 - before * 151, offset, 100 + number)
            lanes.append(partition, entry)
            heapq.heappush(plain, (key, partition, entry))
        elif what == "pop" and plain:
            assert lanes.pop().key == heapq.heappop(plain)[0]
        elif what == "spill":
            for lane in lanes.lanes.values():
                if lane.head:
                    lane.spill(spool.lane())
        first = lanes.first()
        assert (first.key if first else None) == (plain[0][0] if plain else None)
        assert lanes.count == len(plain)
        assert lanes.clock_min() == min((e.clock_us for *_, e in plain), default=None)
        for place in (0, 1):
            needed = min((e.buffer.first_offset for _, p, e in plain if p == place), default=None)
            found = lanes.oldest(place)
            assert (found[0] if found else None) == needed
