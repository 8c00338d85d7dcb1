"""A copy that is under way, or was cancelled, is not what readers have: what they have is compared with the stream."""

from __future__ import annotations

import json
from collections.abc import Set
from types import SimpleNamespace
from typing import Any, cast

from lowwater.codec.avro import change_schema
from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.records.ids import SchemaId
from lowwater.records.positions import Order
from lowwater.records.types import CopyRequest, TableCopy
from lowwater.records.wire import header
from lowwater_extractor.api import PlannedTable, SeenVersions, StaleTable
from lowwater_extractor.snapshot.copies import Copies

V1 = TableSchema("db", "n", "t", 1, (Column("id", INT64), Column("a", INT64)), ("id",))
V2 = TableSchema("db", "n", "t", 2, (Column("id", INT64), Column("b", INT64)), ("id",))
V3 = TableSchema("db", "n", "t", 3, (Column("id", INT64), Column("c", INT64)), ("id",))
NAME = V1.full_name
READABLE = TableCopy(NAME, "old", 1, 1, Order.mark(5), Order.mark(5), is_copied=True)


class _Landed:
    def poll(self) -> None:
        pass

    def has_all(self, copy: TableCopy) -> bool:
        return copy.copy == "old"


class _View:
    """As of 50."""

    def __init__(self, version: TableSchema) -> None:
        self._planned = [PlannedTable(version, Order.mark(50), [(b"1", 10)])]

    def plan(self, _: int) -> list[PlannedTable]:
        found, self._planned = self._planned, []
        return found

    def keep(self, _: list[str]) -> list[str]:
        return []

    def close(self) -> None:
        pass


def _copies(known: list[TableCopy], planned: TableSchema = V1) -> Copies:
    nothing: Set[str] = set()
    source = SimpleNamespace(
        tables_to_copy=lambda: [V1], begin_view=lambda _: _View(planned), filled_columns=lambda _: nothing
    )
    encoders = SimpleNamespace(
        versioned=lambda table: table, announce=lambda _: None, returned_columns=lambda *_: nothing,
        encoder=lambda table: SimpleNamespace(header=header(SchemaId(table.version))),
    )  # fmt: skip
    texts = {version.version: json.dumps(change_schema(version)) for version in (V1, V2, V3)}
    headers = {"Copied": b"h", "Stale": b"s"}
    return Copies(
        "db", cast(Any, source), known, cast(Any, _Landed()), cast(Any, encoders), headers, texts.__getitem__, 0
    )


def _see(copies: Copies, version: TableSchema, at: int) -> None:
    seen = SeenVersions()
    seen[NAME] = version
    copies.look_at_versions(seen, Order.mark(at))


def _requested(planned: TableSchema = V1) -> Copies:
    copies = _copies([READABLE], planned)
    copies.request([CopyRequest(NAME, "again", "")])
    assert copies.plan(Order.mark(40), is_at_end=True)
    return copies


def test_version_after_a_cancelled_copy_makes_the_table_stale_and_copies_it() -> None:
    copies = _requested()
    copies.request([CopyRequest(NAME, "stop", "too large", is_cancel=True)])
    copies.plan(Order.mark(50), is_at_end=True)
    _see(copies, V2, 60)
    assert copies.pending_stale
    again = _copies(list(copies.copies.values()), V2)
    again.request([CopyRequest(NAME, "stop", "too large", is_cancel=True)])
    again.pending_stale.take()
    assert again.plan(Order.mark(70), is_at_end=True), "the command to cancel was answered, and meant another copy"


def test_version_that_the_copy_under_way_has_makes_the_one_before_it_stale() -> None:
    copies = _requested(V2)
    _see(copies, V2, 45)
    assert copies.pending_stale
    copies.pending_stale.take()
    assert not copies.plan(Order.mark(46), is_at_end=True), "the copy that is under way has it"


def test_rows_that_changed_below_the_copy_under_way_make_the_one_before_it_stale() -> None:
    copies = _requested()
    copies.announce_stale({NAME: StaleTable(Order(45, 1), "partition truncated")})
    assert copies.pending_stale


def test_second_version_before_a_copy_is_planned_moves_its_plan() -> None:
    copies = _copies([READABLE], V3)
    _see(copies, V2, 10)
    _see(copies, V3, 20)
    copies.pending_stale.take()
    assert not copies.plan(Order.mark(10), is_at_end=True)
    assert copies.plan(Order.mark(20), is_at_end=True)
