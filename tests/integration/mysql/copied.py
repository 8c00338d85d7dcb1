"""A table's rows as a copy has them, read in this process as one of Spark's tasks would."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa

from lowwater.codec.avro import change_schema
from lowwater.codec.rules import ColumnRules, published
from lowwater.lake.schema.columns import lake_table
from lowwater.records.positions import ORDER_MAX, ORDER_MIN
from lowwater.records.types import Chunk
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.mysql.source import Mysql


def planned(source: Mysql, *tables: str) -> list[PlannedTable]:
    view = source.begin_view(tables)
    found: list[PlannedTable] = []
    deadline = time.monotonic() + 30
    while len(found) < len(tables):
        assert time.monotonic() < deadline
        found += view.plan(10)
    view.close()
    return found


def read(source: Mysql, plan: PlannedTable, bounds: bytes, rules: ColumnRules | None = None) -> pa.Table:
    table = plan.table
    shown, _ = published(table, rules or ColumnRules())
    avro = json.dumps(change_schema(shown))
    chunk = Chunk(table.source, "copy", table.full_name, 1, 1, 1, bounds, ORDER_MIN, ORDER_MAX, 0, "")
    schema = lake_table(avro).copy_schema
    return pa.Table.from_batches(source.read_chunk(chunk, avro, rules or ColumnRules()), schema=schema)


def copied(source: Mysql, name: str, rules: ColumnRules | None = None) -> pa.Table:
    (plan,) = planned(source, name)
    return pa.concat_tables([read(source, plan, bounds, rules) for bounds, _ in plan.chunks])


def as_on_the_wire(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with dates and times as numbers, as `Versions` gives them out of the stream."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, column.cast(pa.timestamp("us")).cast(pa.int64()))
        elif pa.types.is_date(field.type):
            table = table.set_column(place, field.name, column.cast(pa.int32()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
