"""Reads a chunk's rows as Arrow, by columns, with the same values as the stream has for the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from lowwater.codec.rules import ColumnRules, published
from lowwater.errors import CodecError, LogGapError, SnapshotGoneError
from lowwater.lake.schema.columns import lake_table
from lowwater.records.types import Chunk
from lowwater_extractor.sources.turso import catalogue
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import DOUBT_SECONDS, Database, Select, named_errors
from lowwater_extractor.sources.turso.relations import COMMIT_MINOR
from lowwater_extractor.sources.turso.schema.definitions import CellType, Definition, Definitions, quoted
from lowwater_extractor.sources.turso.snapshot.view import Bounds
from lowwater_extractor.sources.turso.wire.rows import published_value

#: rows of a record batch
BATCH_ROWS = 1 << 14
#: rows converted at a time: few enough not to trigger the garbage collector, and to fit the CPU caches
STEP_ROWS = 512

Convert = Callable[[Any], Any]


def read_chunk(
    config: TursoConfig, source: str, chunk: Chunk, avro: str, rules: ColumnRules
) -> Iterator[pa.RecordBatch]:
    bounds = Bounds.decode(chunk.bounds)
    database = Database(config, source)
    try:
        _wait_for_low(database, config, source, chunk)
        if catalogue.texts(database).get(bounds.table) != bounds.sql:
            raise SnapshotGoneError(
                f"{chunk.table} was altered since its copy was planned",
                source=source,
                hint="the copy is planned again automatically",
            )
        definition = Definitions(source, config.types).definition(bounds.table, bounds.sql)
        yield from _batches(database, source, definition, bounds, avro, rules)
    finally:
        database.close()


def _wait_for_low(database: Database, config: TursoConfig, source: str, chunk: Chunk) -> None:
    """Wait until the connection sees `low`: rows must not be older, and a connection may briefly see older pages (see
    `connect_anew`). LogGapError: it does not."""
    if config.mode != "cdc":
        return
    # an order below COMMIT_MINOR is not a COMMIT of the file: it is directly after one
    low, until = chunk.low.major - (chunk.low.minor < COMMIT_MINOR), time.monotonic() + DOUBT_SECONDS
    asked = f"SELECT max(change_id) FROM {quoted(config.cdc_table)}"
    while low > 0 and (database.ask(asked)[0][0] or 0) < low:
        if time.monotonic() > until:
            raise LogGapError(
                f"{chunk.table}: change {low}, which was read before the chunk, is gone",
                source=source,
                thread=1,
                position=str(low),
                hint="the file is an older one, or its log was emptied: see docs/turso.md, when the log begins again",
            )
        database.connect_anew()


def _batches(
    database: Database, source: str, definition: Definition, bounds: Bounds, avro: str, rules: ColumnRules
) -> Iterator[pa.RecordBatch]:
    reads = _reads(source, definition, rules)
    schema = lake_table(avro).copy_schema
    if [name for name, _, _ in reads] != _columns(avro):
        raise SnapshotGoneError(
            f"{definition.full_name} is published with other columns than its copy was planned with",
            source=source,
            hint="the copy is planned again automatically",
        )
    with named_errors(source, f"read {definition.full_name}"):
        found = database.select(_query(definition, bounds, reads), _parameters(bounds))
        try:
            while steps := list(islice(_steps(found, definition, reads, schema), BATCH_ROWS // STEP_ROWS)):
                arrays = [pa.concat_arrays(column) for column in zip(*steps, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        finally:
            found.close()
    database.check_shared()


def _steps(found: Select, definition: Definition, reads: list[Read], schema: pa.Schema) -> Iterator[list[pa.Array]]:
    while rows := found.fetch(STEP_ROWS):
        columns = zip(reads, zip(*rows, strict=True), schema, strict=True)
        yield [_array(definition, read, column, field) for read, column, field in columns]


#: type of the lake's column → types of SQLite values that it accepts
_TAKEN: dict[str, frozenset[type]] = {
    "int64": frozenset({int, type(None)}),
    "double": frozenset({float, int, type(None)}),
    "string": frozenset({str, type(None)}),
    "binary": frozenset({bytes, type(None)}),
}

#: a published column: its name, the selected expression, and the conversion of each value
Read = tuple[str, str, Convert | None]


def _reads(source: str, definition: Definition, rules: ColumnRules) -> list[Read]:
    table = definition.schema(source)
    cells = {cell.name: cell.type for cell in definition.cells}
    found: list[Read] = []
    for shown in published(table, rules)[1]:
        name = table.columns[shown.place].name
        kind = cells.get(name, CellType.INTEGER)
        asked = quoted(name)
        convert = shown.change
        if kind is CellType.ANY:
            change = shown.change
            convert = _any if change is None else lambda value, change=change: change(_any(value))
        found.append((shown.column.name, asked, convert))
    return found


_any = partial(published_value, CellType.ANY)


def _columns(avro: str) -> list[str]:
    row = next(f for f in json.loads(avro)["fields"] if f["name"] == "before")["type"][1]
    return [field.get("lowwater_column", field["name"]) for field in row["fields"]]


def _query(definition: Definition, bounds: Bounds, reads: list[Read]) -> str:
    wanted = ", ".join(asked for _, asked, _ in reads)
    parts = [f"rowid {sign} ?" for sign, edge in ((">", bounds.after), ("<=", bounds.to)) if edge is not None]
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    return f"SELECT {wanted} FROM {quoted(definition.name)}{where}"


def _parameters(bounds: Bounds) -> tuple[int, ...]:
    return tuple(edge for edge in (bounds.after, bounds.to) if edge is not None)


def _array(definition: Definition, read: Read, column: tuple[Any, ...], field: pa.Field) -> pa.Array:
    """Return a column as an Arrow array. CodecError: a value of another type; values are not converted."""
    name, _, convert = read
    try:
        if convert is None and not _TAKEN[str(field.type)].issuperset(map(type, column)):
            # Arrow would accept a blob as a text, and a text as a blob
            raise TypeError("another type than the column's")
        return pa.array(column if convert is None else [convert(value) for value in column], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # the message does not contain the value
        raise CodecError(
            f"{definition.full_name}.{name} ({field.type}): a value that does not fit its type",
            hint=f"SQLite accepts it: set types: {{{definition.full_name}.{name}: any}} to publish it as JSON",
        ) from error
