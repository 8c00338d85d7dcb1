"""Splits tables into chunks, the units of a copy, and defines the `bounds` of a chunk.

A heap is split by pages: a TID range scan needs no index and reads only its own pages. Other relations are split by the
first key column if it is an integer, or not at all. The first chunk has no lower bound and the last no upper bound, so
the chunks cover the whole table even if the estimates used for planning are wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql

from lowwater.errors import CodecError, SourceError

#: target limit for the size of a chunk, including TOAST data
BYTES_PER_CHUNK_MAX = 1 << 30
#: limits the number of key ranges, because the rows in a range are unknown
KEY_CHUNKS_MAX = 1_000

_INTEGERS = ("int2", "int4", "int8")

_RELATION = """
SELECT c.oid, c.relkind, coalesce(a.amname, '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am a ON a.oid = c.relam
WHERE n.nspname = %s AND c.relname = %s"""

#: as of the snapshot: pg_partition_tree() would return the current partitions, and wait for locks
_LEAVES = """
WITH RECURSIVE parts AS (
    SELECT inhrelid FROM pg_inherits WHERE inhparent = %s::oid AND NOT inhdetachpending
    UNION ALL SELECT i.inhrelid FROM pg_inherits i JOIN parts ON i.inhparent = parts.inhrelid
    WHERE NOT i.inhdetachpending)
SELECT c.oid, n.nspname, c.relname, c.relkind, coalesce(a.amname, '')
FROM parts JOIN pg_class c ON c.oid = parts.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am a ON a.oid = c.relam WHERE c.relkind <> 'p' ORDER BY 2, 3"""

_SIZES = """
SELECT pg_relation_size(%s::oid::regclass, 'main') / current_setting('block_size')::int8,
       pg_table_size(%s::oid::regclass)"""

_TYPE = """
SELECT t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attname = %s AND NOT a.attisdropped"""


class BoundsKind(StrEnum):
    CTID = "ctid"
    KEY = "key"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rows of one chunk: from `from_…` (inclusive) to `to_…` (exclusive) of one relation. None: no bound."""

    schema: str
    #: the relation to read: a leaf partition if the table is partitioned
    table: str
    kind: BoundsKind = BoundsKind.WHOLE
    #: snapshot exported by the planning session; empty: the reader uses its own
    snapshot: str = ""
    from_page: int | None = None
    to_page: int | None = None
    #: key columns; the values below are in the server's text form
    key: tuple[str, ...] = ()
    from_key: tuple[str, ...] | None = None
    to_key: tuple[str, ...] | None = None
    #: read FROM ONLY: rows of inheriting tables belong to those tables
    only: bool = False
    #: oid of the relation at planning; 0: unknown
    oid: int = 0

    def encode(self) -> bytes:
        found = {name: value for name, value in asdict(self).items() if value not in (None, (), "")}
        return json.dumps(found).encode()

    @classmethod
    def decode(cls, data: bytes) -> Bounds:
        try:
            found: dict[str, Any] = json.loads(data)
            for name in ("key", "from_key", "to_key"):
                if name in found:
                    found[name] = tuple(found[name])
            return cls(**{**found, "kind": BoundsKind(found["kind"])})
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                f"a chunk's bounds cannot be read: {error}",
                hint="was it planned by a newer lowwater? upgrade lowwater_spark, or request a new copy",
            ) from error

    @property
    def where(self) -> sql.Composable:
        """The condition after WHERE."""
        found = [*self._pages(), *self._keys()]
        return sql.SQL(" AND ").join(found) if found else sql.SQL("true")

    def _pages(self) -> Iterator[sql.Composable]:
        for page, operator in ((self.from_page, ">="), (self.to_page, "<")):
            if page is not None:
                yield sql.SQL("ctid {} {}::tid").format(sql.SQL(operator), sql.Literal(f"({page},0)"))

    def _keys(self) -> Iterator[sql.Composable]:
        """Key conditions. IS NOT TRUE puts a row with a null in its key into exactly one range, too."""
        if not self.key:
            return
        key = _row([sql.Identifier(column) for column in self.key])
        if self.from_key is not None:
            yield sql.SQL("{} >= {}").format(key, _row([sql.Literal(v) for v in self.from_key]))
        if self.to_key is not None:
            yield sql.SQL("({} >= {}) IS NOT TRUE").format(key, _row([sql.Literal(v) for v in self.to_key]))

    @property
    def qualified(self) -> str:
        """The quoted name, for a cast to regclass."""
        return sql.Identifier(self.schema, self.table).as_string(None)

    @property
    def relation(self) -> sql.Composable:
        """The relation after FROM."""
        return sql.SQL("ONLY {}" if self.only else "{}").format(sql.Identifier(self.schema, self.table))


def _row(parts: list[sql.Composable]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(", ").join(parts)) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    bounds: Bounds
    rows_estimate: int


def page_cuts(pages: int, rows: int, size: int, rows_per_chunk: int) -> list[int]:
    """Return the first pages of all chunks except the first; empty for a single chunk."""
    wanted = max(-(-rows // max(1, rows_per_chunk)), -(-size // BYTES_PER_CHUNK_MAX), 1)
    # equal steps, so that the last chunk is about as large as the others
    step = max(1, -(-pages // wanted))
    return list(range(step, pages, step))


def number_cuts(low: int, high: int, rows: int, rows_per_chunk: int) -> list[int]:
    """Return the first values of all chunks except the first, for integers from `low` to `high` inclusive."""
    values = high - low + 1
    wanted = min(-(-rows // max(1, rows_per_chunk)), KEY_CHUNKS_MAX, values)
    return [low + values * number // wanted for number in range(1, wanted)]


def page_chunks(whole: Bounds, cuts: list[int], rows: int) -> list[PlannedChunk]:
    ends: list[int | None] = [None, *cuts, None]
    made = [
        Bounds(whole.schema, whole.table, BoundsKind.CTID, whole.snapshot, low, high, only=whole.only, oid=whole.oid)
        for low, high in pairwise(ends)
    ]
    return [PlannedChunk(bounds, -(-rows // len(made))) for bounds in made]


def key_chunks(whole: Bounds, column: str, cuts: list[int], rows: int) -> list[PlannedChunk]:
    ends: list[tuple[str, ...] | None] = [None, *((str(cut),) for cut in cuts), None]
    made = [
        Bounds(
            whole.schema, whole.table, BoundsKind.KEY, whole.snapshot, key=(column,),
            from_key=low, to_key=high, only=whole.only, oid=whole.oid,
        )
        for low, high in pairwise(ends)
    ]  # fmt: skip
    return [PlannedChunk(bounds, -(-rows // len(made))) for bounds in made]


def plan_chunks(
    connection: psycopg.Connection[Any],
    namespace: str,
    table: str,
    key: tuple[str, ...],
    rows_per_chunk: int,
    *,
    snapshot: str = "",
) -> list[PlannedChunk]:
    """Return the chunks of a table: at least one, none if the table was dropped since the snapshot.

    Estimates need not be exact, because the first and last chunk are unbounded.

    Locks are released before this returns, even inside an open transaction: a copy takes hours and must not block
    ALTER TABLE. Rewrites of the table are detected when the chunks are read.
    """
    with connection.transaction(force_rollback=True):
        return _plan(connection, namespace, table, key, rows_per_chunk, snapshot)


def _plan(
    connection: psycopg.Connection[Any],
    namespace: str,
    table: str,
    key: tuple[str, ...],
    rows_per_chunk: int,
    snapshot: str,
) -> list[PlannedChunk]:
    found = connection.execute(_RELATION, (namespace, table)).fetchone()
    if found is None:
        raise SourceError(
            f"there is no table {namespace}.{table}", hint="was it dropped or renamed? check `tables` of the source"
        )
    oid, relkind, method = found
    if relkind != "p":
        return _plan_one(
            connection, oid, Bounds(namespace, table, snapshot=snapshot), relkind, method, key, rows_per_chunk
        )
    planned: list[PlannedChunk] = []
    for leaf, schema, name, kind, leaf_method in connection.execute(_LEAVES, (oid,)).fetchall():
        whole = Bounds(schema, name, snapshot=snapshot)
        planned += _plan_one(connection, leaf, whole, kind, leaf_method, key, rows_per_chunk)
    # a table without partitions is empty and gets one empty chunk
    return planned or [PlannedChunk(Bounds(namespace, table, snapshot=snapshot), 0)]


def _plan_one(
    connection: psycopg.Connection[Any],
    oid: int,
    whole: Bounds,
    relkind: str,
    method: str,
    key: tuple[str, ...],
    rows_per_chunk: int,
) -> list[PlannedChunk]:
    """Plan a relation that stores rows itself."""
    only = relkind == "r"
    whole = Bounds(whole.schema, whole.table, snapshot=whole.snapshot, only=only, oid=oid)
    if relkind in ("r", "m") and method == "heap":
        sizes = connection.execute(_SIZES, (oid, oid)).fetchone()
        assert sizes is not None
        pages, size = sizes
        if pages is None:
            # dropped since the snapshot, in which it is still visible
            return []
        # for a table without pages that was never analyzed the planner assumes some rows
        rows = _rows_estimate(connection, whole) if pages else 0
        cuts = page_cuts(pages, rows, size, rows_per_chunk)
        return page_chunks(whole, cuts, rows) if cuts else [PlannedChunk(whole, rows)]
    rows = _rows_estimate(connection, whole)
    cuts = _key_cuts(connection, oid, whole, key, rows, rows_per_chunk)
    return key_chunks(whole, key[0], cuts, rows) if cuts else [PlannedChunk(whole, rows)]


def _rows_estimate(connection: psycopg.Connection[Any], whole: Bounds) -> int:
    """Return the planner's estimate: row density at the last ANALYZE times the current number of pages."""
    asked = sql.SQL("EXPLAIN (FORMAT JSON) SELECT 1 FROM {}").format(whole.relation)
    found = connection.execute(asked).fetchone()
    assert found is not None
    plan = found[0] if isinstance(found[0], list) else json.loads(found[0])
    return int(plan[0]["Plan"]["Plan Rows"])


def _key_cuts(
    connection: psycopg.Connection[Any],
    oid: int,
    whole: Bounds,
    key: tuple[str, ...],
    rows: int,
    rows_per_chunk: int,
) -> list[int]:
    if not key or rows <= rows_per_chunk:
        return []
    type_ = connection.execute(_TYPE, (oid, key[0])).fetchone()
    if type_ is None or type_[0] not in _INTEGERS:
        return []
    asked = sql.SQL("SELECT min({0}), max({0}) FROM {1}").format(sql.Identifier(key[0]), whole.relation)
    found = connection.execute(asked).fetchone()
    if found is None or found[0] is None:
        return []
    return number_cuts(found[0], found[1], rows, rows_per_chunk)
