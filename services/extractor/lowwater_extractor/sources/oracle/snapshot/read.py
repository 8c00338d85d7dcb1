"""Reads a chunk as of its SCN, as Arrow batches for the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from lowwater.codec.rules import ColumnRules, Mask
from lowwater.errors import CodecError, LowwaterError
from lowwater.records.types import Chunk
from lowwater_extractor.snapshot.copy_columns import PlannedColumn, changed_since, planned_columns
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import Database, quoted
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.dictionary.query import SqlDictionary
from lowwater_extractor.sources.oracle.discovery import SQL_SCN
from lowwater_extractor.sources.oracle.rows.values import ERRORS
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.snapshot.chunks import Bounds
from lowwater_extractor.sources.oracle.snapshot.values import Build, Wire, wire
from lowwater_extractor.sources.oracle.types import OracleColumn

#: rows per fetch and batch
BATCH_ROWS = 1 << 14


class _Read(NamedTuple):
    """A column of the lake, and the expressions that are queried for it."""

    field: pa.Field
    asked: tuple[tuple[str, pa.DataType], ...]
    build: Build


def read_chunk(
    database: Database, config: OracleConfig, source: str, chunk: Chunk, avro: str, rules: ColumnRules
) -> Iterator[pa.RecordBatch]:
    """Read a chunk over a session in the captured container, and close the session at the end."""
    try:
        bounds = Bounds.decode(chunk.bounds)
        reads = plan_reads(_table_now(database, config, source, bounds), avro, rules)
        schema = pa.schema([read.field for read in reads])
        # if no column is read, the number of rows is still needed
        asked = [one for read in reads for one in read.asked] or [("1", pa.int64())]
        wanted = pa.schema([(f"C{at}", type_) for at, (_, type_) in enumerate(asked)])
        items = ", ".join(f"{expression} C{at}" for at, (expression, _) in enumerate(asked))
        sql = f"SELECT {items} FROM {quoted(bounds.owner)}.{quoted(bounds.table)} AS OF SCN :scn WHERE {bounds.where}"
        for found in database.frames(sql, wanted, BATCH_ROWS, **bounds.binds):
            yield _built(found, reads, schema, bounds)
    finally:
        database.close()


def _table_now(database: Database, config: OracleConfig, source: str, bounds: Bounds) -> TableVersion:
    """The table's current definition. A query as of an SCN uses it; the server refuses if the table was altered."""
    ((scn,),) = database.ask(SQL_SCN)
    found = SqlDictionary(database, config, source).read(Scn(int(scn)), f"{bounds.owner}.{bounds.table}")
    if not found:
        raise changed_since(f"{bounds.owner}.{bounds.table} is gone")
    return found[0]


def plan_reads(table: TableVersion, avro: str, rules: ColumnRules) -> list[_Read]:
    """One read for each column of the lake."""
    return [_read(found, table.visible) for found in planned_columns(table.schema.columns, avro, rules)]


def _read(planned: PlannedColumn, columns: Sequence[OracleColumn]) -> _Read:
    shown = planned.shown
    if shown is None or planned.mask is Mask.NULL:
        return _Read(planned.field, (), _null)
    column = columns[shown.place]
    found = wire(column, masked=shown.change is not None)
    if not found.asked:
        return _Read(planned.field, (), _null)
    if shown.change is None:
        return _Read(planned.field, found.asked, found.build)
    return _Read(planned.field, found.asked, partial(_masked, found=found, change=shown.change))


def _null(columns: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    raise AssertionError("a column that is null is not built")


def _masked(columns: Sequence[pa.Array], type_: pa.DataType, *, found: Wire, change: Callable[[Any], Any]) -> pa.Array:
    """Mask the same values as the stream does, so that hashes are equal."""
    values = found.build(columns, found.natural).to_pylist()
    return pa.array([None if value is None else change(value) for value in values], type_)


def _built(found: pa.Table, reads: Sequence[_Read], schema: pa.Schema, bounds: Bounds) -> pa.RecordBatch:
    columns = iter(found.columns)
    arrays = []
    for read in reads:
        if not read.asked:
            arrays.append(pa.nulls(found.num_rows, read.field.type))
            continue
        sent = [next(columns).combine_chunks() for _ in read.asked]
        try:
            arrays.append(read.build(sent, read.field.type))
        except (*ERRORS, pa.ArrowException) as error:
            # the value itself is left out of the message
            what = error.what if isinstance(error, LowwaterError) else "a value that does not fit its type"
            hint = error.hint if isinstance(error, LowwaterError) else None
            raise CodecError(
                f"{bounds.owner}.{bounds.table}.{read.field.name} ({read.field.type}): {what}",
                hint=hint or "capture the column `as_text`",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
