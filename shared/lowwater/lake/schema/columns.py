"""The columns of a table version: converts the Avro schema of its changes to the Arrow schema of its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lowwater.errors import SchemaError

#: metadata key for the Avro logical type of a column, if Parquet has no equivalent type
TYPE_NOTE = b"lowwater.type"

_INSTANT = pa.timestamp("us", tz="UTC")
ORDER_TYPE = pa.struct([pa.field("major", pa.uint64()), pa.field("minor", pa.uint64())])
#: the first columns of every `stream/` and `state/` file
CDC_FIELDS: tuple[pa.Field, ...] = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_gsn", pa.int64(), nullable=False),
    pa.field("_seq", pa.int64(), nullable=False),
    pa.field("_txid", pa.string(), nullable=False),
    pa.field("_thread", pa.int64(), nullable=False),
    pa.field("_order", ORDER_TYPE, nullable=False),
    pa.field("_commit_ts", _INSTANT, nullable=False),
    pa.field("_ts", _INSTANT, nullable=False),
    #: columns that are not in the log record; null if all are
    pa.field("_unchanged", pa.list_(pa.string())),
)
#: the row before the change, as far as the log contains it; after the CDC columns
BEFORE = "_before"
_RESERVED = {field.name for field in CDC_FIELDS} | {BEFORE}

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-micros": pa.time64("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "timestamp-micros": _INSTANT,
    "uuid": pa.string(),
    "json": pa.string(),
}
_NOTED = {"uuid", "json"}
_DECIMAL_DIGITS_MAX = 76


@dataclass(frozen=True, slots=True)
class LakeColumn:
    #: the name in the lake: the name in the source, with `_` appended if a CDC column has that name
    name: str
    #: the name in the Avro schema
    avro_name: str
    field: pa.Field


@dataclass(frozen=True, slots=True)
class LakeTable:
    """The columns of one table version in the lake."""

    #: `source.namespace.table`
    name: str
    version: int
    #: names in the lake
    key: tuple[str, ...]
    columns: tuple[LakeColumn, ...]
    avro: str

    @property
    def row_fields(self) -> list[pa.Field]:
        return [column.field for column in self.columns]

    @property
    def stream_schema(self) -> pa.Schema:
        before = pa.field(BEFORE, pa.struct(self.row_fields))
        return pa.schema([*CDC_FIELDS, before, *self.row_fields])

    @property
    def copy_schema(self) -> pa.Schema:
        return pa.schema(self.row_fields)


def _arrow_type(avro: Any) -> tuple[pa.DataType, str]:
    """The Arrow type, and the logical type if Arrow has no equivalent, else ""."""
    if isinstance(avro, str):
        return _SIMPLE[avro], ""
    logical = avro.get("logicalType", "")
    if logical == "decimal":
        precision, scale = avro["precision"], avro.get("scale", 0)
        if precision > _DECIMAL_DIGITS_MAX:
            raise SchemaError(
                f"a decimal of {precision} digits: Parquet readers support at most {_DECIMAL_DIGITS_MAX}",
                hint="capture the column as text",
            )
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale), ""
    if logical in _LOGICAL:
        return _LOGICAL[logical], logical if logical in _NOTED else ""
    if avro["type"] == "array":
        item, note = _arrow_type(avro["items"][1])
        return pa.list_(pa.field("item", item)), f"array of {note}" if note else ""
    return _arrow_type(avro["type"])


def lake_name(column: str) -> str:
    """The name of a column in the lake, unique: `_gsn` becomes `_gsn_`, and a column `_gsn_` becomes `_gsn__`."""
    return f"{column}_" if column.rstrip("_") in _RESERVED else column


def _column(field: dict[str, Any]) -> LakeColumn:
    name = lake_name(field.get("lowwater_column", field["name"]))
    arrow, note = _arrow_type(field["type"][1])
    metadata = {TYPE_NOTE: note.encode()} if note else None
    return LakeColumn(name, field["name"], pa.field(name, arrow, metadata=metadata))


@lru_cache(maxsize=10_000)
def lake_table(avro: str) -> LakeTable:
    """The table version, from the text of the Avro schema of its changes."""
    schema = json.loads(avro)
    about = schema["lowwater"]
    row = next(f for f in schema["fields"] if f["name"] == "before")["type"][1]
    name = ".".join(part for part in (about["source"], about["namespace"], about["table"]) if part)
    key = tuple(lake_name(column) for column in about["key"])
    return LakeTable(name, about["version"], key, tuple(map(_column, row["fields"])), avro)
