"""Decodes changes in Python: the plain form of the decoder that Spark compiles, for table versions with few rows.

Gives what `decode.ordered_rows` gives for the same bytes, with the column types of the lake.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from lowwater.lake.schema.columns import LakeTable
from lowwater_spark.landing.rows import exact_decimal


class PlainDecodeError(ValueError):
    """The bytes are not a change of this table version."""


@lru_cache(maxsize=1_000)
def _raw_schema(avro: str) -> Any:
    """The schema without logical types: values are read as they are stored."""

    def raw(node: Any) -> Any:
        if isinstance(node, dict):
            return {name: raw(value) for name, value in node.items() if name not in ("logicalType", "lowwater")}
        return [raw(item) for item in node] if isinstance(node, list) else node

    return fastavro.parse_schema(raw(json.loads(avro)), named_schemas={}, _write_hint=False)


def plain_changes(table: LakeTable, bodies: Sequence[bytes]) -> pa.StructArray:
    """The changes in `bodies` (without their headers). Raises PlainDecodeError."""
    schema = _raw_schema(table.avro)
    changes: list[Any] = []
    for body in bodies:
        stream = io.BytesIO(body)
        try:
            changes.append(fastavro.schemaless_reader(stream, schema, None))
        except (EOFError, IndexError, ValueError, OverflowError) as error:
            raise PlainDecodeError(f"a change of {table.name} that cannot be decoded: {body[:64].hex(' ')}") from error
        if stream.tell() != len(body):
            raise PlainDecodeError(f"a change of {table.name} with bytes after its end: {body[:64].hex(' ')}")
    fields = {
        "seq": pa.array([change["seq"] for change in changes], pa.int64()),
        "op": pa.array([change["op"] for change in changes], pa.string()),
        "before": _images(table, [change["before"] for change in changes]),
        "after": _images(table, [change["after"] for change in changes]),
        "unchanged": pa.array([change["unchanged"] for change in changes], pa.list_(pa.string())),
        "ts_us": pa.array([change["ts_us"] for change in changes], pa.int64()),
    }
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def _images(table: LakeTable, images: list[dict[str, Any] | None]) -> pa.StructArray:
    mask = pa.array([image is None for image in images], pa.bool_())
    if not table.columns:
        return pa.StructArray.from_arrays([], fields=[], mask=mask)
    arrays = [
        _array([None if image is None else image[column.avro_name] for image in images], column.field.type)
        for column in table.columns
    ]
    return pa.StructArray.from_arrays(arrays, names=[column.avro_name for column in table.columns], mask=mask)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_list(type_):
        sizes = [0 if value is None else len(value) for value in values]
        items = _array([item for value in values if value is not None for item in value], type_.value_type)
        offsets = pa.array(np.concatenate(([0], np.cumsum(sizes, dtype=np.int32))), pa.int32())
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(offsets, items, type=type_, mask=mask)
    if pa.types.is_decimal(type_):
        return pa.array([None if v is None else exact_decimal(v, type_.scale) for v in values], type_)
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    if pa.types.is_time64(type_) or pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)
