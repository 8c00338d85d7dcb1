"""Pieces of tables that are copied as units: how a table is cut, and what the `bounds` of a chunk say.

A heap is cut by its pages (a range of CTIDs is read without an index, and costs only its own pages). What is no heap
is cut by a whole number at the head of its key, or not at all. The first piece has no lower bound and the last no upper
one, so that the pieces together are the table, whatever it was taken for when it was cut.
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

#: rows may be wide: a chunk of them aims at no more than this, with what is stored out of line
BYTES_PER_CHUNK_MAX = 1 << 30
#: ranges of a key say nothing about how many rows are in them
KEY_CHUNKS_MAX = 1_000

_INTEGERS = ("int2", "int4", "int8")

_RELATION = """
SELECT c.oid, c.relkind, coalesce(a.amname, '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am a ON a.oid = c.relam
WHERE n.nspname = %s AND c.relname = %s"""

#: as the snapshot has them: pg_partition_tree() would tell what is there now, and wait for locks
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
    """What one chunk reads: rows of one relation, from `from_…` on, up to but without `to_…`. None: no bound."""

    schema: str
    #: the relation that is read: of a partitioned table, a partition
    table: str
    kind: BoundsKind = BoundsKind.WHOLE
    #: exported by the session that planned; empty: whatever the reader sees
    snapshot: str = ""
    from_page: int | None = None
    to_page: int | None = None
    #: columns, and values as the server writes them
    key: tuple[str, ...] = ()
    from_key: tuple[str, ...] | None = None
    to_key: tuple[str, ...] | None = None
    #: rows of tables that inherit from it are theirs, not its own
    only: bool = False
    #: which relation it was that had this name; 0: not known
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
                hint="was it planned by a newer lowwater? upgrade Spark's side, or ask for a new copy",
            ) from error

    @property
    def where(self) -> sql.Composable:
        """Behind WHERE."""
        found = [*self._pages(), *self._keys()]
        return sql.SQL(" AND ").join(found) if found else sql.SQL("true")

    def _pages(self) -> Iterator[sql.Composable]:
        for page, operator in ((self.from_page, ">="), (self.to_page, "<")):
            if page is not None:
                yield sql.SQL("ctid {} {}::tid").format(sql.SQL(operator), sql.Literal(f"({page},0)"))

    def _keys(self) -> Iterator[sql.Composable]:
        """A row with a null in its key is in exactly one range as well: the last that it is not below."""
        if not self.key:
            return
        key = _row([sql.Identifier(column) for column in self.key])
        if self.from_key is not None:
            yield sql.SQL("{} >= {}").format(key, _row([sql.Literal(v) for v in self.from_key]))
        if self.to_key is not None:
            yield sql.SQL("({} >= {}) IS NOT TRUE").format(key, _row([sql.Literal(v) for v in self.to_key]))

    @property
    def qualified(self) -> str:
        """For a cast to regclass."""
        return sql.Identifier(self.schema, self.table).as_string(None)

    @property
    def relation(self) -> sql.Composable:
        """Behind FROM."""
        return sql.SQL("ONLY {}" if self.only else "{}").format(sql.Identifier(self.schema, self.table))


def _row(parts: list[sql.Composable]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(", ").join(parts)) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    bounds: Bounds
    rows_estimate: int


def page_cuts(pages: int, rows: int, size: int, rows_per_chunk: int) -> list[int]:
    """Pages at which the chunks but the first begin; none for a table that is one chunk."""
    wanted = max(-(-rows // max(1, rows_per_chunk)), -(-size // BYTES_PER_CHUNK_MAX), 1)
    # so that the last chunk is about as large as the others
    step = max(1, -(-pages // wanted))
    return list(range(step, pages, step))


def number_cuts(low: int, high: int, rows: int, rows_per_chunk: int) -> list[int]:
    """The same for a whole number that goes from `low` to `high`, both included."""
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
    """At least one, also of an empty table; none of one that was dropped since the snapshot.

    Nothing here needs to be exact: bounds cover what comes later, too.

    No lock outlives this call, also in a transaction that is kept open: a copy takes hours, and must not hold up an
    ALTER TABLE. What such a one does to the rows is noticed when they are read.
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
    # one without partitions is empty, and is copied as such
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
    """Of a relation that has rows of its own."""
    only = relkind == "r"
    whole = Bounds(whole.schema, whole.table, snapshot=whole.snapshot, only=only, oid=oid)
    if relkind in ("r", "m") and method == "heap":
        sizes = connection.execute(_SIZES, (oid, oid)).fetchone()
        assert sizes is not None
        pages, size = sizes
        if pages is None:
            # dropped since the snapshot, which still shows it
            return []
        # the planner guesses some rows for a table without pages that was never looked at
        rows = _rows_estimate(connection, whole) if pages else 0
        cuts = page_cuts(pages, rows, size, rows_per_chunk)
        return page_chunks(whole, cuts, rows) if cuts else [PlannedChunk(whole, rows)]
    rows = _rows_estimate(connection, whole)
    cuts = _key_cuts(connection, oid, whole, key, rows, rows_per_chunk)
    return key_chunks(whole, key[0], cuts, rows) if cuts else [PlannedChunk(whole, rows)]


def _rows_estimate(connection: psycopg.Connection[Any], whole: Bounds) -> int:
    """The planner's: the density of the last analysis times the pages that there are now."""
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
