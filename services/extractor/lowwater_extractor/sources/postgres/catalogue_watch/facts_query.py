"""Reads table facts from catalogue rows only. These queries take no table locks and never wait for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import sql

from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.catalogue_watch.table_facts import (
    ColumnFacts,
    PartFacts,
    TableFacts,
    TypeFacts,
    fingerprint,
)
from lowwater_extractor.sources.postgres.types import FIRST_USER_OID

#: partitions: the transaction that attached each, whether a detach is pending, and its filenode. A partition made by
#: CREATE TABLE … PARTITION OF has user and system columns written by the same command; ATTACH PARTITION rewrites the
#: user columns in a later command
_PARTS = """
WITH RECURSIVE parts(root, oid, attached, leaving) AS (
    SELECT i.inhparent, i.inhrelid, i.xmin, i.inhdetachpending FROM pg_inherits i WHERE i.inhparent = ANY(%s::oid[])
    UNION ALL SELECT p.root, i.inhrelid, i.xmin, i.inhdetachpending
    FROM pg_inherits i JOIN parts p ON i.inhparent = p.oid)
SELECT p.root, p.oid, p.attached::text || '-' || p.leaving || '-' || c.relfilenode,
       EXISTS (SELECT FROM pg_attribute s JOIN pg_attribute a ON a.attrelid = s.attrelid AND a.attnum > 0
               WHERE s.attrelid = p.oid AND s.attnum = -1 AND s.xmin = p.attached
                 AND a.xmin = s.xmin AND a.cmin = s.cmin),
       -- a foreign table's rows are in another server's log
       c.relpersistence = 'p' AND c.relkind <> 'f', n.nspname || '.' || c.relname,
       coalesce((SELECT array_agg(a.attname::text) FROM pg_attribute a
                 WHERE a.attrelid = p.oid AND a.atthasmissing), '{}')
FROM parts p JOIN pg_class c ON c.oid = p.oid JOIN pg_namespace n ON n.oid = c.relnamespace"""

_COLUMNS = """
SELECT attrelid, attnum, attname::text, NOT attisdropped AND attgenerated = '', xmin::text,
       atthasdef OR atthasmissing OR attidentity <> '', atttypid
FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 ORDER BY attrelid, attnum"""

_TABLES = """
SELECT c.oid, c.relfilenode, coalesce((SELECT max(r.oid) FROM pg_publication_rel r JOIN pg_publication p
    ON p.oid = r.prpubid WHERE r.prrelid = c.oid AND p.pubname = ANY(%s)), 0)
FROM pg_class c WHERE c.oid = ANY(%s::oid[])"""

#: the given types and all types that they consist of. Enum labels include their xmin, so that a label that was renamed
#: and renamed back is detected
_TYPES = """
WITH RECURSIVE used(oid) AS (
    SELECT unnest(%s::oid[])
    UNION SELECT e.oid FROM used u CROSS JOIN LATERAL (
        SELECT t.typbasetype FROM pg_type t WHERE t.oid = u.oid
        UNION ALL SELECT t.typelem FROM pg_type t WHERE t.oid = u.oid
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE u.oid IN (r.rngtypid, r.rngmultitypid)
        UNION ALL SELECT a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
                  WHERE t.oid = u.oid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped) e(oid)
    WHERE e.oid >= %s)
SELECT t.oid, t.typrelid, ARRAY[t.typbasetype, t.typelem]
       || coalesce((SELECT array_agg(r.rngsubtype) FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)), '{}'),
       coalesce((SELECT string_agg(a.attnum || ':' || a.atttypid || ':' || a.atttypmod, ',' ORDER BY a.attnum)
                 FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), ''),
       coalesce((SELECT array_agg(a.atttypid) FROM pg_attribute a
                 WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
       coalesce((SELECT array_agg(e.oid || '=' || e.xmin || '=' || e.enumlabel)
                 FROM pg_enum e WHERE e.enumtypid = t.oid), '{}')
FROM used u JOIN pg_type t ON t.oid = u.oid"""

#: one hash per table over everything that `read_facts` reads. hash_record_extended() is hashed once more before it is
#: summed, because it is linear in its parts: without that, two tables that swap names would leave the sum unchanged
_PRINTS = """
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relnamespace, c.relkind, c.relreplident, c.relfilenode
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p' AND {wanted}),
parts(root, oid, attached, leaving) AS (
    SELECT w.oid, i.inhrelid, i.xmin, i.inhdetachpending
    FROM pg_catalog.pg_inherits i JOIN wanted w ON w.oid = i.inhparent WHERE w.relkind = 'p'
    UNION ALL SELECT p.root, i.inhrelid, i.xmin, i.inhdetachpending
    FROM pg_catalog.pg_inherits i JOIN parts p ON i.inhparent = p.oid),
prints(oid, print) AS (
    SELECT w.oid, hashint8extended(hash_record_extended(ROW(w.*), 0), 0)::numeric FROM wanted w
    UNION ALL SELECT a.attrelid, sum(hashint8extended(hash_record_extended(ROW(a.attrelid, a.attnum, a.xmin), 1), 0))
    FROM pg_catalog.pg_attribute a JOIN wanted w ON w.oid = a.attrelid WHERE a.attnum > 0 GROUP BY 1
    UNION ALL SELECT i.indrelid, sum(hashint8extended(hash_record_extended(ROW(i.indexrelid, i.xmin), 2), 0))
    FROM pg_catalog.pg_index i JOIN wanted w ON w.oid = i.indrelid
    WHERE i.indisprimary OR i.indisreplident GROUP BY 1
    UNION ALL SELECT p.root, sum(hashint8extended(hash_record_extended(
        ROW(p.root, p.oid, p.attached, p.leaving, c.relfilenode, c.relpersistence, c.relreplident), 3), 0))
    FROM parts p JOIN pg_catalog.pg_class c ON c.oid = p.oid GROUP BY 1
    UNION ALL SELECT r.prrelid, sum(hashint8extended(hash_record_extended(ROW(r.oid, r.xmin), 4), 0))
    FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
    WHERE p.pubname = ANY({publications}) GROUP BY 1)"""
_BY_TABLE = sql.SQL(
    _PRINTS + " SELECT oid, sum(print)::text FROM prints WHERE oid IN (SELECT oid FROM wanted) GROUP BY oid"
)
#: hash of all tables; hash of publications and types; the query's snapshot; the query's duration in seconds
_DIGEST = sql.SQL(
    _PRINTS
    + """
SELECT (SELECT sum(print) || '/' || count(*) FROM prints),
    concat_ws('/',
        (SELECT sum(hashint8extended(hash_record_extended(ROW(p.oid, p.xmin), 0), 0)) FROM pg_catalog.pg_publication p
         WHERE p.pubname = ANY({publications})),
        (SELECT sum(hashint8extended(hash_record_extended(ROW(e.oid, e.xmin), 0), 0)) FROM pg_catalog.pg_enum e),
        (SELECT sum(hashint8extended(hash_record_extended(ROW(a.attrelid, a.attnum, a.xmin), 0), 0))
         FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = ANY({types}::oid[]))),
    pg_current_snapshot(),
    extract(epoch FROM clock_timestamp() - statement_timestamp())"""
)

_SYSTEM = ["pg_catalog", "information_schema"]


class Facts(NamedTuple):
    """Facts read in one snapshot."""

    tables: list[TableFacts]
    #: (partition, table) for partitions whose changes are not in the log
    unlogged: list[tuple[str, str]]
    #: oids of the relations of composite types that columns use: the digest includes their attributes
    composites: list[int]


def digest_query(patterns: Sequence[str], publications: Sequence[str], composites: Sequence[int]) -> sql.Composed:
    types = sql.SQL("'{{{}}}'").format(sql.SQL(",".join(map(str, composites))))
    return _DIGEST.format(wanted=_wanted(patterns), publications=sql.Literal(list(publications)), types=types)


def prints_query(patterns: Sequence[str], publications: Sequence[str]) -> sql.Composed:
    """Return a query of the hash per table oid. The digest contains the sum of the same hashes."""
    return _BY_TABLE.format(wanted=_wanted(patterns), publications=sql.Literal(list(publications)))


def _wanted(patterns: Sequence[str]) -> sql.Composed:
    schemas = [pattern[:-2] for pattern in patterns if pattern.endswith(".*")]
    if "*" in schemas:
        return sql.SQL("n.nspname <> ALL({})").format(sql.Literal(_SYSTEM))
    return sql.SQL("(n.nspname = ANY({}) OR n.nspname || '.' || c.relname = ANY({}))").format(
        sql.Literal(schemas or [""]), sql.Literal(list(patterns))
    )


def read_facts(catalogue: DatabaseCatalogue, tables: Sequence[CatalogueTable], publications: Sequence[str]) -> Facts:
    """`tables`: read in the same snapshot."""
    oids = [table.oid for table in tables]
    columns: dict[int, list[tuple[Any, ...]]] = {oid: [] for oid in oids}
    for row in catalogue.ask(_COLUMNS, oids):
        columns[row[0]].append(row)
    used = {row[6] for rows in columns.values() for row in rows if row[3] and row[6] >= FIRST_USER_OID}
    types = _types(catalogue, sorted(used)) if used else {}
    classes = {oid: (filenode, published) for oid, filenode, published in catalogue.ask(_TABLES, [*publications], oids)}
    parts: dict[int, list[PartFacts]] = {}
    missing: dict[int, set[str]] = {}
    roots = {table.oid: table.name for table in tables if table.kind == "p"}
    unlogged = []
    for root, oid, version, is_born, is_logged, name, filled in catalogue.ask(_PARTS, list(roots)) if roots else ():
        parts.setdefault(root, []).append(PartFacts(oid, version, is_born))
        missing.setdefault(root, set()).update(filled)
        if not is_logged:
            unlogged.append((name, roots[root]))
    found = [
        _facts(
            table,
            columns[table.oid],
            *classes[table.oid],
            parts.get(table.oid, []),
            missing.get(table.oid, set()),
            types,
        )
        for table in tables
        if table.oid in classes
    ]
    return Facts(found, unlogged, sorted({type_.relation for type_ in types.values() if type_.relation}))


def _facts(
    table: CatalogueTable,
    rows: Sequence[tuple[Any, ...]],
    filenode: int,
    published: int,
    parts: Sequence[PartFacts],
    missing: set[str],
    types: Mapping[int, _Type],
) -> TableFacts:
    columns = {row[1]: ColumnFacts(row[2], row[5] or row[2] in missing) for row in rows if row[3]}
    numbers = {column.name: attnum for attnum, column in columns.items()}
    version = fingerprint(*(f"{row[1]}:{row[4]}" for row in rows if row[3]))
    used = _closure({row[6] for row in rows if row[3]}, types)
    return TableFacts(
        table.name, table.oid, 0 if table.kind == "p" else filenode, published,
        tuple(numbers[name] for name in table.schema.key if name in numbers),
        columns, max((row[1] for row in rows), default=0), version, tuple(parts),
        {oid: types[oid].facts for oid in sorted(used)},
    )  # fmt: skip


class _Type(NamedTuple):
    facts: TypeFacts
    relation: int
    made_of: frozenset[int]


def _types(catalogue: DatabaseCatalogue, used: Sequence[int]) -> dict[int, _Type]:
    found = {}
    for oid, relation, made_of, shape, attributes, labels in catalogue.ask(_TYPES, list(used), FIRST_USER_OID):
        by_oid = {int(number): label for number, _, label in (text.partition("=") for text in labels)}
        found[oid] = _Type(TypeFacts(by_oid, shape), relation, frozenset((*made_of, *attributes)))
    return found


def _closure(used: set[int], types: Mapping[int, _Type]) -> set[int]:
    found: set[int] = set()
    left = [oid for oid in used if oid in types]
    while left:
        oid = left.pop()
        if oid not in found:
            found.add(oid)
            left += [part for part in types[oid].made_of if part in types]
    return found
