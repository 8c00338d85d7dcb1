"""Types of columns, conversion of BSON values, and widening of columns. `docs/mongodb.md` has this as a table.

A column has the type of the first value of its field. A value that does not fit widens the column, if there is a type
that holds all earlier values too: 32-bit integers to 64 bits or doubles, integers to decimals. If there is none, the
column stays as it is, and the value is stored in `_rest`. A column of JSON holds all values.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Any

from bson.decimal128 import Decimal128

from lowwater.codec import table as t
from lowwater_extractor.sources.mongodb.wire import extended_json as extended
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb
from lowwater_extractor.sources.mongodb.wire.raw_bson import Value

#: precision and scale of all decimal columns: 20 digits before the decimal point hold every 64-bit integer
DECIMAL_DIGITS, DECIMAL_SCALE = 38, 18

EXACT_IN_DOUBLE = 1 << 53
_DATE_MS_MAX = (1 << 63) // 1000
_UUID_SUBTYPE = 4
_PLAIN_SUBTYPE = 0

Convert = Callable[[bytes, int, int], Any]


class FieldType(StrEnum):
    BOOLEAN = "boolean"
    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    OBJECT_ID = "objectid"
    UUID = "uuid"
    BINARY = "binary"
    DATE = "date"
    JSON = "json"


COLUMN_TYPES: dict[FieldType, t.Type] = {
    FieldType.BOOLEAN: t.BOOLEAN,
    FieldType.INT32: t.INT32,
    FieldType.INT64: t.INT64,
    FieldType.DOUBLE: t.FLOAT64,
    FieldType.DECIMAL: t.decimal(DECIMAL_DIGITS, DECIMAL_SCALE),
    FieldType.STRING: t.STRING,
    FieldType.OBJECT_ID: t.STRING,
    FieldType.UUID: t.UUID,
    FieldType.BINARY: t.BYTES,
    FieldType.DATE: t.TIMESTAMPTZ,
    FieldType.JSON: t.JSON,
}

_OF_BSON: dict[int, FieldType] = {
    rb.BOOLEAN: FieldType.BOOLEAN,
    rb.INT32: FieldType.INT32,
    rb.INT64: FieldType.INT64,
    rb.DOUBLE: FieldType.DOUBLE,
    rb.DECIMAL: FieldType.DECIMAL,
    rb.STRING: FieldType.STRING,
    rb.OBJECT_ID: FieldType.OBJECT_ID,
    rb.DATE: FieldType.DATE,
}

_WIDER: dict[FieldType, tuple[FieldType, ...]] = {
    FieldType.INT32: (FieldType.INT64, FieldType.DOUBLE, FieldType.DECIMAL),
    # not to a double, which does not represent every 64-bit integer
    FieldType.INT64: (FieldType.DECIMAL,),
}


class Misfit(Exception):
    """A value whose type fits its column, but which the column cannot represent."""


def type_of(data: bytes, value: Value) -> FieldType:
    """Return the type of a column for this value alone."""
    if value.type == rb.BINARY:
        subtype = data[value.at + 4]
        if subtype == _UUID_SUBTYPE and value.end - value.at == 21:
            return FieldType.UUID
        return FieldType.BINARY if subtype == _PLAIN_SUBTYPE else FieldType.JSON
    return _OF_BSON.get(value.type, FieldType.JSON)


def widened(column: FieldType, value: FieldType) -> FieldType:
    """Return the type of a column that holds its values and the new one; unchanged if no type holds both."""
    return value if value in _WIDER.get(column, ()) else column


# -- values ----------------------------------------------------------------------------------------------


def _long_as_double(data: bytes, at: int, _: int) -> float:
    (number,) = rb.int64(data, at)
    if not -EXACT_IN_DOUBLE <= number <= EXACT_IN_DOUBLE:
        raise Misfit
    return float(number)


def _double_as_long(data: bytes, at: int, _: int) -> int:
    """Only for keys: to the server, 5.0 and 5 are the same `_id`."""
    (number,) = rb.double(data, at)
    if not number.is_integer() or not -EXACT_IN_DOUBLE <= number <= EXACT_IN_DOUBLE:
        raise Misfit
    return int(number)


def _decimal(data: bytes, at: int, end: int) -> Decimal:
    number = Decimal128.from_bid(data[at:end]).to_decimal()
    if not number.is_finite() or (number.is_zero() and number.is_signed()):
        raise Misfit
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number.adjusted() >= DECIMAL_DIGITS - DECIMAL_SCALE:
        raise Misfit
    # the value is preserved, but not trailing zeros after the scale
    while exponent < -DECIMAL_SCALE and digits[-1] == 0 and len(digits) > 1:
        digits, exponent = digits[:-1], exponent + 1
    if exponent < -DECIMAL_SCALE and digits != (0,):
        raise Misfit
    return Decimal((sign, digits, exponent)) if digits != (0,) else Decimal(0)


def _string(data: bytes, at: int, end: int) -> bytes:
    raw = data[at + 4 : end - 1]
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise Misfit from error
    return raw


def _uuid(data: bytes, at: int, end: int) -> bytes:
    if end - at != 21 or data[at + 4] != _UUID_SUBTYPE:
        raise Misfit
    shown = data[at + 5 : end].hex()
    return f"{shown[:8]}-{shown[8:12]}-{shown[12:16]}-{shown[16:20]}-{shown[20:]}".encode()


def _binary(data: bytes, at: int, end: int) -> bytes:
    if data[at + 4] != _PLAIN_SUBTYPE:
        raise Misfit
    return data[at + 5 : end]


def _date(data: bytes, at: int, _: int) -> int:
    (ms,) = rb.int64(data, at)
    if not -_DATE_MS_MAX < ms < _DATE_MS_MAX:
        raise Misfit
    return int(ms) * 1000


def _int32(data: bytes, at: int, _: int) -> int:
    return int(rb.int32(data, at)[0])


def _int64(data: bytes, at: int, _: int) -> int:
    return int(rb.int64(data, at)[0])


def _int32_as_double(data: bytes, at: int, _: int) -> float:
    return float(rb.int32(data, at)[0])


def _double(data: bytes, at: int, _: int) -> float:
    return float(rb.double(data, at)[0])


def _hex(data: bytes, at: int, end: int) -> bytes:
    return data[at:end].hex().encode()


def _boolean(data: bytes, at: int, _: int) -> bool:
    return data[at] != 0


def _json(type_: int) -> Convert:
    return lambda data, at, end: extended.text(data, Value(type_, at, end))


#: (column type, BSON type) → conversion
CONVERTS: dict[tuple[FieldType, int], Convert] = {
    (FieldType.BOOLEAN, rb.BOOLEAN): _boolean,
    (FieldType.INT32, rb.INT32): _int32,
    (FieldType.INT64, rb.INT32): _int32,
    (FieldType.INT64, rb.INT64): _int64,
    (FieldType.DOUBLE, rb.INT32): _int32_as_double,
    (FieldType.DOUBLE, rb.INT64): _long_as_double,
    (FieldType.DOUBLE, rb.DOUBLE): _double,
    (FieldType.DECIMAL, rb.INT32): _int32,
    (FieldType.DECIMAL, rb.INT64): _int64,
    (FieldType.DECIMAL, rb.DECIMAL): _decimal,
    (FieldType.STRING, rb.STRING): _string,
    (FieldType.OBJECT_ID, rb.OBJECT_ID): _hex,
    (FieldType.UUID, rb.BINARY): _uuid,
    (FieldType.BINARY, rb.BINARY): _binary,
    (FieldType.DATE, rb.DATE): _date,
    **{(FieldType.JSON, type_): _json(type_) for type_ in rb.SIZES},
}

# -- keys ------------------------------------------------------------------------------------------------

#: BSON type of `_id` → column type; all other types are JSON
_ID_TYPES = {
    rb.OBJECT_ID: FieldType.OBJECT_ID,
    rb.STRING: FieldType.STRING,
    rb.INT32: FieldType.INT64,
    rb.INT64: FieldType.INT64,
}

ID_CONVERTS: dict[tuple[FieldType, int], Convert] = {**CONVERTS, (FieldType.INT64, rb.DOUBLE): _double_as_long}


def id_type_of(data: bytes, value: Value) -> FieldType:
    """Return the type of the column `_id`, by its first value. Integers have 64 bits: a key is never widened."""
    if value.type == rb.DOUBLE:
        try:
            _double_as_long(data, value.at, value.end)
        except Misfit:
            return FieldType.JSON
        return FieldType.INT64
    found = type_of(data, value)
    return FieldType.UUID if found is FieldType.UUID else _ID_TYPES.get(value.type, FieldType.JSON)
