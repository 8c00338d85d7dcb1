"""Each field of progress, by a restart at the moment where it matters."""

from __future__ import annotations

from tests.simulation.by_hand import ByHand

from lowwater.errors import LateError
from lowwater.records.positions import Order
from lowwater.records.types import Skip


def test_gsn_goes_on_without_a_gap() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5)
    group.mark({1: 9})
    group.read()
    assert [r.gsn for r in group.released()] == [1]
    group.save()
    group.restart()
    group.transaction("t2", 10)
    group.mark({1: 10})
    group.read()
    assert [(r.gsn, r.transaction.key.txid) for r in group.released()] == [(2, "t2")]


def test_what_was_released_but_not_saved_is_released_again_with_the_same_gsn() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.save()
    group.transaction("t1", 5)
    group.mark({1: 9})
    group.read()
    before = [(r.gsn, r.transaction.key, r.clock_us) for r in group.released()]
    group.restart()
    group.read()
    assert [(r.gsn, r.transaction.key, r.clock_us) for r in group.released()] == before


def test_a_closed_threads_mark_that_was_consumed_still_holds_after_a_restart() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.mark({1: 10, 2: 20}, closed=(2,))
    group.read()
    group.save()
    assert group.offset() == 2, "nothing before it is needed any more, so the mark is not read again"
    group.restart()
    # only thread 1 speaks now; without the closed one's mark in the progress, 25 would go out
    mark = group.source().marks[0]
    assert mark is not None
    assert mark.states == {1: "open", 2: "closed"}
    group.transaction("t1", 15)
    group.transaction("t2", 25)
    group.mark({1: 30, 2: 20}, closed=(2,))
    assert group.read_and_release() == ["t1"]
    assert group.source().watermark().thread == 2


def test_progress_holds_the_mark_before_the_offset_and_never_the_newest() -> None:
    group = ByHand()
    group.mark({1: 3, 2: 3})
    group.transaction("t1", 8)
    group.mark({1: 9, 2: 4})
    group.read()
    saved = group.save().sources[0].partitions[0]
    assert saved.offset == 1
    assert saved.mark is not None
    assert saved.mark.threads[0].order == Order.mark(3), "with 9, t1 would look late when it is read again"
    group.restart()
    group.mark({1: 9, 2: 9})
    assert group.read_and_release() == ["t1"]


def test_exclusion_then_late_arrival_then_restart() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.transaction("t1", 30)
    group.mark({1: 40, 2: 0})
    group.read()
    group.merger.exclude("a", 2, "its disk is gone")
    assert group.release() == ["t1"]
    group.save()
    group.transaction("late", 20, thread=2)
    for _ in range(2):
        group.read()
        assert "below 30.1, which was released" in group.error(LateError).what
        assert group.release() == []
        group.save()
        group.restart()
        assert group.source().excluded == {2}
    group.merger.skip(Skip("a", 2, "late", "its rows were copied by hand"))
    group.seek()
    assert group.read_and_release() == ["-late"]


def test_the_clock_of_a_source_in_the_middle_of_a_group() -> None:
    group = ByHand("a", "b")
    group.mark({1: 0, 2: 0})
    group.mark({1: 0}, 99, source="b")
    group.transaction("a1", 5, clock=100, thread=2)
    group.transaction("a2", 6, clock=50)
    group.mark({1: 5, 2: 10}, 100)
    assert group.read_and_release() == ["a1"]
    group.save()
    group.restart()
    group.transaction("b1", 5, clock=100, source="b")
    group.mark({1: 9}, 500, source="b")
    group.mark({1: 10, 2: 10}, 500)
    group.read()
    # a2 was committed at 50 and comes at 101, behind its own source's a1; without the saved clock it would pass b1
    assert [(r.transaction.key.txid, r.clock_us) for r in group.released()] == [("b1", 100), ("a2", 101)]


def test_a_waiting_transaction_has_the_same_clock_after_a_restart() -> None:
    """A repeat under the next epoch brings lower clocks; how they are raised may not depend on what was read before."""

    def write() -> ByHand:
        group = ByHand("a", "b")
        group.mark({1: 0}, 100, source="a")
        group.mark({1: 0, 2: 0}, source="b")
        group.transaction("b1", 5, clock=100, source="b")
        group.mark({1: 5, 2: 5}, 80, source="b", epoch=2)
        group.transaction("b3", 50, clock=95, source="b")
        group.transaction("b2", 40, clock=96, source="b", thread=2)
        group.read()
        assert group.release() == ["b1"]
        group.save()
        return group

    def finish(group: ByHand) -> list[tuple[str, int]]:
        group.transaction("a1", 9, clock=102, source="a")
        group.mark({1: 9}, 500, source="a")
        group.mark({1: 60, 2: 60}, 500, source="b", epoch=2)
        group.read()
        return [(r.transaction.key.txid, r.clock_us) for r in group.released()]

    group = write()
    restarted = write()
    restarted.restart()
    assert finish(group) == finish(restarted) == [("b2", 101), ("a1", 102), ("b3", 102)]


def test_reading_begins_again_in_the_middle_of_a_released_transaction() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.change("t1", 1)
    group.change("t2", 1, thread=2)
    group.change("t1", 2)
    group.commit("t1", 5, changes=2)
    group.mark({1: 5, 2: 5})
    assert group.read_and_release() == ["t1"]
    group.save()
    assert group.offset() == 2, "the first record of t2, which is still open: the first of t1 lies before it"
    group.restart()
    group.commit("t2", 6, thread=2)
    group.mark({1: 6, 2: 6})
    assert group.read_and_release() == ["t2"]
    assert group.source().error is None, "what is left of t1 is dropped before it is counted"
    assert group.merger.released_again_dropped == 1


def test_the_offset_waits_for_a_transaction_that_began_before_one_ahead_of_it() -> None:
    """Its commit came later than the other's, its first change earlier: the other's offset is not enough."""
    group = ByHand()
    group.mark({1: 0})
    group.change("large", 1)
    group.transaction("small", 5)
    group.change("large", 2)
    group.commit("large", 6, changes=2)
    group.mark({1: 4})
    group.read()
    group.save()
    assert group.offset() == 1
    group.mark({1: 5})
    assert group.read_and_release() == ["small"]
    group.save()
    assert group.offset() == 1
    group.restart()
    group.mark({1: 6})
    assert group.read_and_release() == ["large"]
    group.save()
    assert group.offset() == group.topics["a"].end(0)


def test_offsets_never_go_back() -> None:
    group = ByHand(partitions=2)
    group.mark({1: 0})
    group.mark({1: 1})
    group.read()
    group.save()
    before = [group.offset(partition=p) for p in (0, 1)]
    group.restart()
    group.transaction("t1", 5)
    group.read(partition=0)
    group.save()
    assert [group.offset(partition=p) for p in (0, 1)] == before == [2, 2]


def test_a_source_that_is_to_be_read_again_keeps_its_offsets_until_it_has_been_sought() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.read()
    group.save()
    group.transaction("t1", 5)
    group.read()
    group.merger.skip(Skip("a", 1, "other", "no matter"))
    assert group.merger.rewound == {"a"}
    # the consumer still stands behind t1, which the merger has just forgotten
    group.save()
    assert group.offset() == 1


def test_marks_of_the_epoch_before_hold_across_a_restart() -> None:
    """Epoch 1's last batch was seen although it was never told so; epoch 2 begins lower and rises again."""
    group = ByHand()
    group.mark({1: 0}, 0)
    group.mark({1: 50}, 500)
    group.read()
    for scn, clock in ((10, 100), (20, 200), (50, 500), (60, 600)):
        group.save()
        group.restart()
        group.mark({1: scn}, clock, epoch=2)
        group.read()
        assert group.source().error is None
        assert group.source().watermark().order == Order.mark(max(50, scn))


def test_when_a_source_joined_and_which_topic_it_read_are_kept() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5, clock=70)
    group.mark({1: 5})
    assert group.read_and_release() == ["t1"]
    group.join("b", topic_id="uuid-1")
    joined = group.save().sources[1]
    assert (joined.source, joined.joined_gsn, joined.clock_us, joined.topic_id) == ("b", 2, 70, "uuid-1")
    group.restart()
    assert (group.source("b").joined_gsn, group.source("b").topic_id) == (2, "uuid-1")
    assert [(w.gsn, w.word, w.source) for w in group.merger.words] == [(1, "join", "a"), (2, "join", "b")]


def test_a_thread_that_was_named_is_not_forgotten_by_going_back() -> None:
    """Known threads decide whether a source is out; the mark that named them may lie behind the saved offset."""
    group = ByHand()
    group.save()
    group.mark({1: 0, 2: 0})
    group.read()
    group.merger.exclude("a", 1, "gone")
    group.merger.skip(Skip("a", 1, "x", "goes back to the last progress"))
    group.seek()
    assert not group.source().is_out
    group.merger.exclude("a", 2, "gone too")
    assert group.source().is_out
    group.save()
    group.restart()
    assert group.source().is_out


def test_what_waited_of_an_excluded_thread_is_read_again_before_anything_goes_past_it() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.transaction("t70", 70)
    group.mark({1: 100, 2: 50})
    group.transaction("t60", 60, thread=2)
    group.read()
    group.merger.exclude("a", 2, "its node is gone")
    group.save()
    group.restart()
    group.read(count=3)
    assert group.release() == [], "t60 was read before the restart, and its own mark no longer holds anything"
    assert group.read_and_release() == ["t60", "t70"]
