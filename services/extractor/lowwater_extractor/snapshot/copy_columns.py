"""The columns of a chunk: as they were planned, found again in the table as it is now."""

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
    """A column of the lake."""

    field: pa.Field
    #: where it comes from; None: it is gone since, and null from then on
    shown: PublishedColumn | None
    mask: Mask | None


def planned_columns(columns: Sequence[Column], avro: str, rules: ColumnRules) -> list[PlannedColumn]:
    """`avro` is the table version that the chunk was planned with, `columns` are what the table has now."""
    about = json.loads(avro)["lowwater"]
    where = f"{about['namespace']}.{about['table']}"
    names = {column.name for column in columns}
    # the key is the published one's: that of the table may have changed since
    key = tuple(name for name in about["key"] if name in names)
    table = TableSchema(about["source"], about["namespace"], about["table"], about["version"], tuple(columns), key)
    shown = {found.column.name: found for found in published(table, rules)[1]}
    found = []
    for lake, (name, type_) in zip(lake_table(avro).columns, avro_columns(avro).items(), strict=True):
        column = shown.get(name)
        if column is None and name in about["key"]:
            raise changed_since(f"{where}.{name} is gone, which was part of the key")
        if column is not None and avro_type(column.column.type) != type_:
            raise changed_since(f"{where}.{name} has another type than it was planned with")
        found.append(PlannedColumn(lake.field, column, (rules.mask or {}).get(f"{where}.{name}")))
    return found


def changed_since(what: str) -> SnapshotGoneError:
    return SnapshotGoneError(f"{what}: the table has changed since the copy was planned", hint="a new plan comes")
