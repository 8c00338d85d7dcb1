"""A lake's files as a Spark DataFrame. Executors read them through lowwater's stores, so every store is supported.

Spark has no unsigned 64-bit integers (they become decimals of 20 digits), no decimals of more than 38 digits and no
time of day (both become text).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.schema.adapt import adapt_aliased, alias, aliased_schema, before_alias, file_columns
from lowwater.lake.schema.adapt import transport as narrow_decimals
from lowwater.lake.schema.columns import BEFORE
from lowwater.lake.schema.union import TableUnion
from lowwater.lake.store.base import Store
from lowwater.lake.store.parquet_files import change_batches, row_batches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Read = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
_ALL = (1 << 63) - 1
_TASKS_MAX = 512


def transport(type_: pa.DataType) -> pa.DataType:
    """The type in which Spark gets a column."""
    if pa.types.is_uint64(type_):
        return pa.decimal128(20, 0)
    if pa.types.is_time(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(pa.field("item", transport(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, transport(field.type)) for field in type_])
    return narrow_decimals(type_)


def spark_type(type_: pa.DataType) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(transport(type_), prefer_timestamp_ntz=True)


def files_frame(
    session: SparkSession,
    store: Store,
    union: TableUnion,
    files: Sequence[File],
    cdc: Sequence[str],
    columns: Sequence[int],
    before: Sequence[int] = (),
    after: int = -1,
    to: int = _ALL,
) -> DataFrame:
    """As `Scans.select`: the row's columns are `c<number>`, those of `_before` are `b<number>`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = aliased_schema(union, cdc, columns, before, transport)
    spark_schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not files or not len(schema):
        return session.createDataFrame([], spark_schema)
    read = _reader(store, union, list(files), list(cdc), list(columns), list(before), schema, after, to)
    # the rows are indexes into `files`, which is part of the function
    return session.range(0, len(files), 1, min(len(files), _TASKS_MAX)).mapInArrow(read, spark_schema)


def _reader(
    store: Store,
    union: TableUnion,
    files: list[File],
    cdc: list[str],
    columns: list[int],
    before: list[int],
    schema: pa.Schema,
    after: int,
    to: int,
) -> Read:
    """The function that runs in the executors. It contains the store, which connects there."""
    wanted = [*cdc, *(union.columns[n].name for n in columns), *([BEFORE] if before else [])]

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                file = files[number]
                is_copy = file.layer is Layer.COPY
                if is_copy:
                    own = file_columns(union, file.schema_id, [name for name in wanted if name not in cdc])
                    found = row_batches(store, file, own)
                else:
                    own = file_columns(union, file.schema_id, ["_gsn", *wanted])
                    found = change_batches(store, file, own, after, to)
                for rows in found:
                    yield adapt_aliased(rows, union, file.schema_id, schema, has_cdc=not is_copy)

    return read


def changes_frame(
    session: SparkSession,
    store: Store,
    union: TableUnion,
    files: Sequence[File],
    after: int,
    to: int,
    names: Sequence[str],
) -> DataFrame:
    from pyspark.sql import functions as F

    by_name = {column.name: number for number, column in enumerate(union.columns)}
    cdc = [name for name in names if name not in by_name and name != BEFORE]
    numbers = [by_name[name] for name in names if name in by_name]
    before = list(range(len(union.columns))) if BEFORE in names else []
    rows = files_frame(session, store, union, files, cdc, numbers, before, after, to)
    items: list[Column] = []
    for name in names:
        if name == BEFORE:
            # a struct with only null fields means that there is no before-image
            known = F.lit(False)
            for n in before:
                known = known | F.col(before_alias(n)).isNotNull()
            image = F.struct(*(F.col(before_alias(n)).alias(union.columns[n].name) for n in before))
            items.append(F.when(known, image).alias(BEFORE))
        else:
            items.append(F.col(alias(by_name[name]) if name in by_name else name).alias(name))
    return rows.select(*items)
