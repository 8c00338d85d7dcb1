"""Encodes dataclasses in Avro and decodes them, by their type hints.

For records that are written about once a second or less often. Frequent ones (Commit, Mark, OrderKey) have special
code in `lowwater.records.codec`, which is tested against this module.
"""

from __future__ import annotations

import dataclasses
import io
import types
import typing
from functools import cache
from typing import Any

import fastavro

from lowwater.records.positions import Order

_U64 = {"type": "fixed", "name": "U64", "namespace": "lowwater", "size": 8}
_PLAIN: dict[type, str] = {int: "long", str: "string", bytes: "bytes", bool: "boolean"}


def schema_of(record: type) -> dict[str, Any]:
    """The Avro schema of a record class; a named type is defined where it first occurs."""
    return typing.cast("dict[str, Any]", _schema(record, set()))


def _schema(hint: Any, named: set[str]) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        return ["null", _schema(inner, named)]
    if origin is tuple:
        return {"type": "array", "items": _schema(typing.get_args(hint)[0], named)}
    if hint is Order:
        return _order_schema(named)
    if dataclasses.is_dataclass(hint):
        name = f"lowwater.{hint.__name__}"  # type: ignore[union-attr]
        if name in named:
            return name
        named.add(name)
        hints = typing.get_type_hints(hint)
        fields = [{"name": f.name, "type": _schema(hints[f.name], named)} for f in dataclasses.fields(hint)]
        return {"type": "record", "name": hint.__name__, "namespace": "lowwater", "fields": fields}  # type: ignore[union-attr]
    if isinstance(hint, type) and issubclass(hint, str):
        return "string"
    return _PLAIN[hint]


def _order_schema(named: set[str]) -> Any:
    if "lowwater.Order" in named:
        return "lowwater.Order"
    named.update(("lowwater.Order", "lowwater.U64"))
    fields = [{"name": "major", "type": _U64}, {"name": "minor", "type": "lowwater.U64"}]
    return {"type": "record", "name": "Order", "namespace": "lowwater", "fields": fields}


@cache
def _parsed(record: type) -> Any:
    return fastavro.parse_schema(schema_of(record))


@cache
def _hints(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _plain(value: Any) -> Any:
    if isinstance(value, Order):
        return {"major": value.major.to_bytes(8, "big"), "minor": value.minor.to_bytes(8, "big")}
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _typed(value: Any, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        return None if value is None else _typed(value, inner)
    if origin is tuple:
        return tuple(_typed(item, typing.get_args(hint)[0]) for item in value)
    if hint is Order:
        return Order(int.from_bytes(value["major"], "big"), int.from_bytes(value["minor"], "big"))
    if dataclasses.is_dataclass(hint):
        return hint(**{name: _typed(value[name], inner) for name, inner in _hints(hint).items()})  # type: ignore[arg-type, operator]
    return hint(value)


def encode(record: Any) -> bytes:
    out = io.BytesIO()
    record_type: type = type(record)
    fastavro.schemaless_writer(out, _parsed(record_type), _plain(record))
    return out.getvalue()


def decode(data: bytes, record: type) -> Any:
    return _typed(fastavro.schemaless_reader(io.BytesIO(data), _parsed(record), None), record)
