"""Reads a chunk's rows as Arrow, with values identical to those of the stream for the same rows.

The server's text is converted as in `text_values.py`, or by Arrow for whole columns at once where Arrow can parse it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pymysql import MySQLError

from lowwater.codec.avro import avro_type
from lowwater.codec.rules import ColumnRules, Mask, published
from lowwater.codec.table import Column, TableSchema
from lowwater.errors import CodecError, LowwaterError, SnapshotGoneError
from lowwater.lake.schema.columns import lake_table
from lowwater.records.types import Chunk
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import as_source_error, error_of, quoted
from lowwater_extractor.sources.mysql.setup import wanted_of
from lowwater_extractor.sources.mysql.snapshot.chunks import Bounds
from lowwater_extractor.sources.mysql.snapshot.text_values import TextColumn, text_column
from lowwater_extractor.sources.mysql.snapshot.visibility import begin_when_visible
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.charsets import Decoders
from lowwater_extractor.sources.mysql.wire.result import Answer, transpose

#: approximate size of a returned batch
BATCH_BYTES = 8 << 20
#: the table or a column does not exist any more, or the table was altered since this transaction began
_GONE = (1146, 1054, 1412, 1049)

#: types whose text Arrow can parse
_DIRECT = frozenset(
    (tm.TINY, tm.SHORT, tm.INT24, tm.LONG, tm.LONGLONG, tm.YEAR, tm.FLOAT, tm.DOUBLE, tm.NEWDECIMAL, tm.DATE,
     tm.DATETIME2, tm.TIMESTAMP2, tm.VARCHAR, tm.STRING, tm.BLOB, tm.JSON, tm.ENUM, tm.GEOMETRY)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Read:
    """How a column of the lake is read; without an expression it is NULL."""

    field: pa.Field
    expression: str = ""
    build: Callable[[list[bytes | None]], pa.Array] | None = None


def read_planned(
    config: MysqlConfig, source: str, chunk: Chunk, avro: str, rules: ColumnRules
) -> Iterator[pa.RecordBatch]:
    """Batches of `lake_table(avro).copy_schema`, with the rules applied.

    Raises SnapshotGoneError if this chunk can no longer be read; a new plan will replace it.
    """
    bounds = Bounds.decode(chunk.bounds)
    catalogue = DatabaseCatalogue(config, source)
    try:
        with _named(source, bounds):
            begin_when_visible(config, source, catalogue, bounds)
            # takes a metadata lock: the table cannot be altered until this transaction ends
            catalogue.ask(f"SELECT 1 FROM {bounds.relation} LIMIT 0")
        reads = _plan(config, source, catalogue, bounds, avro, rules)
        yield from _batches(source, catalogue, bounds, reads)
    finally:
        catalogue.close()


def _batches(
    source: str, catalogue: DatabaseCatalogue, bounds: Bounds, reads: Sequence[_Read]
) -> Iterator[pa.RecordBatch]:
    asked = [read.expression for read in reads if read.expression]
    # without any column the rows are still counted
    statement = f"SELECT {', '.join(asked) or 'TRUE'} FROM {bounds.relation} WHERE {bounds.where}"
    columns_of = transpose(max(1, len(asked)))
    schema = pa.schema([read.field for read in reads])
    with _named(source, bounds):
        answer = Answer(catalogue.connection, source, statement)
        rows: list[bytes] = []
        size = 0
        while not answer.is_over:
            found = answer.rows(BATCH_BYTES)
            if not found and not answer.is_over:
                answer.wait(1.0)
            rows += found
            size += sum(map(len, found))
            if rows and (size >= BATCH_BYTES or answer.is_over):
                yield _built(columns_of(rows), len(rows), reads, schema, bounds)
                rows, size = [], 0


def _built(
    columns: list[list[bytes | None]], count: int, reads: Sequence[_Read], schema: pa.Schema, bounds: Bounds
) -> pa.RecordBatch:
    given = iter(columns)
    arrays = []
    for read in reads:
        if read.build is None:
            arrays.append(pa.nulls(count, read.field.type))
            continue
        try:
            arrays.append(read.build(next(given)))
        except (CodecError, pa.ArrowException, ValueError, ArithmeticError, IndexError) as error:
            # the message does not contain the value
            what = error.what if isinstance(error, LowwaterError) else "a value that does not fit its type"
            hint = error.hint if isinstance(error, LowwaterError) else None
            raise CodecError(
                f"{bounds.namespace}.{bounds.table}.{read.field.name} ({read.field.type}): {what}",
                hint=hint or "report it with the server's version",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- the query ------------------------------------------------------------------------------------------------


def _plan(
    config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, bounds: Bounds, avro: str, rules: ColumnRules
) -> list[_Read]:
    """Return how to read each column of the lake. Raises SnapshotGoneError if the table has changed."""
    about = json.loads(avro)["lowwater"]
    where = f"{bounds.namespace}.{bounds.table}"
    found = catalogue.find(bounds.namespace, bounds.table)
    if found is None:
        raise _changed(f"{where} was dropped")
    decoders, wanted = Decoders(catalogue), wanted_of(config)
    columns = [text_column(wire, where, decoders, wanted) for wire in found.map.columns]
    key = tuple(name for name in about["key"] if any(name == column.wire.name for column in columns))
    made = tuple(Column(column.wire.name, column.type) for column in columns)
    table = TableSchema(about["source"], bounds.namespace, bounds.table, about["version"], made, key)
    shown = {one.column.name: one for one in published(table, rules)[1]}
    reads = []
    for column, (name, type_) in zip(lake_table(avro).columns, _avro_columns(avro), strict=True):
        one = shown.get(name)
        if one is None:
            # a column dropped since planning is read as NULL: it alone does not require a new copy
            if name in about["key"]:
                raise _changed(f"{where}.{name}, a column of the key, was dropped")
            reads.append(_Read(column.field))
            continue
        if avro_type(one.column.type) != type_:
            raise _changed(f"{where}.{name} has another type than when it was planned")
        mask = (rules.mask or {}).get(f"{where}.{name}")
        reads.append(_read(column.field, columns[one.place], one.change, mask))
    return reads


def _avro_columns(avro: str) -> list[tuple[str, Any]]:
    """Return the columns' original names, and their types without null."""
    row = next(field for field in json.loads(avro)["fields"] if field["name"] == "before")["type"][1]
    return [(field.get("lowwater_column", field["name"]), field["type"][1]) for field in row["fields"]]


def _changed(what: str) -> SnapshotGoneError:
    return SnapshotGoneError(f"{what}: the table has changed since the copy was planned", hint="it is planned again")


def _read(field: pa.Field, column: TextColumn, change: Callable[[Any], Any] | None, mask: Mask | None) -> _Read:
    if mask is Mask.NULL:
        return _Read(field)
    convert = column.convert
    if mask is Mask.REDACT:
        name = quoted(column.wire.name)
        return _Read(field, f"IF({name} IS NULL, NULL, '***')", lambda values: _direct(values, field.type))
    if change is not None:
        changed, convert_ = change, convert or bytes
        return _Read(field, column.expression, lambda v: _by_value(v, field.type, lambda b: changed(convert_(b))))
    if column.wire.type not in _DIRECT:
        return _Read(field, column.expression, lambda v: _by_value(v, field.type, convert or bytes))
    return _Read(field, column.expression, lambda v: _whole(v, field.type, convert))


def _direct(values: list[bytes | None], type_: pa.DataType) -> pa.Array:
    found = pa.array(values, pa.binary())
    if pa.types.is_binary(type_):
        return found
    text = found.cast(pa.string())
    if pa.types.is_float32(type_):
        return text.cast(pa.float64()).cast(type_)
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        # the session's time zone is UTC
        return text.cast(pa.timestamp("us")).cast(type_)
    return text if pa.types.is_string(type_) else text.cast(type_)


def _whole(values: list[bytes | None], type_: pa.DataType, convert: Callable[[bytes], Any] | None) -> pa.Array:
    try:
        return _direct(values, type_)
    except pa.ArrowInvalid:
        if convert is None:
            raise
        # value by value, as in the stream, for a precise error, or for zero dates as NULL
        return _by_value(values, type_, convert)


def _by_value(values: list[bytes | None], type_: pa.DataType, convert: Callable[[bytes], Any]) -> pa.Array:
    return pa.array([None if value is None else convert(value) for value in values], type_)


@contextmanager
def _named(source: str, bounds: Bounds) -> Iterator[None]:
    """Convert server errors to SnapshotGoneError or SourceError."""
    try:
        yield
    except LowwaterError as error:
        if any(f"({code})" in error.what for code in _GONE):
            raise SnapshotGoneError(error.what, source=source, hint="the table's copy is planned again") from error
        raise
    except MySQLError as error:
        where = f"{bounds.namespace}.{bounds.table}"
        code, text = error_of(error)
        if code in _GONE:
            raise SnapshotGoneError(f"{where}: {text}", source=source, hint="the copy is planned again") from error
        raise as_source_error(error, source, where) from error
