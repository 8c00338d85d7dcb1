"""Converts Arrow columns of the ADBC driver to lake columns, whole columns at a time.

The driver shifts dates and timestamps from epoch 2000 to epoch 1970 without an overflow check: PostgreSQL's infinity
and values beyond 64 bits of microseconds wrap around. The wrapped values are far below PostgreSQL's first date, so they
are recognizable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.errors import CodecError
from lowwater_extractor.sources.postgres.wire.text_values import DATE_INFINITY, INSTANT_INFINITY

_DAYS_TO_2000 = 10_957
_MICROS_TO_2000 = _DAYS_TO_2000 * 86_400_000_000
_DAY_US = 86_400_000_000
#: below PostgreSQL's first date, 4714 BC
_FIRST_DAY = -3_000_000


def as_it_is(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type.equals(type_) else column.cast(type_)


def decimals(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert numerics, which the driver returns as text in an extension type."""
    text = column.storage if isinstance(column, pa.ExtensionArray) else column
    try:
        return text.cast(type_)
    except pa.ArrowInvalid as error:
        raise CodecError(
            f"a decimal that is not a number or needs more than ({type_.precision}, {type_.scale})",
            hint="capture the column `as_text`",
        ) from error


def dates(column: pa.Array, type_: pa.DataType) -> pa.Array:
    wrapped = (-(1 << 31) + _DAYS_TO_2000 - 1, -(1 << 31) + _DAYS_TO_2000)
    return _mended(column, pa.int32(), _FIRST_DAY, wrapped, DATE_INFINITY).cast(type_)


def instants(column: pa.Array, type_: pa.DataType) -> pa.Array:
    wrapped = (-(1 << 63) + _MICROS_TO_2000 - 1, -(1 << 63) + _MICROS_TO_2000)
    return _mended(column, pa.int64(), _FIRST_DAY * _DAY_US, wrapped, INSTANT_INFINITY).cast(type_)


def _mended(column: pa.Array, number: pa.DataType, first: int, wrapped: tuple[int, int], infinity: int) -> pa.Array:
    """Replace wrapped values. `wrapped`: the driver's values for infinity and -infinity."""
    values = column.view(number)
    least = pc.min(values).as_py()
    if least is None or least >= first:
        return values
    for what, value in zip(wrapped, (infinity, -infinity), strict=True):
        values = pc.if_else(pc.equal(values, pa.scalar(what, number)), pa.scalar(value, number), values)
    is_wrong = pc.and_(pc.less(values, pa.scalar(first, number)), pc.not_equal(values, pa.scalar(-infinity, number)))
    if pc.any(is_wrong).as_py():
        raise CodecError("a timestamp beyond 64 bits of microseconds", hint="capture the column `as_text`")
    return values


def times(column: pa.Array, type_: pa.DataType) -> pa.Array:
    values = column.view(pa.int64())
    last = pc.max(values).as_py()
    if last is not None and last >= _DAY_US:
        raise CodecError("a time of day of 24:00 or more", hint="capture the column `as_text`")
    return values.cast(type_)


def by_value(column: pa.Array, type_: pa.DataType, convert: Callable[[bytes], Any]) -> pa.Array:
    """Convert the server's text value by value, as the stream does, for types without a faster conversion."""
    found = [None if value is None else convert(value) for value in column.cast(pa.binary()).to_pylist()]
    return pa.array(found, type_)
