"""The tables of the mode `incremental`, and the checks that they can be read by a cursor, each with a fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from psycopg import sql

from lowwater.codec.table import TableSchema
from lowwater.errors import LowwaterError
from lowwater_extractor.api import Check
from lowwater_extractor.incremental.cursor_checks import (
    advise_indexes,
    check_columns,
    check_keys,
    check_overlaps,
    check_tables,
    is_whole,
    refuse_bad,
)
from lowwater_extractor.modes import CursorConfig, is_wanted
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.cursor.query import Cursored, can_overlap
from lowwater_extractor.sources.postgres.types import PgType

_UNREADABLE = """
SELECT format('%%I.%%I', n.nspname, c.relname), format('%%I', n.nspname) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%s) AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'))
ORDER BY 1"""
#: whether a table has an index that starts with the column
_INDEXED = """
SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = %s AND a.attname = %s AND i.indisvalid AND i.indpred IS NULL)"""


@dataclass(frozen=True, slots=True)
class CursoredTable:
    cursored: Cursored
    schema: TableSchema
    #: column → type, modifier, dimensions
    pg_types: dict[str, tuple[PgType, int, int]]
    #: names of columns
    as_text: frozenset[str]

    @property
    def name(self) -> str:
        return self.cursored.name


def _relations(config: PostgresConfig, catalogue: DatabaseCatalogue) -> dict[str, CatalogueTable]:
    """Return the configured relations. A pattern matches tables only; views and foreign tables must be named."""

    def is_meant(name: str, kind: str) -> bool:
        return is_wanted(config.tables, name) and (kind in "rp" or name in config.cursors or name in config.tables)

    return {table.name: table for table in catalogue.readable(is_meant)}


def find_cursored(config: PostgresConfig, catalogue: DatabaseCatalogue) -> list[CursoredTable]:
    """Return the relations with a complete cursor configuration."""
    relations = _relations(config, catalogue).items()
    return [
        _cursored(config, table, config.cursors[name])
        for name, table in relations
        if is_whole(config.cursors.get(name), table.pg_types, bool(table.schema.key))
    ]


def _cursored(config: PostgresConfig, table: CatalogueTable, cursor: CursorConfig) -> CursoredTable:
    schema = replace(table.schema, key=tuple(cursor.key) or table.schema.key)
    prefix = f"{table.name}."
    as_text = frozenset(name.removeprefix(prefix) for name in config.as_text if name.startswith(prefix))
    type_, _, _ = table.pg_types[cursor.primary]
    cursored = Cursored(
        schema.namespace, schema.table, table.kind, cursor.primary, cursor.secondary, schema.key, type_.name,
        cursor.overlap,
    )  # fmt: skip
    return CursoredTable(cursored, schema, table.pg_types, as_text)


def tables_to_read(config: PostgresConfig, source: str, catalogue: DatabaseCatalogue) -> list[CursoredTable]:
    """Return all configured relations. Raises if one cannot be read by its cursor."""
    refuse_bad(check_cursors(config, catalogue), source)
    return find_cursored(config, catalogue)


# -- checks ----------------------------------------------------------------------------------------------


def check_cursors(config: PostgresConfig, catalogue: DatabaseCatalogue) -> Iterator[Check]:
    """Run all checks. A failed check does not stop the next ones."""
    ((encoding,),) = catalogue.ask("SHOW server_encoding")
    yield Check("encoding", encoding != "SQL_ASCII", encoding, "move to a database with an encoding, for example UTF8")
    relations = _relations(config, catalogue)
    yield check_tables(
        config, relations, "tables and cursors are named `schema.table`; name a partitioned table, not its partitions"
    )
    yield _select(config, catalogue, relations)
    columns = {name: table.pg_types for name, table in relations.items()}
    yield check_columns(config, columns, "; generated ones are not captured")
    yield check_keys(config, (name for name, table in relations.items() if not table.schema.key))
    whole = find_cursored(config, catalogue)
    overlapping = [t.cursored for t in whole if t.cursored.overlap]
    wrong = [f"{t.name}.{t.primary} is a {t.type_name}" for t in overlapping if not can_overlap(t.type_name)]
    yield check_overlaps(len(overlapping), wrong)
    yield _order(catalogue, whole)
    yield _indexes(catalogue, relations, whole)


def _select(config: PostgresConfig, catalogue: DatabaseCatalogue, relations: dict[str, CatalogueTable]) -> Check:
    rows = catalogue.ask(_UNREADABLE, [table.oid for table in relations.values()])
    tables = ", ".join(table for table, _ in rows)
    schemas = ", ".join(sorted({schema for _, schema in rows}))
    fix = f"GRANT USAGE ON SCHEMA {schemas} TO {config.user}; GRANT SELECT ON {tables} TO {config.user}"
    return Check("select", not rows, f"may not read {tables}" if rows else "may read them", fix if rows else "")


def _order(catalogue: DatabaseCatalogue, tables: list[CursoredTable]) -> Check:
    """Check with EXPLAIN that the server can sort by the cursor columns."""
    wrong = []
    for table in (t.cursored for t in tables):
        for column in dict.fromkeys((*table.columns, *table.key)):
            asked = sql.SQL("EXPLAIN SELECT FROM {} ORDER BY {}").format(table.relation, sql.Identifier(column))
            try:
                catalogue.ask(asked)
            except LowwaterError as error:
                wrong.append(f"{table.name}.{column}: {error.what}")
    fix = "use a column whose type can be sorted: a time, a number, a text"
    return Check("order", not wrong, "; ".join(wrong) or "the server can sort by them", fix if wrong else "")


def _indexes(
    catalogue: DatabaseCatalogue, relations: dict[str, CatalogueTable], tables: list[CursoredTable]
) -> Check:  # fmt: skip
    bare = []
    for table in (t.cursored for t in tables):
        if table.kind in "rpm":
            ((is_indexed,),) = catalogue.ask(_INDEXED, relations[table.name].oid, table.primary)
            if not is_indexed:
                bare.append(f"CREATE INDEX ON {table.name} ({', '.join(table.columns)})")
    return advise_indexes(bare)
