"""What contradicts itself stops its source, with an error of its own; that holds the group, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.simulation.by_hand import ByHand
from tests.simulation.topic import CODEC

from lowwater.errors import (
    ChecksumMismatchError,
    CountMismatchError,
    DuplicateIdError,
    LateError,
    MarkWentBackError,
    MergeError,
    UnknownThreadError,
)
from lowwater.records.positions import Order
from lowwater.records.types import OrderKey, Skip, Skipped


@dataclass(frozen=True)
class Case:
    test_name: str
    write: Callable[[ByHand], None]
    error: type[MergeError]
    says: str
    thread: int | None = 1


def _late_below_own_mark(group: ByHand) -> None:
    group.mark({1: 9, 2: 9}, 9)
    group.transaction("bad", 7)


def _late_behind_own_thread(group: ByHand) -> None:
    group.transaction("good", 20)
    group.transaction("bad", 15)


def _unknown_thread(group: ByHand) -> None:
    group.transaction("bad", 20, thread=3)


def _mark_goes_back(group: ByHand) -> None:
    group.mark({1: 9, 2: 9}, 9)
    group.mark({1: 8, 2: 9}, 9)


def _clock_goes_back(group: ByHand) -> None:
    group.mark({1: 9, 2: 9}, 9)
    group.mark({1: 9, 2: 9}, 8)


def _epoch_goes_back(group: ByHand) -> None:
    group.mark({1: 9, 2: 9}, 9, epoch=3)
    group.mark({1: 9, 2: 9}, 9, epoch=2)


def _thread_no_longer_named(group: ByHand) -> None:
    group.mark({1: 9}, 9)


def _change_missing(group: ByHand) -> None:
    group.change("bad", 1)
    group.commit("bad", 20, changes=2)


def _change_missing_in_the_middle(group: ByHand) -> None:
    group.change("bad", 1)
    group.change("bad", 3)
    group.commit("bad", 20, changes=3)


def _change_too_many(group: ByHand) -> None:
    group.change("bad", 1)
    group.change("bad", 2)
    group.commit("bad", 20, changes=1)


def _other_bytes(group: ByHand) -> None:
    group.change("bad", 1, payload="not what was counted")
    group.commit("bad", 20, changes=1)


def _twice_with_other_bytes(group: ByHand) -> None:
    group.change("bad", 1)
    group.change("bad", 1, payload="not what was there before")
    group.commit("bad", 20, changes=1)


def _id_in_use_twice(group: ByHand) -> None:
    group.transaction("bad", 20)
    group.transaction("bad", 21)


def _id_in_use_twice_with_other_changes(group: ByHand) -> None:
    group.transaction("bad", 20, changes=1)
    group.transaction("bad", 20, changes=2)


def _foreign_record(group: ByHand) -> None:
    group.raw("x", CODEC.encode(OrderKey(1, 1)))


def _skipped_record(group: ByHand) -> None:
    group.raw("x", CODEC.encode(Skipped("a", 1, "t", Order(5, 1), 0, "not here")))


def _commit_of_another_source(group: ByHand) -> None:
    group.change("bad", 1)
    group.commit("bad", 20, says_source="somebody")


def _commit_cut_off(group: ByHand) -> None:
    group.raw("a/1/1/bad", CODEC.headers["Commit"] + b"\x02a")


def _mark_cut_off(group: ByHand) -> None:
    group.raw("a", CODEC.headers["Mark"] + b"\x02\x02\x04\x02")


CASES = (
    Case("late_below_own_mark", _late_below_own_mark, LateError, "at or below the mark of its thread, 9.*"),
    Case("late_behind_own_thread", _late_behind_own_thread, LateError, "after a later commit of the same thread"),
    Case("unknown_thread", _unknown_thread, UnknownThreadError, "bad of a thread that is not in any mark", 3),
    Case("mark_goes_back", _mark_goes_back, MarkWentBackError, "mark 8.* after 9.*"),
    Case("clock_goes_back", _clock_goes_back, MarkWentBackError, "clock 8 after 9", None),
    Case("epoch_goes_back", _epoch_goes_back, MarkWentBackError, "epoch 2 after 3", None),
    Case("thread_no_longer_named", _thread_no_longer_named, MarkWentBackError, "a mark without this thread", 2),
    Case("change_missing", _change_missing, CountMismatchError, "1 changes read, but the commit counts 2"),
    Case("change_missing_inside", _change_missing_in_the_middle, CountMismatchError, "change 2 is missing before 3"),
    Case("change_too_many", _change_too_many, CountMismatchError, "2 changes read, but the commit counts 1"),
    Case("other_bytes", _other_bytes, ChecksumMismatchError, "but not their checksum"),
    Case("twice_with_other_bytes", _twice_with_other_bytes, ChecksumMismatchError, "twice with different bytes"),
    Case("id_in_use_twice", _id_in_use_twice, DuplicateIdError, "is used twice: at 20.1 and at 21.1"),
    Case("id_with_other_changes", _id_in_use_twice_with_other_changes, DuplicateIdError, "is used twice"),
    Case("foreign_record", _foreign_record, MergeError, "a foreign record at partition 0 offset 2", None),
    Case("skipped_record", _skipped_record, MergeError, "a foreign record", None),
    Case("commit_of_another_source", _commit_of_another_source, MergeError, "a commit of source somebody"),
    Case("commit_cut_off", _commit_cut_off, MergeError, "at partition 0 offset 2 cannot be read", None),
    Case("mark_cut_off", _mark_cut_off, MergeError, "at partition 0 offset 2 cannot be read", None),
)


def _group() -> ByHand:
    """b has transactions that could go out, were it not for a."""
    group = ByHand("a", "b")
    group.mark({1: 0, 2: 0}, 0)
    group.mark({1: 2, 2: 2}, 3)
    group.mark({1: 0}, 0, source="b")
    group.transaction("b1", 5, clock=3, source="b")
    group.transaction("b2", 6, clock=50, source="b")
    group.mark({1: 9}, 100, source="b")
    return group


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.test_name)
def test_a_contradiction_stops_its_source_and_holds_the_group(case: Case) -> None:
    group = _group()
    case.write(group)
    group.mark({1: 90, 2: 90, 3: 90}, 1000, epoch=4)
    group.read()
    error = group.error(case.error)
    assert case.says in error.what
    assert error.hint
    assert (error.source, error.thread) == ("a", case.thread)
    # nothing behind the contradiction counts, and b, which is sound, waits for a
    assert [name for name in group.release() if name.startswith("b")] in ([], ["b1"])
    assert group.holder() == "a"
    assert group.source("b").error is None
    assert group.source("b").lanes.count >= 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.test_name)
def test_a_stopped_source_is_stopped_again_after_a_restart(case: Case) -> None:
    group = _group()
    case.write(group)
    group.read()
    first = group.error(case.error)
    group.release()
    group.save()
    group.restart()
    group.read()
    assert group.error(case.error).what == first.what


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.test_name)
def test_excluding_all_threads_of_a_stopped_source_frees_the_group(case: Case) -> None:
    group = _group()
    group.read()
    case.write(group)
    group.read()
    group.error(case.error)
    for thread in (1, 2, 3):
        group.merger.exclude("a", thread, "nobody can mend it tonight")
    group.seek()
    assert group.source().is_out
    assert group.read_and_release()[-1] == "b2"
    assert group.holder() != "a"


def test_the_others_are_read_on_while_they_wait() -> None:
    group = _group()
    _change_missing(group)
    group.read()
    group.transaction("b3", 20, clock=200, source="b")
    group.mark({1: 30}, 300, source="b")
    group.read()
    assert group.source("b").lanes.count == 3 - len(group.release())
    group.merger.skip(Skip("a", 1, "bad", "known"))
    group.seek()
    group.mark({1: 90, 2: 90}, 1000)
    assert group.read_and_release()[-1] == "b3"


def test_a_stopped_source_is_not_read_and_keeps_nothing() -> None:
    group = _group()
    _change_missing(group)
    group.read("a")
    assert group.merger.open_count == 0
    assert group.merger.size_bytes == 0
    assert ("a", 0) in group.merger.pauses(10**9)
    group.transaction("later", 30)
    group.read("a")
    assert group.merger.size_bytes == 0
