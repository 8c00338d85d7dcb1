"""Maps the columns with which a chunk was planned to the current columns of the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from lowwater.codec.avro import avro_columns, avro_type
from lowwater.codec.rules import ColumnRules, Mask, PublishedColumn, published
from lowwater.codec.table import Column, TableSchema
from lowwater.errors import SnapshotGoneError
from lowwater.lake.schema.columns import lake_table


class PlannedColumn(NamedTuple):
    """A column of the lake and the table's column from which it is read."""

    field: pa.Field
    #: the table's column; None: it was dropped after the plan, and is read as null
    shown: PublishedColumn | None
    mask: Mask | None


def planned_columns(columns: Sequence[Column], avro: str, rules: ColumnRules) -> list[PlannedColumn]:
    """Return the columns to read. `avro`: the table version of the plan; `columns`: the table's current columns.

    SnapshotGoneError: a key column was dropped, or a column has another type.
    """
    about = json.loads(avro)["lowwater"]
    where = f"{about['namespace']}.{about['table']}"
    names = {column.name for column in columns}
    # the key of the plan: that of the table may have changed since
    key = tuple(name for name in about["key"] if name in names)
    table = TableSchema(about["source"], about["namespace"], about["table"], about["version"], tuple(columns), key)
    shown = {found.column.name: found for found in published(table, rules)[1]}
    found = []
    for lake, (name, type_) in zip(lake_table(avro).columns, avro_columns(avro).items(), strict=True):
        column = shown.get(name)
        if column is None and name in about["key"]:
            raise changed_since(f"{where}.{name}, a column of the key, was dropped")
        if column is not None and avro_type(column.column.type) != type_:
            raise changed_since(f"{where}.{name} has another type than it was planned with")
        found.append(PlannedColumn(lake.field, column, (rules.mask or {}).get(f"{where}.{name}")))
    return found


def changed_since(what: str) -> SnapshotGoneError:
    return SnapshotGoneError(
        f"{what}: the table has changed since the copy was planned", hint="the copy is planned again automatically"
    )
