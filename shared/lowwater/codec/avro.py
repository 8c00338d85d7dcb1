"""The Avro schema of the changes of a table."""

from __future__ import annotations

import json
import re
from typing import Any

from lowwater.codec.table import ColumnKind, TableSchema, Type
from lowwater.errors import SchemaError

OPS = ("c", "u", "d", "r", "t")

_SIMPLE: dict[ColumnKind, Any] = {
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.INT32: "int",
    ColumnKind.INT64: "long",
    ColumnKind.FLOAT32: "float",
    ColumnKind.FLOAT64: "double",
    ColumnKind.STRING: "string",
    ColumnKind.BYTES: "bytes",
    ColumnKind.DATE: {"type": "int", "logicalType": "date"},
    ColumnKind.TIME: {"type": "long", "logicalType": "time-micros"},
    ColumnKind.TIMESTAMP: {"type": "long", "logicalType": "local-timestamp-micros"},
    ColumnKind.TIMESTAMPTZ: {"type": "long", "logicalType": "timestamp-micros"},
    ColumnKind.UUID: {"type": "string", "logicalType": "uuid"},
    # not a standard logical type of Avro: readers that do not know it read a string
    ColumnKind.JSON: {"type": "string", "logicalType": "json"},
}


def avro_type(type_: Type) -> Any:
    if type_.kind is ColumnKind.DECIMAL:
        if not type_.precision > 0 or not 0 <= type_.scale <= type_.precision:
            raise SchemaError(f"decimal({type_.precision}, {type_.scale}) is not a type")
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if type_.kind is ColumnKind.ARRAY:
        if type_.item is None:
            raise SchemaError("an array needs the type of its items")
        return {"type": "array", "items": ["null", avro_type(type_.item)]}
    return _SIMPLE[type_.kind]


def avro_name(name: str) -> str:
    """A name that Avro allows: letters, digits and underscores. The schema contains the real name, too."""
    safe = re.sub(r"[^A-Za-z0-9_]", lambda m: f"_x{ord(m.group()):x}_", name)
    return safe if not safe[:1].isdigit() else f"_{safe}"


def change_schema(table: TableSchema) -> dict[str, Any]:
    """The schema of one table version. `seq` is the first field, so that it can be read without decoding the others."""
    fields: list[dict[str, Any]] = []
    taken: set[str] = set()
    for column in table.columns:
        name = avro_name(column.name)
        # Spark and other Avro readers treat names that differ only in case as equal
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        field: dict[str, Any] = {"name": name, "type": ["null", avro_type(column.type)], "default": None}
        if name != column.name:
            field["lowwater_column"] = column.name
        fields.append(field)
    parts = (table.source, table.namespace, table.table)
    row = {"type": "record", "name": "Row", "fields": fields}
    return {
        "type": "record",
        "name": "Change",
        "namespace": "lowwater." + ".".join(avro_name(part) for part in parts if part),
        "fields": [
            {"name": "seq", "type": "long"},
            {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": list(OPS)}},
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Row"], "default": None},
            {"name": "unchanged", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "ts_us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
        "lowwater": {
            "source": table.source,
            "namespace": table.namespace,
            "table": table.table,
            "version": table.version,
            "key": list(table.key),
        },
    }


def avro_columns(schema: str) -> dict[str, Any]:
    """Column → type without the null, from the JSON text of a `change_schema`."""
    row = next(field for field in json.loads(schema)["fields"] if field["name"] == "before")["type"][1]
    return {field.get("lowwater_column", field["name"]): field["type"][1] for field in row["fields"]}


def avro_key(schema: str) -> tuple[str, ...]:
    """The key columns, from the JSON text of a `change_schema`."""
    return tuple(json.loads(schema)["lowwater"]["key"])
