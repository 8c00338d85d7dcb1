"""Row images in the log, and the dictionary that says what they are.

A table whose columns are all fixed in width and never null is one struct: a row is decoded by one call.
Every other table has a bitmap of its nulls and then its values one by one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from lowwater.codec.table import Column, Kind, TableSchema, Type
from lowwater.errors import LogUnknownError

Row = Sequence[Any]
#: (before and after image together, or one of them) → (before, after)
Decoded = tuple[Row | None, Row | None]

_FIXED = {
    Kind.BOOLEAN: "?",
    Kind.INT32: "i",
    Kind.INT64: "q",
    Kind.FLOAT32: "f",
    Kind.FLOAT64: "d",
    Kind.DATE: "i",
    Kind.TIME: "q",
    Kind.TIMESTAMP: "q",
    Kind.TIMESTAMPTZ: "q",
}
_LENGTH = struct.Struct("<I")
_BITMAP = struct.Struct("<Q")
#: decimals of this precision and below are stored as 64-bit whole numbers
_DECIMAL_DIGITS_MAX = 18
_DECIMALS_KEPT = 100_000


def table_to_json(table: TableSchema) -> dict[str, Any]:
    columns = [[c.name, _type_to_json(c.type), c.nullable] for c in table.columns]
    return {
        "namespace": table.namespace,
        "table": table.table,
        "version": table.version,
        "key": list(table.key),
        "columns": columns,
    }


def table_from_json(source: str, raw: dict[str, Any]) -> TableSchema:
    columns = tuple(Column(name, _type_from_json(kind), nullable) for name, kind, nullable in raw["columns"])
    return TableSchema(source, raw["namespace"], raw["table"], raw["version"], columns, tuple(raw["key"]))


def _type_to_json(kind: Type) -> list[Any]:
    return [kind.kind.value, kind.precision, kind.scale, _type_to_json(kind.item) if kind.item else None]


def _type_from_json(raw: list[Any]) -> Type:
    return Type(Kind(raw[0]), raw[1], raw[2], _type_from_json(raw[3]) if raw[3] else None)


class Decimals(dict[int, Decimal]):
    """Whole number → decimal of one scale. A log repeats its values, and making a Decimal is slow."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self._scale = scale

    def __missing__(self, unscaled: int) -> Decimal:
        value = Decimal(unscaled).scaleb(-self._scale)
        if len(self) >= _DECIMALS_KEPT:
            self.clear()
        self[unscaled] = value
        return value


def _format(column: Column) -> str | None:
    """The struct format of a column that is fixed in width, else None."""
    if column.type.kind is Kind.DECIMAL:
        return "q" if column.type.precision <= _DECIMAL_DIGITS_MAX else None
    return _FIXED.get(column.type.kind)


class RowCodec:
    """Packs and unpacks the rows of one table."""

    def __init__(self, table: TableSchema) -> None:
        if len(table.columns) > 64:
            raise LogUnknownError(f"{table.full_name}: simulated_rac takes at most 64 columns")
        self.table = table
        self.width = len(table.columns)
        formats = [_format(column) for column in table.columns]
        self.fixed = all(formats) and not any(column.nullable for column in table.columns)
        #: which columns hold decimals, and their values
        self.decimals = [
            (at, column.type.scale, Decimals(column.type.scale))
            for at, column in enumerate(table.columns)
            if column.type.kind is Kind.DECIMAL
        ]
        joined = "".join(format_ or "" for format_ in formats) if self.fixed else ""
        self.one = struct.Struct("<" + joined)
        self.two = struct.Struct("<" + joined * 2)
        self._singles = [struct.Struct("<" + format_) if format_ else None for format_ in formats]

    # --- writing

    def pack(self, row: Row) -> bytes:
        if len(row) != self.width:
            raise ValueError(f"{self.table.full_name} has {self.width} columns, the row has {len(row)}")
        if self.decimals:
            row = list(row)
            for at, scale, _ in self.decimals:
                if self._singles[at] is not None and row[at] is not None:
                    row[at] = int(Decimal(row[at]).scaleb(scale))
        return self.one.pack(*row) if self.fixed else self._pack_general(row)

    def _pack_general(self, row: Row) -> bytes:
        nulls = sum(1 << at for at, value in enumerate(row) if value is None)
        parts = [_BITMAP.pack(nulls)]
        for column, single, value in zip(self.table.columns, self._singles, row, strict=True):
            if value is None:
                continue
            if single is not None:
                parts.append(single.pack(value))
            else:
                text = value if isinstance(value, bytes) else _to_text(column.type, value).encode()
                parts.append(_LENGTH.pack(len(text)) + text)
        return b"".join(parts)

    # --- reading

    def reader(self, op: str) -> Callable[[bytes, int], Decoded]:
        """(record, where its row images begin) → (before, after); for tables that are not plain structs."""

        def update(raw: bytes, at: int) -> Decoded:
            before, at = self._unpack_one(raw, at)
            after, _ = self._unpack_one(raw, at)
            return before, after

        def insert(raw: bytes, at: int) -> Decoded:
            return None, self._unpack_one(raw, at)[0]

        def delete(raw: bytes, at: int) -> Decoded:
            return self._unpack_one(raw, at)[0], None

        return {"u": update, "c": insert, "d": delete}[op]

    def _unpack_one(self, raw: bytes, at: int) -> tuple[list[Any], int]:
        row: list[Any] = []
        if self.fixed:
            row.extend(self.one.unpack_from(raw, at))
            at += self.one.size
        else:
            (nulls,) = _BITMAP.unpack_from(raw, at)
            at += _BITMAP.size
            for bit, (column, single) in enumerate(zip(self.table.columns, self._singles, strict=True)):
                if nulls >> bit & 1:
                    row.append(None)
                elif single is not None:
                    row.append(single.unpack_from(raw, at)[0])
                    at += single.size
                else:
                    start = at + _LENGTH.size
                    at = start + _LENGTH.unpack_from(raw, at)[0]
                    row.append(_from_bytes(column.type, raw[start:at]))
        for index, _, values in self.decimals:
            if isinstance(row[index], int):
                row[index] = values[row[index]]
        return row, at


def _to_text(kind: Type, value: Any) -> str:
    return json.dumps(value) if kind.kind is Kind.ARRAY else str(value)


def _from_bytes(kind: Type, raw: bytes) -> Any:
    if kind.kind is Kind.BYTES:
        return raw
    text = raw.decode()
    if kind.kind is Kind.DECIMAL:
        return Decimal(text)
    return json.loads(text) if kind.kind is Kind.ARRAY else text
