"""Past the second limit only such partitions are paused whose reading cannot free anything."""

from __future__ import annotations

from tests.simulation.by_hand import ByHand


def test_nothing_is_paused_below_the_limit() -> None:
    group = ByHand("a", "b", partitions=2)
    group.mark({1: 0})
    group.read()
    assert group.merger.pauses(10**9) == set()


def test_the_freeing_mark_behind_a_full_buffer_is_still_read() -> None:
    """Partition 0 is full of transactions; the mark that frees them lies behind as many in partition 1."""
    group = ByHand(partitions=2)
    group.mark({1: 0})
    for number in range(1, 21):
        group.transaction(f"x{number:02}", number, partition=0, clock=number)
        group.transaction(f"y{number:02}", number + 20, partition=1, clock=number + 20)
    group.mark({1: 100}, 100)
    group.read(partition=0)
    assert group.release() == []
    limit = group.merger.size_bytes // 2
    # partition 0 has been read to its mark: all that the lower mark of partition 1 can free is here
    assert group.merger.pauses(limit) == {("a", 0)}
    released: list[str] = []
    while group.read_to[("a", 1)] < len(group.topics["a"].partitions[1]):
        assert ("a", 1) not in group.merger.pauses(limit), "this one holds: to pause it would be for ever"
        group.read(partition=1, count=1)
        released += group.release()
    assert len(released) == 40
    assert group.merger.pauses(limit) == set()


def test_partitions_whose_marks_are_equal_are_all_read() -> None:
    group = ByHand(partitions=3)
    group.mark({1: 0})
    group.transaction("t1", 5, partition=2)
    group.read()
    assert group.merger.pauses(0) == set()


def test_a_partition_without_a_mark_is_never_paused() -> None:
    group = ByHand(partitions=2)
    group.mark({1: 0}, partition=0)
    group.transaction("t1", 5)
    group.read()
    assert group.merger.pauses(0) == {("a", 0)}


def test_a_partition_that_is_ahead_in_one_thing_and_behind_in_another_is_read() -> None:
    """After a delayed end, partition 0 knows a later clock, and partition 1 later orders: each can free something."""
    group = ByHand(partitions=2)
    group.mark({1: 0})
    group.mark({1: 10}, 500, partition=0)
    group.mark({1: 30}, 100, partition=1, epoch=2)
    group.transaction("t1", 31)
    group.read()
    assert group.merger.pauses(0) == set()


def test_whole_sources_are_paused_but_never_the_holders() -> None:
    group = ByHand("a", "b", "c")
    for source in "abc":
        group.mark({1: 0}, 0, source=source)
    for source, clock in (("a", 50), ("b", 300), ("c", 400)):
        group.transaction(f"{source}1", 5, clock=clock, source=source)
        group.mark({1: 9}, clock, source=source)
    assert group.read_and_release() == ["a1"]
    assert group.holder() == "a"
    assert group.merger.pauses(0) == {("b", 0), ("c", 0)}
    group.mark({1: 9}, 350)
    group.read("a")
    assert group.release() == ["b1"]
    assert group.holder() == "b"
    assert group.merger.pauses(0) == {("a", 0), ("c", 0)}


def test_behind_a_stopped_source_the_others_are_paused_at_the_limit_and_read_on_below_it() -> None:
    group = ByHand("a", "b")
    group.mark({1: 0}, 0)
    group.mark({1: 0}, 0, source="b")
    group.commit("broken", 5, changes=3)
    group.transaction("b1", 5, clock=50, source="b")
    group.mark({1: 9}, 100, source="b")
    group.read()
    assert group.holder() == "a"
    assert group.merger.pauses(10**9) == {("a", 0)}
    assert group.merger.pauses(0) == {("a", 0), ("b", 0)}
