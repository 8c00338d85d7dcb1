"""Reads a chunk's documents as Arrow record batches, in a Spark task.

Raw batches of the driver are converted by the same code as the stream's events, so that types are the same.
(pymongoarrow would be faster, but would lose values of other types and fields that are not in its schema.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from bson.errors import BSONError
from pymongo import errors
from pymongo.read_concern import ReadConcern

from lowwater.codec.rules import ColumnRules, PublishedColumn, published
from lowwater.errors import CodecError, LowwaterError, SnapshotGoneError
from lowwater.lake.schema.columns import lake_table
from lowwater.records.types import Chunk
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import Client, as_source_error, connect, damaged_answer
from lowwater_extractor.sources.mongodb.position import timestamp
from lowwater_extractor.sources.mongodb.shapes import Hidden, OtherIdError, RowReader
from lowwater_extractor.sources.mongodb.snapshot.chunks import Bounds
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb

#: documents of one batch, which the server also limits to 16 MB
BATCH_DOCUMENTS = 20_000

_NAMESPACE_NOT_FOUND, _BAD_HINT = 26, 2


def read_chunk(
    config: MongoConfig, source: str, chunk: Chunk, avro: str, rules: ColumnRules
) -> Iterator[pa.RecordBatch]:
    bounds = Bounds.decode(chunk.bounds)
    hidden = Hidden.of(rules, chunk.table)
    reader = RowReader(bounds.shape, hidden, config.columns_max, is_growing=False)
    _, columns = published(bounds.shape.table(source, hidden.masked), rules)
    schema = lake_table(avro).copy_schema
    if len(schema) != len(columns):
        raise CodecError(
            f"{chunk.table} was planned with other columns than it is read with", source=source,
            hint="were the rules for columns changed? request a new copy: `lowwater source copy`",
        )  # fmt: skip
    if bounds.shape.id_type is None:
        # the collection was empty when the copy was planned: all its documents are in the stream
        return
    client = connect(config, source)
    try:
        for data in _batches(client, source, chunk, bounds):
            with rb.named_damage(source, chunk.table):
                try:
                    rows = _documents(reader, data)
                except OtherIdError as error:
                    # it was inserted after the plan, which checked the types: the stream will read it, too
                    raise SnapshotGoneError(
                        error.what, source=source, hint="the copy is planned again automatically"
                    ) from error
            yield _built(rows, columns, schema, chunk.table)
    finally:
        client.close()


def _batches(client: Client, source: str, chunk: Chunk, bounds: Bounds) -> Iterator[bytes]:
    """Yield batches of concatenated documents, at least as new as the plan on every member (causal consistency)."""
    database = client[bounds.shape.namespace]
    collection = database.get_collection(bounds.shape.collection, read_concern=ReadConcern("majority"))
    try:
        with client.start_session(causal_consistency=True) as session:
            session.advance_operation_time(timestamp(chunk.low.major))
            yield from collection.find_raw_batches(**bounds.find(), batch_size=BATCH_DOCUMENTS, session=session)
    except errors.PyMongoError as error:
        raise _named(error, source, chunk.table) from error
    except BSONError as error:
        raise damaged_answer(error, source, f"read {chunk.table}") from error


def _documents(reader: RowReader, data: bytes) -> list[list[Any]]:
    rows, at = [], 0
    while at < len(data):
        rows.append(reader.read(data, at))
        at += rb.length(data, at)[0]
    return rows


def _named(error: errors.PyMongoError, source: str, table: str) -> LowwaterError:
    """Map a driver error; SnapshotGoneError if the collection was dropped or renamed."""
    code = error.code if isinstance(error, errors.OperationFailure) else None
    # 175: the collection was dropped or renamed under the cursor
    if code in (_NAMESPACE_NOT_FOUND, _BAD_HINT, 175):
        return SnapshotGoneError(
            f"{table}: it was dropped or renamed while it was read ({code})",
            source=source,
            hint="the copy is planned again automatically",
        )
    return as_source_error(error, source, f"read {table}")


def _built(
    rows: list[list[Any]], columns: tuple[PublishedColumn, ...], schema: pa.Schema, table: str
) -> pa.RecordBatch:
    arrays = []
    by_place = list(zip(*rows, strict=True))
    for column, field in zip(columns, schema, strict=True):
        values = by_place[column.place]
        if column.change is not None:
            values = tuple(map(column.change, values))
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise CodecError(
                f"{table}.{field.name} ({field.type}): a value that does not fit its type", hint="report it"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
