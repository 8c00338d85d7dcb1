"""The mode `incremental` of the kind `turso`: reads rows by cursor columns with SELECTs; the writers need not capture.

A table is read in the order (primary, secondary). Rows with a null in the primary are before all others and are read
once; a null in the secondary is after all its values. A bound is the values as JSON: they are bound as parameters and
compared by the engine, which orders numbers before texts.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, SourceError, SourceLostError
from lowwater.runtime.times import now_us
from lowwater_extractor.api import Check, Encoders
from lowwater_extractor.incremental.cursor_checks import check_tables, refuse_bad, unknown_columns
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range
from lowwater_extractor.incremental.stream import Pace, UpperBounds
from lowwater_extractor.modes import CursorConfig
from lowwater_extractor.sources.turso import catalogue
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import Database, named_errors
from lowwater_extractor.sources.turso.schema.definitions import ROWID, Definition, quoted
from lowwater_extractor.sources.turso.wire.rows import published_value

FETCH_ROWS = 2_000

#: a condition and its parameters
Condition = tuple[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Cursored:
    definition: Definition
    cursor: CursorConfig
    schema: TableSchema

    @property
    def name(self) -> str:
        return self.definition.full_name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.cursor.columns


# -- statements ------------------------------------------------------------------------------------------


def above(table: Cursored, after: Bound | None) -> Condition:
    primary = quoted(table.cursor.primary)
    if not after:
        return f"{primary} IS NOT NULL", []
    value, *rest = _values(after)
    if not rest or rest[0] is None:
        return f"{primary} > ?", [value]
    second = quoted(table.cursor.secondary)
    return f"{primary} >= ? AND ({primary} > ? OR {second} > ? OR {second} IS NULL)", [value, value, rest[0]]


def up_to(table: Cursored, to: Bound) -> Condition:
    primary = quoted(table.cursor.primary)
    value, *rest = _values(to)
    if not rest or rest[0] is None:
        return f"{primary} <= ?", [value]
    return f"({primary} < ? OR {primary} = ? AND {quoted(table.cursor.secondary)} <= ?)", [value, value, rest[0]]


def in_range(table: Cursored, wanted: Range) -> Condition:
    primary = quoted(table.cursor.primary)
    if wanted.to == LOWEST:
        return f"{primary} IS NULL", []
    end, end_values = up_to(table, wanted.to)
    if wanted.after is None:
        return f"({primary} IS NULL OR {end})", end_values
    if wanted.after and table.cursor.overlap:
        return f"{primary} > ? AND {end}", [lowered(table, wanted.after), *end_values]
    start, start_values = above(table, wanted.after)
    return f"{start} AND {end}", [*start_values, *end_values]


def lowered(table: Cursored, after: Bound) -> Any:
    """Return the primary value lowered by the overlap, so that rows committed late are above it.

    SourceError: the value is neither a number nor an ISO time.
    """
    value = _values(after)[0]
    if isinstance(value, int | float):
        return value - table.cursor.overlap
    try:
        moved = dt.datetime.fromisoformat(value) - dt.timedelta(seconds=table.cursor.overlap)
    except (TypeError, ValueError) as error:
        raise SourceError(
            f"{table.name}: an overlap of {table.cursor.primary}, which is neither a number nor an ISO time",
            hint="remove the overlap, or use another cursor",
        ) from error
    # in the format of the column; without fraction and zone it is below every time of that second
    return moved.replace(tzinfo=None, microsecond=0).isoformat(sep="T" if "T" in value else " ")


def _order(table: Cursored, direction: str) -> str:
    primary, second = (quoted(name) for name in (table.cursor.primary, table.cursor.secondary))
    if not table.cursor.secondary:
        return f"{primary} {direction}"
    return f"{primary} {direction}, {second} IS NULL {direction}, {second} {direction}"


def _values(bound: Bound) -> list[Any]:
    return [None if text is None else json.loads(text) for text in bound]


def _bound(table: Cursored, row: tuple[Any, ...]) -> Bound:
    if any(isinstance(value, bytes) for value in row):
        raise SourceError(f"{table.name}: a blob in a cursor column", hint="use a column of numbers or texts as cursor")
    return tuple(None if value is None else json.dumps(value, ensure_ascii=False) for value in row)


# -- reading ---------------------------------------------------------------------------------------------


class CursorReader:
    """The `Reader` of a file: all tables are read under one view of the database."""

    def __init__(
        self, config: TursoConfig, source: str, database: Database, tables: list[Cursored], encoders: Encoders
    ) -> None:
        self._config = config
        self._source = source
        self._database = database
        self._tables = {table.name: table for table in tables}
        self._encoders = encoders
        self._is_begun = False
        self.seen: dict[str, TableSchema] = {}

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, UpperBounds]:
        self._begin()
        look = UpperBounds(now_us(), {}, {})
        for name, after in committed.items():
            table = self._tables[name]
            condition, values = above(table, after)
            columns = ", ".join(map(quoted, table.columns))
            rows = self._database.ask(
                f"SELECT {columns} FROM {quoted(table.definition.name)} WHERE {condition}"
                f" ORDER BY {_order(table, 'DESC')} LIMIT 1",
                values,
            )
            if rows:
                look.unsettled[name] = _bound(table, rows[0])
            elif after is None:
                look.settled[name] = LOWEST
            yield
        return look

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        self._begin()
        # the definitions in the view: a new version begins with the sync that reads its rows
        found = {table.name: table for table in find_cursored(self._database, self._config, self._source)}
        for name, wanted in ranges.items():
            if name not in found or found[name].cursor != self._tables[name].cursor:
                raise SourceLostError(f"{name} was altered: it is read again", source=self._source, thread=1)
            yield from self._table_rows(found[name], wanted, at_us)
        self._database.check_shared()

    def _table_rows(self, table: Cursored, wanted: Range, at_us: int) -> Iterator[list[bytes]]:
        schema = self._encoders.versioned(table.schema)
        self.seen[schema.full_name] = schema
        encoder = self._encoders.encoder(schema)
        condition, values = in_range(table, wanted)
        columns = [column.name for column in schema.columns]
        order = ", ".join([_order(table, "ASC"), *(quoted(name) for name in schema.key)])
        statement = (
            f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table.definition.name)} WHERE {condition}"
            f" ORDER BY {order}"
        )
        with named_errors(self._source, f"read {table.name}"):
            cursor = self._database.connection.execute(statement, tuple(values))
            try:
                while rows := cursor.fetchmany(FETCH_ROWS):
                    yield [encoder.header + encoder.body("r", None, self._row(table, row), at_us) for row in rows]
            finally:
                cursor.close()

    def _row(self, table: Cursored, row: tuple[Any, ...]) -> list[Any]:
        cells = table.definition.cells
        first, rest = ([row[0]], row[1:]) if not table.definition.key and len(row) > len(cells) else ([], row)
        found = list(first)
        for cell, value in zip(cells, rest, strict=True):
            try:
                found.append(published_value(cell.type, value))
            except TypeError as error:
                raise CodecError(
                    f"{table.name}.{cell.name}: {error} in a column that is published as {cell.type}",
                    source=self._source,
                    thread=1,
                    hint=f"SQLite accepts it: set types: {{{table.name}.{cell.name}: any}}",
                ) from error
        return found

    def _begin(self) -> None:
        if not self._is_begun:
            self._database.ask("BEGIN")
            self._is_begun = True

    def end(self) -> None:
        if self._is_begun:
            self._is_begun = False
            self._database.ask("ROLLBACK")

    def close(self) -> None:
        self._database.close()


def pace(config: TursoConfig) -> Pace:
    return Pace(config.poll_seconds, config.settle_seconds, config.spill_bytes_max, config.spill_directory)


# -- checks ----------------------------------------------------------------------------------------------


def find_cursored(database: Database, config: TursoConfig, source: str) -> list[Cursored]:
    """Return the configured tables that can be read by a cursor."""
    found = catalogue.definitions_of(database, config, source)
    return [_cursored(d, config.cursors[d.full_name], source) for d in found if not _wrong(d, config)]


def _cursored(definition: Definition, cursor: CursorConfig, source: str) -> Cursored:
    if not cursor.key:
        return Cursored(definition, cursor, definition.schema(source))
    schema = definition.schema(source)
    columns = tuple(column for column in schema.columns if definition.key or column.name != ROWID)
    return Cursored(
        definition, cursor, TableSchema(source, schema.namespace, schema.table, 0, columns, tuple(cursor.key))
    )


def _wrong(definition: Definition, config: TursoConfig) -> tuple[str, str] | None:
    name, cursor = definition.full_name, config.cursors.get(definition.full_name)
    names = [cell.name for cell in definition.cells]
    if cursor is None:
        return f"{name} has no cursor", f"add cursors: {{{name}: {{primary: …}}}}; or name the tables one by one"
    if unknown := unknown_columns(cursor, names):
        return f"{name} has no column {', '.join(unknown)}", f"columns of {name}: {', '.join(names)}"
    if not (cursor.key or definition.key) and config.without_key == "refuse":
        return f"{name} has no key", f"configure a key: cursors: {{{name}: {{key: [id], …}}}}"
    return None


def check_cursors(database: Database, config: TursoConfig, source: str) -> Iterator[Check]:
    found = catalogue.definitions_of(database, config, source)
    yield check_tables(config, {definition.full_name for definition in found}, "tables are written as `main.table`")
    wrong = [problem for definition in found if (problem := _wrong(definition, config))]
    what = "; ".join(what for what, _ in wrong) or f"{len(found)} cursors"
    yield Check("cursors", not wrong, what, wrong[0][1] if wrong else "")


def tables_to_read(database: Database, config: TursoConfig, source: str) -> list[Cursored]:
    """Return all configured tables. StartRefusedError: a table cannot be read by its cursor."""
    refuse_bad(check_cursors(database, config, source), source)
    return find_cursored(database, config, source)
