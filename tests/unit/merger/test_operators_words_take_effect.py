"""Skip, exclude, include, join, leave: recorded with the gsn at which they took effect."""

from __future__ import annotations

import pytest
from tests.simulation.by_hand import ByHand, values_of

from lowwater.errors import CountMismatchError, LateError
from lowwater.records.positions import Order
from lowwater.records.types import Skip


def _words(group: ByHand) -> list[tuple[int, str, int, str]]:
    return [(w.gsn, w.word, w.thread, w.txid) for w in group.merger.words if w.word != "join"]


def test_a_skipped_transaction_leaves_its_place_to_a_record_of_the_skip() -> None:
    group = ByHand()
    group.merger.skip(Skip("a", 1, "t2", "a known bad batch"))
    group.seek()
    group.mark({1: 0})
    for number in (1, 2, 3):
        group.transaction(f"t{number}", 4 + number, clock=100 * number)
    group.mark({1: 9}, 900)
    group.read()
    released = group.released()
    assert [(r.gsn, r.transaction.key.txid, r.transaction.skip) for r in released] == [
        (1, "t1", None),
        (2, "t2", "a known bad batch"),
        (3, "t3", None),
    ]
    assert (released[1].clock_us, released[1].transaction.key.order) == (200, Order(6, 1))
    assert values_of(released[1]) == []
    assert _words(group) == [(2, "skip", 1, "t2")]


def test_a_skip_mends_a_source_that_stopped_for_that_transaction() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5)
    group.commit("broken", 6, changes=4)
    group.transaction("t3", 7)
    group.mark({1: 9})
    group.read()
    group.error(CountMismatchError)
    group.merger.skip(Skip("a", 1, "broken", "its rows were written by hand"))
    group.seek()
    assert group.read_and_release() == ["t1", "-broken", "t3"]


def test_a_skip_of_another_transaction_does_not_mend_it() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.commit("broken", 6, changes=4)
    group.read()
    group.merger.skip(Skip("a", 2, "broken", "of another thread"))
    group.seek()
    group.read()
    group.error(CountMismatchError)


def test_the_same_skip_said_twice_is_one() -> None:
    group = ByHand()
    group.merger.skip(Skip("a", 1, "t1", "why"))
    group.seek()
    group.merger.skip(Skip("a", 1, "t1", "why"))
    assert group.merger.rewound == set()
    group.mark({1: 0})
    group.transaction("t1", 5)
    group.mark({1: 9})
    assert group.read_and_release() == ["-t1"]
    group.save()
    group.restart()
    group.merger.skip(Skip("a", 1, "t1", "why"))
    group.seek()
    assert group.read_and_release() == []
    assert _words(group) == [(1, "skip", 1, "t1")]


def test_a_late_transaction_that_is_skipped_does_not_turn_the_order_back() -> None:
    """It came behind a later one of its own thread; when both are out, neither may come again."""
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.save()
    group.change("late", 1)
    group.transaction("t50", 50)
    group.commit("late", 40)
    group.transaction("t45", 45)
    group.mark({1: 60, 2: 40})
    group.merger.skip(Skip("a", 1, "late", "known"))
    group.seek()
    group.read()
    assert "45.1" in str(group.error(LateError).position), "a skipped one does not open the way for others"
    group.merger.skip(Skip("a", 1, "t45", "known too"))
    group.seek()
    group.mark({1: 60, 2: 60})
    assert group.read_and_release() == ["t50", "-late", "-t45"]
    group.save()
    group.restart()
    assert group.source().released[1] == (0, Order(50, 1), "t50")
    assert group.read_and_release() == []


def _stalled() -> ByHand:
    """Thread 2 is behind: its commit at 60 was published after the others' marks had passed 60."""
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.transaction("t70", 70)
    group.mark({1: 100, 2: 50})
    group.transaction("t60", 60, thread=2)
    group.mark({1: 100, 2: 50})
    return group


def test_an_excluded_thread_no_longer_holds_and_what_was_read_of_it_keeps_its_place() -> None:
    group = _stalled()
    assert group.read_and_release() == []
    assert group.source().watermark().thread == 2
    group.merger.exclude("a", 2, "its node is gone")
    group.seek()
    # nothing is read again for this: t60 could come too late then
    assert group.release() == ["t60", "t70"]
    assert _words(group) == [(1, "exclude", 2, "")]


def test_what_an_excluded_thread_commits_above_the_released_order_is_released() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.merger.exclude("a", 2, "slow")
    group.transaction("t1", 5)
    group.transaction("t2", 6, thread=2)
    group.mark({1: 9, 2: 0})
    assert group.read_and_release() == ["t1", "t2"]


def test_an_included_thread_holds_again() -> None:
    group = ByHand()
    group.mark({1: 0, 2: 0})
    group.merger.exclude("a", 2, "slow")
    group.transaction("t1", 5)
    group.mark({1: 9, 2: 0})
    assert group.read_and_release() == ["t1"]
    group.merger.include("a", 2, "back")
    group.transaction("t2", 12)
    group.mark({1: 20, 2: 0})
    assert group.read_and_release() == []
    group.mark({1: 20, 2: 20})
    assert group.read_and_release() == ["t2"]
    assert _words(group) == [(1, "exclude", 2, ""), (2, "include", 2, "")]


def _two() -> ByHand:
    group = ByHand("a", "b")
    group.mark({1: 0, 2: 0}, 0)
    group.mark({1: 0}, 0, source="b")
    group.transaction("a1", 5, clock=10)
    group.transaction("b1", 5, clock=500, source="b")
    group.mark({1: 9}, 900, source="b")
    return group


def test_a_source_with_all_threads_excluded_is_out_until_it_returns_at_the_groups_clock() -> None:
    group = _two()
    group.read()
    assert group.release() == [], "a's threads have not marked past a1"
    for thread in (1, 2):
        group.merger.exclude("a", thread, "down for the night")
    group.seek()
    assert group.source().is_out
    assert ("a", 0) in group.merger.pauses(10**9)
    group.mark({1: 9, 2: 9}, 20)
    assert group.read_and_release() == ["b1"], "it is not read, and holds nobody"
    group.save()
    assert group.offset("a") == 0, "nothing of it is passed over"
    group.merger.include("a", 1, "up again")
    group.merger.include("a", 2, "up again")
    group.seek()
    group.mark({1: 9}, 1000, source="b")
    group.read()
    assert [(r.transaction.key.txid, r.clock_us) for r in group.released()] == [("a1", 501)]


def test_a_source_that_is_out_stays_out_across_a_restart() -> None:
    group = _two()
    group.read()
    group.merger.exclude("a", 1, "down")
    group.merger.exclude("a", 2, "down")
    group.seek()
    group.save()
    group.restart()
    assert group.read_and_release() == ["b1"]
    assert group.holder() == "b"


def test_a_source_that_joins_starts_at_the_groups_clock() -> None:
    group = ByHand("a")
    group.mark({1: 0}, 0)
    group.transaction("a1", 5, clock=500)
    group.mark({1: 9}, 500)
    assert group.read_and_release() == ["a1"]
    group.join("b")
    group.mark({1: 9}, 600)
    group.read()
    assert group.holder() == "b", "nobody can go on before it has marked"
    group.mark({1: 0}, 0, source="b")
    group.transaction("b1", 5, clock=10, source="b")
    group.mark({1: 9}, 20, source="b")
    group.read()
    assert [(r.transaction.key.txid, r.clock_us) for r in group.released()] == [("b1", 501)]
    assert group.source("b").joined_gsn == 2


def test_a_source_that_leaves_holds_nobody() -> None:
    group = _two()
    group.read()
    assert group.holder() == "a"
    group.merger.leave("a", "moved to another group")
    assert group.release() == ["b1"]
    assert group.merger.size_bytes == 0
    assert [(w.gsn, w.word, w.source) for w in group.merger.words][-1] == (1, "leave", "a")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_source_that_left_and_joins_again_releases_nothing_twice(is_restarted: bool) -> None:
    group = ByHand("a", "b")
    group.mark({1: 0}, 0)
    group.mark({1: 0}, 0, source="b")
    group.transaction("a1", 5, clock=10)
    group.transaction("a2", 20, clock=20)
    group.mark({1: 9}, 900)
    group.transaction("b1", 5, clock=500, source="b")
    group.mark({1: 9}, 1000, source="b")
    assert group.read_and_release() == ["a1"]
    group.merger.leave("a", "no longer in the group's config")
    del group.read_to[("a", 0)]
    assert group.release() == ["b1"]
    if is_restarted:
        group.save()
        group.restart()
    group.join("a")
    group.mark({1: 30}, 1000)
    group.read()
    assert [(r.gsn, r.transaction.key.txid, r.clock_us) for r in group.released()] == [(3, "a2", 501)]
    assert group.save().left == ()


def test_a_source_whose_topic_was_made_again_joins_anew() -> None:
    group = ByHand("b")
    group.join("a", topic_id="first")
    group.mark({1: 0}, 0)
    group.transaction("a1", 5, clock=10)
    group.mark({1: 9}, 900)
    group.mark({1: 9}, 1000, source="b")
    assert group.read_and_release() == ["a1"]
    group.merger.leave("a", "its topic was deleted")
    group.join("a", topic_id="second")
    assert group.source().released == {}
    assert group.offset() == 0
