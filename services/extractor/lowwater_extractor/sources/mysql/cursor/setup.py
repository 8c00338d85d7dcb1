"""The tables of the mode `incremental`, and the checks that they can be read by a cursor, each with a fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
from lowwater_extractor.sources.mysql.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.cursor.query import Cursored, can_overlap
from lowwater_extractor.sources.mysql.relations import shape
from lowwater_extractor.sources.mysql.setup import wanted_of
from lowwater_extractor.sources.mysql.snapshot.chunks import key_letter
from lowwater_extractor.sources.mysql.snapshot.text_values import TextColumn, text_column
from lowwater_extractor.sources.mysql.wire.charsets import Decoders

_INDEXED = """
SELECT COUNT(*) FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = %s AND SEQ_IN_INDEX = 1"""


@dataclass(frozen=True, slots=True)
class CursoredTable:
    cursored: Cursored
    schema: TableSchema
    columns: tuple[TextColumn, ...]

    @property
    def name(self) -> str:
        return self.cursored.name


def _relations(config: MysqlConfig, catalogue: DatabaseCatalogue) -> dict[str, CatalogueTable]:
    """Return the configured relations. A pattern matches tables only; views must be named."""
    found = catalogue.tables(lambda name: is_wanted(config.tables, name))
    named = {*config.tables, *config.cursors}
    return {table.name: table for table in found if table.kind != "VIEW" or table.name in named}


def find_cursored(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> list[CursoredTable]:
    """Return the relations with a complete cursor configuration."""
    relations = _relations(config, catalogue).items()
    return [
        _cursored(config, source, catalogue, table, config.cursors[name])
        for name, table in relations
        if is_whole(config.cursors.get(name), _columns(table), bool(table.key))
    ]


def _columns(table: CatalogueTable) -> list[str]:
    return [column.name for column in table.map.columns]


def _cursored(
    config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, table: CatalogueTable, cursor: CursorConfig
) -> CursoredTable:
    decoders, wanted = Decoders(catalogue), wanted_of(config)
    schema, _, _ = shape(table.map, source, decoders, wanted)
    schema = replace(schema, key=tuple(cursor.key) or schema.key)
    by_name = {column.name: column for column in table.map.columns}
    cursored = Cursored(
        schema.namespace, schema.table, tuple(by_name[name] for name in cursor.columns), schema.key,
        cursor.secondary in table.nullable, cursor.overlap,
    )  # fmt: skip
    columns = tuple(text_column(column, table.name, decoders, wanted) for column in table.map.columns)
    return CursoredTable(cursored, schema, columns)


def tables_to_read(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> list[CursoredTable]:
    """Return all configured relations. Raises if one cannot be read by its cursor."""
    refuse_bad(check_cursors(config, source, catalogue), source)
    return find_cursored(config, source, catalogue)


# -- checks ----------------------------------------------------------------------------------------------


def check_cursors(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> Iterator[Check]:
    """Run all checks. A failed check does not stop the next ones, if the tables can be read at all."""
    try:
        relations = _relations(config, catalogue)
        whole = find_cursored(config, source, catalogue)
    except LowwaterError as error:
        yield Check("tables", False, error.what, error.hint or "")
        return
    yield check_tables(config, relations, "tables and cursors are named `database.table`")
    yield _select(config, catalogue, relations)
    yield check_columns(config, {name: _columns(table) for name, table in relations.items()})
    yield check_keys(config, (name for name, table in relations.items() if not table.key))
    overlapping = [t.cursored for t in whole if t.cursored.overlap]
    yield check_overlaps(len(overlapping), [f"{t.name}.{t.primary}" for t in overlapping if not can_overlap(t)])
    yield _order(whole)
    yield _indexes(catalogue, relations, whole)


def _select(config: MysqlConfig, catalogue: DatabaseCatalogue, relations: dict[str, CatalogueTable]) -> Check:
    unread = []
    for table in relations.values():
        try:
            catalogue.ask(f"SELECT 1 FROM {quoted(table.map.namespace, table.map.table)} LIMIT 0")
        except LowwaterError as error:
            unread.append(f"{table.name}: {error.what}")
    fix = f"GRANT SELECT ON … TO {config.user}"
    return Check("select", not unread, "; ".join(unread[:5]) or "may read them", fix if unread else "")


def _order(tables: list[CursoredTable]) -> Check:
    cursors = [(table.name, column) for table in tables for column in table.cursored.cursor]
    wrong = [f"{name}.{column.name}" for name, column in cursors if not key_letter(column)]
    fix = "use a column that can be compared with a literal: a time, an integer, a decimal, a text"
    return Check("order", not wrong, ", ".join(wrong) or "the cursor columns can be compared", fix if wrong else "")


def _indexes(
    catalogue: DatabaseCatalogue, relations: dict[str, CatalogueTable], tables: list[CursoredTable]
) -> Check:  # fmt: skip
    bare = []
    for table in (t.cursored for t in tables):
        if relations[table.name].kind != "VIEW":
            ((count,),) = catalogue.ask(_INDEXED, table.namespace, table.table, table.primary)
            if not count:
                bare.append(f"CREATE INDEX … ON {table.name} ({', '.join(table.columns)})")
    return advise_indexes(bare)
