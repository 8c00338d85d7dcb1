"""Queries of the database's catalogue for properties that the stream lacks, over a separate connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg

from lowwater.codec.table import Column, TableSchema
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect, query
from lowwater_extractor.sources.postgres.types import FIRST_USER_OID, PgType, column_type

_TYPE = """
SELECT t.typname, t.typtype, t.typbasetype, t.typtypmod, t.typelem, t.typdelim, t.typcategory, t.typndims
FROM pg_type t WHERE t.oid = %s"""


#: in the query of the tables, not after it: a table may be dropped in between, and would seem to have no key
_COLUMNS = """coalesce((
           SELECT json_agg(json_build_array(attname, atttypid::int8, atttypmod, attndims, attnum) ORDER BY attnum)
           FROM pg_attribute
           WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''), '[]')"""

_TABLES = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident,
       coalesce((SELECT i.indkey::int2[] FROM pg_index i
                 WHERE i.indrelid = c.oid AND (c.relreplident = 'i' AND i.indisreplident
                       OR c.relreplident = 'f' AND i.indisprimary
                       -- one that is deferred does not tell rows apart while a transaction runs
                       OR c.relreplident NOT IN ('i', 'f') AND i.indisprimary AND i.indimmediate)), '{{}}'),
       -- not pg_partition_tree, which waits for locks on partitions
       NOT EXISTS (WITH RECURSIVE parts AS (
                       SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid AND c.relkind = 'p'
                       UNION ALL SELECT i.inhrelid FROM pg_inherits i JOIN parts ON i.inhparent = parts.inhrelid)
                   SELECT FROM parts JOIN pg_class l ON l.oid = parts.inhrelid
                   WHERE l.relkind = 'r' AND NOT (l.relreplident = 'f' OR EXISTS (
                       SELECT FROM pg_index i WHERE i.indrelid = l.oid AND (l.relreplident = 'i' AND i.indisreplident
                           OR l.relreplident = 'd' AND i.indisprimary AND i.indimmediate)
                       -- else a key that changes alone would come without the old one
                       AND NOT EXISTS (
                           SELECT FROM pg_index k
                           JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (k.indkey)
                           WHERE k.indrelid = c.oid AND (c.relreplident = 'i' AND k.indisreplident
                                 OR c.relreplident <> 'i' AND k.indisprimary)
                             AND a.attname NOT IN (SELECT b.attname FROM pg_attribute b
                                                   WHERE b.attrelid = l.oid AND b.attnum = ANY (i.indkey)))))),
       {_COLUMNS}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND (%s::oid[] IS NULL OR c.oid = ANY(%s::oid[]))
ORDER BY 2, 3"""

#: relations that SELECT can read, with the same result columns; logging does not matter here
_READABLE = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind, 'd',
       coalesce((SELECT i.indkey::int2[] FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), '{{}}'), true,
       {_COLUMNS}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 2, 3"""

_DIMENSIONS = "SELECT attname, attndims FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND attndims > 0"

_KEY = """
SELECT a.attname FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k(num, place)
JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = k.num
WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.place"""


_FILLED = """
SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
  AND (a.atthasdef OR a.atthasmissing OR a.attidentity <> '')"""

#: reads catalogue rows only: pg_partition_tree() would wait for sessions that alter a partition, and
#: pg_relation_filenode() answers from the session's catalogue cache, which is not refreshed under an open snapshot
_FILENODES = """
WITH RECURSIVE tree(name, oid) AS (
    SELECT n.nspname || '.' || c.relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname || '.' || c.relname = ANY(%s)
    UNION SELECT tree.name, i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT name, tree.oid, c.relfilenode FROM tree JOIN pg_class c ON c.oid = tree.oid WHERE c.relfilenode <> 0"""


class Seen(NamedTuple):
    """The transactions that are visible in a snapshot."""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Seen:
        """Parse the text form of pg_snapshot: `xmin:xmax:xip_list`."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(int(number) % (1 << 32) for number in running.split(",") if number))

    def shows(self, xid: int) -> bool:
        # the log has 32-bit transaction ids, the snapshot 64-bit ones
        is_ahead = (xid - self.xmax) % (1 << 32) < 1 << 31
        return not is_ahead and xid not in self.running


class DatabaseCatalogue:
    """Catalogue queries. Types are cached: an oid is not reused while the type is in use."""

    def __init__(self, config: PostgresConfig, source: str, connection: psycopg.Connection[Any] | None = None) -> None:
        self._config = config
        self._source = source
        self._connection = connection
        self._types: dict[int, PgType] = {}

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._config, self._source)
        return self._connection

    def ask(self, text: Any, *values: object) -> list[tuple[Any, ...]]:
        return query(self.connection, self._source, text, *values)

    def type(self, oid: int) -> PgType:
        found = self._types.get(oid)
        if found is None:
            found = self._type(oid)
            if found.is_known:
                self._types[oid] = found
        return found

    def _type(self, oid: int) -> PgType:
        rows = self.ask(_TYPE, oid)
        if not rows:
            # dropped together with its table: its values are captured as text
            return PgType(oid, "text" if oid >= FIRST_USER_OID else "unknown", is_known=False)
        name, kind, base, typmod, item, delimiter, category, dimensions = rows[0]
        if kind == "d":
            of = self.type(base)
            return replace(
                of, typmod=typmod if of.typmod < 0 else of.typmod, dimensions=of.dimensions or dimensions
            )  # fmt: skip
        # int2vector and oidvector have this category, too, but another text form
        if category == "A" and item and not name.endswith("vector"):
            return PgType(oid, name, self.type(item), delimiter)
        return PgType(oid, name)

    def snapshot(self) -> Seen:
        ((text,),) = self.ask("SELECT pg_current_snapshot()::text")
        return Seen.parse(text)

    def is_visible(self, xid: int) -> bool:
        """Whether a decoded transaction is visible to other sessions: it may still wait for a synchronous standby."""
        return self.snapshot().shows(xid)

    def dimensions(self, relation: int) -> dict[str, int]:
        return dict(self.ask(_DIMENSIONS, relation))

    def primary_key(self, relation: int) -> tuple[str, ...]:
        return tuple(name for (name,) in self.ask(_KEY, relation, relation))

    def filled_columns(self, namespace: str, table: str) -> set[str]:
        return {name for (name,) in self.ask(_FILLED, namespace, table)}

    def filenodes(self, tables: Sequence[str]) -> dict[str, dict[int, int]]:
        """Return table → (oid → filenode) of the table and its partitions, as of the connection's snapshot.

        A rewrite or truncate changes the filenode.
        """
        found: dict[str, dict[int, int]] = {}
        for name, oid, filenode in self.ask(_FILENODES, list(tables)):
            found.setdefault(name, {})[oid] = filenode
        return found

    def tables(self, oids: Sequence[int] | None = None) -> list[CatalogueTable]:
        """Return the tables that can be captured, with columns; only those with these oids if given."""
        given = None if oids is None else list(oids)
        return [self._table(row) for row in self.ask(_TABLES, given, given)]

    def readable(self, is_meant: Callable[[str, str], bool]) -> list[CatalogueTable]:
        """Return tables, views and foreign tables for which `is_meant(name, relkind)` is true."""
        return [self._table(row) for row in self.ask(_READABLE) if is_meant(f"{row[1]}.{row[2]}", row[3])]

    def _table(self, row: tuple[Any, ...]) -> CatalogueTable:
        oid, namespace, name, kind, identity, key_numbers, parts_have_identity, columns = row
        as_text = set(self._config.as_text)
        made, pg_types = [], {}
        for column, type_oid, typmod, dimensions, _ in columns:
            type_ = self.type(type_oid)
            is_text = f"{namespace}.{name}.{column}" in as_text
            made.append(Column(column, column_type(type_, typmod, dimensions, as_text=is_text).type))
            pg_types[column] = (type_, typmod, dimensions)
        names = {number: column for column, _, _, _, number in columns}
        key = tuple(names[number] for number in key_numbers if number in names)
        # as in relation messages, which flag key columns in table order
        key = key if identity == "f" else tuple(column.name for column in made if column.name in key)
        schema = TableSchema(self._source, namespace, name, 0, tuple(made), () if identity == "n" else key)
        return CatalogueTable(oid, identity, schema, pg_types, parts_have_identity, kind)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class CatalogueTable:
    def __init__(
        self, oid: int, identity: str, schema: TableSchema, pg_types: dict[str, tuple[PgType, int, int]],
        parts_have_identity: bool = True, kind: str = "r",
    ) -> None:  # fmt: skip
        self.oid = oid
        #: pg_class.relkind: r, p, v, m or f
        self.kind = kind
        self.identity = identity
        self.schema = schema
        #: column → type, modifier, dimensions
        self.pg_types = pg_types
        self._parts_have_identity = parts_have_identity

    @property
    def name(self) -> str:
        return self.schema.full_name

    @property
    def has_identity(self) -> bool:
        """Whether the log identifies updated and deleted rows, by key or full row; checked for every partition."""
        return (bool(self.schema.key) or self.identity == "f") and self._parts_have_identity
