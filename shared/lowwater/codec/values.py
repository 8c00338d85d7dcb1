"""Encodes one value of one type in Avro.

The compiled encoder inlines the common cases, calls these functions for the others, and is tested against them.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any

from lowwater.codec import varint
from lowwater.codec.table import ColumnKind, Type
from lowwater.errors import CodecError

Write = Callable[[Any], bytes]

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_DAY_US = 86_400_000_000


def _refuse(value: object, want: str) -> CodecError:
    # the message does not contain the value: it may be masked
    return CodecError(f"a {type(value).__name__} cannot become {want}")


def int32(n: int) -> bytes:
    if not -(1 << 31) <= n < 1 << 31:
        raise CodecError("a number beyond 32 bits", hint="the column was widened: start a new table version")
    return varint.long(n)


def int64(n: int) -> bytes:
    if not -(1 << 63) <= n < 1 << 63:
        raise CodecError("a number beyond 64 bits", hint="capture the column as decimal")
    return varint.long(n)


def boolean(b: bool) -> bytes:
    return b"\x01" if b else b"\x00"


def data(b: bytes) -> bytes:
    return varint.long(len(b)) + b


def text(s: str | bytes) -> bytes:
    """Bytes must be UTF-8."""
    return data(s if isinstance(s, bytes) else s.encode())


def decimal_writer(precision: int, scale: int) -> Write:
    # a value that does not fit must raise: with these traps nothing is rounded silently
    context = Context(prec=precision + scale + 2, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Inexact])
    factor, limit = 10**scale, 10**precision

    def write(value: Decimal | int) -> bytes:
        if isinstance(value, int):
            unscaled = value * factor
        else:
            try:
                scaled = context.scaleb(value, scale)
                # int() of a huge exponent would create as many digits
                unscaled = int(scaled) if scaled.adjusted() <= precision else limit
            except (InvalidOperation, Inexact, ValueError, OverflowError) as error:
                raise CodecError(
                    f"a decimal that is not a number or needs more than ({precision}, {scale})",
                    hint="capture the column as text",
                ) from error
            if unscaled != scaled and unscaled != limit:
                raise CodecError(f"a decimal that needs more than {scale} places")
        if not -limit < unscaled < limit:
            raise CodecError(f"a decimal that needs more than {precision} digits")
        return data(unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True))

    return write


def days(value: dt.date | int) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH_DAY
    raise _refuse(value, "a date")


def time_micros(value: dt.time | int) -> int:
    if isinstance(value, int):
        if not 0 <= value < _DAY_US:
            raise CodecError("a time of day beyond a day", hint="capture the column as int64 or as text")
        return value
    if isinstance(value, dt.time) and value.tzinfo is None:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000 + value.microsecond
    raise _refuse(value, "a time without zone")


def timestamp_micros(value: dt.datetime | int) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    raise _refuse(value, "a timestamp without zone")


def instant_micros(value: dt.datetime | int) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return (value - _EPOCH_UTC) // _MICROSECOND
    raise _refuse(value, "a timestamp with zone")


def uuid_text(value: uuid.UUID | str | bytes) -> bytes:
    if isinstance(value, bytes):
        return data(value)
    return text(str(value if isinstance(value, uuid.UUID) else uuid.UUID(value)))


def array(items: list[Any], item: Write) -> bytes:
    # iterating over a string would yield its characters
    if not isinstance(items, list | tuple):
        raise _refuse(items, "an array")
    if not items:
        return b"\x00"
    parts = [b"\x00" if value is None else b"\x02" + item(value) for value in items]
    return varint.long(len(parts)) + b"".join(parts) + b"\x00"


_WRITERS: dict[ColumnKind, Write] = {
    ColumnKind.BOOLEAN: boolean,
    ColumnKind.INT32: int32,
    ColumnKind.INT64: int64,
    ColumnKind.FLOAT32: struct.Struct("<f").pack,
    ColumnKind.FLOAT64: struct.Struct("<d").pack,
    ColumnKind.STRING: text,
    ColumnKind.BYTES: data,
    ColumnKind.DATE: lambda v: int32(days(v)),
    ColumnKind.TIME: lambda v: int64(time_micros(v)),
    ColumnKind.TIMESTAMP: lambda v: int64(timestamp_micros(v)),
    ColumnKind.TIMESTAMPTZ: lambda v: int64(instant_micros(v)),
    ColumnKind.UUID: uuid_text,
    ColumnKind.JSON: text,
}


def writer(type_: Type) -> Write:
    """The function that encodes a non-null value of this type, without the union branch."""
    if type_.kind is ColumnKind.DECIMAL:
        return decimal_writer(type_.precision, type_.scale)
    if type_.kind is ColumnKind.ARRAY:
        assert type_.item is not None
        return partial(array, item=writer(type_.item))
    return _WRITERS[type_.kind]
