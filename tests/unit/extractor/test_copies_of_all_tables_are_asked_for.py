"""One request for all tables, as a lake that is new makes it: each table is copied once for it."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.extractor.test_copies_are_cancelled import AT, NAME, Landed, _copies

from lowwater.control.commands import ALL_TABLES, copy
from lowwater.records.positions import Order
from lowwater.records.types import Control, CopyRequest, TableCopy, Wanted

ALL = CopyRequest(ALL_TABLES, "begin-1", "the lake is new")
DONE = TableCopy(NAME, "c1", 2, 7, Order.mark(1), Order.mark(1), is_copied=True)


def test_every_table_is_copied_again_once_also_after_a_restart() -> None:
    landed = Landed()
    landed.whole.add("c1")
    copies = _copies([DONE], landed)
    assert copies.plan(AT, is_at_end=True) == []
    copies.request([ALL])
    planned = copies.plan(AT, is_at_end=True)
    assert [chunk.chunk for chunk in planned] == [1, 2]
    copies.request([ALL])
    assert copies.plan(AT, is_at_end=True) == []
    kept = copies.copies[NAME]
    assert kept.request == "begin-1"
    landed.whole.add(kept.copy)
    again = _copies([replace(kept, is_copied=True)], landed)
    again.request([ALL])
    assert again.plan(AT, is_at_end=True) == []


def test_a_request_for_one_table_counts_before_one_for_all() -> None:
    landed = Landed()
    landed.whole.add("c1")
    copies = _copies([replace(DONE, request="mine")], landed)
    copies.request([ALL, CopyRequest(NAME, "mine", "of an operator")])
    assert copies.plan(AT, is_at_end=True) == []


def test_a_request_for_all_tables_takes_the_place_of_those_before_it() -> None:
    control = Control("db", "source", 1, Wanted.RUNNING, "")
    control = copy(ALL)(copy(CopyRequest(NAME, "mine", "why"))(control))
    assert [request.table for request in control.copies] == [ALL_TABLES]
    control = copy(CopyRequest(NAME, "later", "why"))(control)
    assert [request.table for request in control.copies] == [ALL_TABLES, NAME]
