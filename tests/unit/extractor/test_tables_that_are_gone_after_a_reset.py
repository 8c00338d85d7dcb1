"""A table that was dropped before the source began again is named stale: else the lake would show its rows for good."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.records.positions import Order
from lowwater.records.types import Stale, TableCopy
from lowwater_extractor.snapshot.copies import Copies
from lowwater_extractor.snapshot.stale import control_frame

TABLE = TableSchema("db", "n", "t", 1, (Column("id", INT64),), ("id",))
HEADERS = {"Copied": b"h", "Stale": b"s"}
GONE = TableCopy("n.gone", "c1", 1, 7, Order.mark(5), Order.mark(5), is_copied=True, generation=1)


class Landed:
    def poll(self) -> None:
        return None

    def has_all(self, copy: TableCopy) -> bool:
        return copy.is_copied

    def close(self) -> None:
        return None


def _stale(known: list[TableCopy], generation: int) -> list[tuple[bytes, bytes]]:
    source: Any = SimpleNamespace(tables_to_copy=lambda: [TABLE])
    encoders: Any = SimpleNamespace()
    copies = Copies("db", source, known, Landed(), encoders, HEADERS, lambda _id: "", generation)
    return copies.pending_stale.take()


def test_a_table_of_the_generation_before_that_is_gone_is_named() -> None:
    new = control_frame(b"s", Stale(0, ("n.t",), "it has not been copied yet"))
    gone = control_frame(b"s", Stale(0, ("n.gone",), "it no longer existed when the source was reset"))
    there = replace(GONE, table="n.t")
    assert _stale([GONE, there], 2) == [new, gone]


def test_one_of_this_generation_is_left_to_the_source() -> None:
    there = replace(GONE, table="n.t")
    assert _stale([GONE, there], 1) == []
