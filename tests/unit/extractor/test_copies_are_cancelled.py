"""An operator's word ends a copy wherever it is; what was readable stays so, and it does not begin anew by itself."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.records.ids import SchemaId
from lowwater.records.positions import Order
from lowwater.records.types import CopyRequest, TableCopy
from lowwater.records.wire import header
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.snapshot.copies import Copies

TABLE = TableSchema("db", "n", "t", 1, (Column("id", INT64),), ("id",))
NAME = TABLE.full_name
HEADERS = {"Copied": b"h", "Stale": b"s"}
AT = Order.mark(5)
CANCEL = CopyRequest(NAME, "stop", "too large", is_cancel=True)


class Landed:
    """Nothing ever lands here, but for what a test says."""

    def __init__(self) -> None:
        self.whole: set[str] = set()

    def poll(self) -> None:
        return None

    def has_all(self, copy: TableCopy) -> bool:
        return copy.copy in self.whole

    def close(self) -> None:
        return None


class View:
    def __init__(self) -> None:
        self.tables = [PlannedTable(TABLE, AT, [(b"1", 10), (b"2", 10)])]

    def plan(self, _tables_max: int) -> list[PlannedTable]:
        found, self.tables = self.tables, []
        return found

    def keep(self, _tables: Sequence[str]) -> list[str]:
        return []

    def close(self) -> None:
        return None


def _copies(known: Sequence[TableCopy] = (), landed: Landed | None = None) -> Copies:
    source: Any = SimpleNamespace(
        tables_to_copy=lambda: [TABLE], begin_view=lambda _tables: View(), filled_columns=lambda _table: set()
    )
    encoders: Any = SimpleNamespace(
        versioned=lambda table: table,
        announce=lambda _tables: None,
        encoder=lambda _table: SimpleNamespace(header=header(SchemaId(7))),
    )
    return Copies("db", source, known, landed or Landed(), encoders, HEADERS, lambda _id: "", 0)


def test_one_that_is_planned_is_closed_and_stays_so_over_a_restart() -> None:
    copies = _copies()
    planned = copies.plan(AT, is_at_end=True)
    assert [chunk.chunk for chunk in planned] == [1, 2]
    copies.request([CANCEL])
    (closing,) = copies.plan(AT, is_at_end=True)
    assert (closing.chunks, closing.replaces) == (0, planned[0].copy)
    assert copies.is_changed
    kept = list(copies.copies.values())
    assert (kept[0].is_cancelled, kept[0].request) == (True, "stop")
    again = _copies(kept)
    again.request([CANCEL])
    assert again.plan(AT, is_at_end=True) == []
    assert not again.is_any_whole
    assert again.status() == {"tables": 0, "copied": 0, "waiting": 0}


def test_one_that_was_not_planned_yet_never_is() -> None:
    copies = _copies()
    copies.request([CANCEL])
    assert copies.plan(AT, is_at_end=True) == []
    assert copies.copies[NAME].is_cancelled


def test_the_copy_before_stays_readable_where_only_the_next_one_is_cancelled() -> None:
    done = TableCopy(NAME, "old", 2, 7, AT, AT, is_copied=True)
    copies = _copies([done])
    copies.request([CopyRequest(NAME, "again", "")])
    copies.request([CANCEL])
    assert copies.plan(AT, is_at_end=True) == []
    assert (copies.copies[NAME].is_copied, copies.copies[NAME].is_cancelled) == (True, False)


def test_another_word_begins_it_anew() -> None:
    copies = _copies([TableCopy(NAME, "old", 2, 7, AT, AT, is_copied=False, request="stop", is_cancelled=True)])
    copies.request([CopyRequest(NAME, "again", "")])
    copies.plan(AT, is_at_end=True)
    assert [chunk.replaces for chunk in copies.plan(AT, is_at_end=True)] in ([], ["", ""])
    assert copies.copies[NAME].request == "again"
    assert not copies.copies[NAME].is_cancelled
