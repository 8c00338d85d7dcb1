"""What a change of a position would lose or repeat, and how far copies are."""

from __future__ import annotations

import base64

import pytest

from lowwater.records.positions import Order
from lowwater.records.types import CopyRequest, InProgress, Position, TableCopy, ThreadPosition
from lowwater_control.models import ThreadPlace
from lowwater_control.problems import InvalidError
from lowwater_control.routes.copies import shown_copies
from lowwater_control.stores.positions import move_effects, reset_effects, shown

AT = Order.mark(100)
POSITION = Position(
    "bank", "db-1", 3, 7, InProgress(1, "tx", Order(101, 1), 1, 5, 9),
    (ThreadPosition(1, b"here", Order(99, 4), AT, "open"), ThreadPosition(2, b"there", Order(90, 1), AT, "open")),
)  # fmt: skip


def _place(thread: int = 1, resume: bytes = b"here", mark: str = "100.*") -> ThreadPlace:
    return ThreadPlace(thread=thread, resume=base64.b64encode(resume).decode(), mark=mark)


def test_going_back_repeats_nothing_and_going_ahead_loses() -> None:
    assert move_effects(POSITION, [_place()]) == ["thread 1: nothing changes"]
    back = move_effects(POSITION, [_place(resume=b"before", mark="40.*")])
    assert back == ["thread 1: read again from 40.*; commits already published, up to 99.4, are not published again"]
    assert "LOST: commits between 100.* and 400.*" in move_effects(POSITION, [_place(mark="400.*")])[0]


@pytest.mark.parametrize(
    "places",
    [
        [_place(thread=9)],
        [_place(), _place()],
        [ThreadPlace(thread=1, resume="not base64!", mark="1.*")],
        [_place(mark="99999999999999999999.1")],
    ],
)
def test_a_place_that_cannot_be_is_refused_with_its_field(places: list[ThreadPlace]) -> None:
    with pytest.raises(InvalidError) as caught:
        move_effects(POSITION, places)
    assert caught.value.errors[0].field.startswith("threads.")


def test_forgetting_a_position_says_all_that_is_lost() -> None:
    copies = [TableCopy("a.b", "c", 1, 1, AT, AT, is_copied=True)]
    effects = reset_effects(POSITION, copies)
    assert sum("LOST" in effect for effect in effects) == 2
    assert "1 tables are copied again" in effects
    assert "tx" in effects[-1]
    assert reset_effects(None, ()) == ["nothing: there is no position yet"]
    assert shown(POSITION).in_progress == {"thread": 1, "txid": "tx", "changes": 5}


def test_orders_are_read_as_they_are_written() -> None:
    for order in (Order(0, 0), Order(17, 3), Order.mark(2**64 - 1)):
        assert Order.parse(str(order)) == order
    for wrong in ("", "1", "a.b", "1.-1", f"{2**64}.1", "1.2.3"):
        with pytest.raises(ValueError):
            Order.parse(wrong)


def test_copies_are_requested_planned_copying_readable_or_cancelled() -> None:
    copies = [
        TableCopy("a.done", "c1", 3, 1, AT, AT, is_copied=True),
        TableCopy("a.going", "c2", 4, 1, AT, AT, is_copied=False),
        TableCopy("a.planned", "c3", 2, 1, AT, AT, is_copied=False),
        TableCopy("a.cancelled", "c4", 2, 1, AT, AT, is_copied=False, request="r2", is_cancelled=True),
    ]
    words = [CopyRequest("a.new", "r1", "why not"), CopyRequest("a.cancelled", "r2", "", is_cancel=True)]
    progress = {"c2": {"chunks_done": 1, "rows": 10, "rows_per_second": 5, "seconds_left": 6}}
    found = {copy.table: copy for copy in shown_copies(copies, words, progress)}
    states = {table: copy.state for table, copy in found.items()}
    assert states == {
        "a.done": "readable", "a.going": "copying", "a.planned": "planned", "a.cancelled": "cancelled",
        "a.new": "requested",
    }  # fmt: skip
    assert (found["a.going"].chunks_done, found["a.going"].seconds_left) == (1, 6)
    assert found["a.done"].chunks_done == 3
