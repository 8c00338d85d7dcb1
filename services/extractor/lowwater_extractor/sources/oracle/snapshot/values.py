"""Converts columns of a copy's query to columns of the lake, with the same values as in the stream.

Most types are fetched as Arrow types, many rows at a time. If the driver or the server would represent a value
differently from the stream's decoder, the query returns one of these:

- the stored bytes (a NUMBER of any size, by UTL_RAW), which the stream's decoder decodes;
- text, which is converted to the bytes in the log (old dates, intervals), for the same decoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.codec.table import ColumnKind
from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.oracle.connect import quoted
from lowwater_extractor.sources.oracle.rows.time_values import TIMES, timestamp
from lowwater_extractor.sources.oracle.rows.values import decoder
from lowwater_extractor.sources.oracle.types import (
    CHARACTERS,
    OracleColumn,
    OracleType,
    has_locator,
    published_type,
    why_unreadable,
)

#: converts fetched columns to a column of the lake
Build = Callable[[Sequence[pa.Array], pa.DataType], pa.Array]

#: digits of Arrow decimals that the driver supports
_DECIMAL_DIGITS_MAX = 38
_TEXT, _BYTES = pa.large_string(), pa.large_binary()
#: before this date the database uses the Julian calendar, but the driver may not
_GREGORIAN = "1583-01-01"
_ISO, _FRACTION = 'SYYYY-MM-DD"T"HH24:MI:SS', ".FF9"
_MOMENT = re.compile(r"(-?)\s*(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_MONTHS = re.compile(r"([+-]?)\s*(\d+)-(\d+)")
_DAYS = re.compile(r"([+-]?)\s*(\d+) (\d+):(\d+):(\d+)(?:\.(\d+))?")
_SIGN = 0x8000_0000


class Wire(NamedTuple):
    """How a column is queried: expressions and their Arrow types. None of them: the column is null."""

    asked: tuple[tuple[str, pa.DataType], ...]
    build: Build
    #: the type for `build` that gives the same values as the stream
    natural: pa.DataType = _TEXT


def wire(column: OracleColumn, *, masked: bool = False) -> Wire:
    """`masked`: a decimal is the text of the stream's value, including its exponent, because that text is hashed."""
    name = quoted(column.name)
    if why_unreadable(column):
        # the stream never has a value of it: a copied value would never be updated
        return Wire((), _cast)
    if column.type == OracleType.NUMBER:
        return _number(column, name, masked=masked)
    if column.type in TIMES:
        return _time(column, name)
    if has_locator(column) or column.type in CHARACTERS:
        type_ = _TEXT if column.type in CHARACTERS else _BYTES
        return Wire(((name, type_),), _cast, type_)
    if column.type in _INTERVALS:
        convert = _INTERVALS[column.type]
        return Wire(((f"TO_CHAR({name})", _TEXT),), partial(_by_value, convert=convert))
    if column.type in (OracleType.ROWID, OracleType.UROWID):
        return Wire(((f"ROWIDTOCHAR({name})", _TEXT),), _cast)
    if column.type not in _PLAIN:
        raise LogUnknownError(
            f"column {column.name} has the unknown type number {column.type}",
            hint="drop the column from capture (columns.drop), and report it with the database's version",
        )
    type_, as_text = _PLAIN[column.type]
    if column.as_text:
        return Wire(((name, type_),), partial(_by_value, convert=as_text))
    return Wire(((name, type_),), _cast, type_)


def _cast(columns: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    (column,) = columns
    return column if column.type.equals(type_) else column.cast(type_)


def _by_value(columns: Sequence[pa.Array], type_: pa.DataType, *, convert: Callable[[Any], Any]) -> pa.Array:
    (column,) = columns
    return pa.array([None if value is None else convert(value) for value in column.to_pylist()], type_)


_PLAIN: dict[int, tuple[pa.DataType, Callable[[Any], str]]] = {
    OracleType.RAW: (_BYTES, lambda value: value.hex().upper()),
    OracleType.LONG_RAW: (_BYTES, lambda value: value.hex().upper()),
    OracleType.BINARY_FLOAT: (pa.float32(), repr),
    OracleType.BINARY_DOUBLE: (pa.float64(), repr),
    OracleType.BOOLEAN: (pa.bool_(), lambda value: str(value).lower()),
}


# -- numbers -------------------------------------------------------------------------------------------------


def _number(column: OracleColumn, name: str, *, masked: bool) -> Wire:
    published = published_type(column)
    if published.kind in (ColumnKind.INT32, ColumnKind.INT64):
        return Wire(((name, pa.int64()),), _cast, pa.int64())
    if published.kind is ColumnKind.DECIMAL and published.precision <= _DECIMAL_DIGITS_MAX and not masked:
        return Wire(((name, pa.decimal128(published.precision, published.scale)),), _cast)
    decode = decoder(column)
    assert decode is not None
    convert = (lambda raw: str(decode(raw))) if masked else decode
    return Wire(((f"UTL_RAW.CAST_FROM_NUMBER({name})", _BYTES),), partial(_by_value, convert=convert))


# -- times ---------------------------------------------------------------------------------------------------


def _time(column: OracleColumn, name: str) -> Wire:
    has_zone = column.type in (OracleType.TIMESTAMP_TZ, OracleType.TIMESTAMP_LTZ)
    moment = f"SYS_EXTRACT_UTC({name})" if has_zone else name
    is_date = column.type == OracleType.DATE
    text = f"TO_CHAR({{}}, '{_ISO}{'' if is_date else _FRACTION}')"
    if published_type(column).kind is ColumnKind.STRING:
        return Wire(((text.format(moment), _TEXT),), partial(_moment_texts, behind="Z" if has_zone else ""))
    first = f"DATE '{_GREGORIAN}'" if is_date else f"TIMESTAMP '{_GREGORIAN} 00:00:00'"
    ordinary = f"CASE WHEN {moment} >= {first} THEN {moment} END"
    old = f"CASE WHEN {moment} < {first} THEN {text.format(moment)} END"
    return Wire(((ordinary, pa.timestamp("us")), (old, _TEXT)), _moments, pa.int64())


def _moments(columns: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    ordinary, old = columns
    found = ordinary.cast(pa.timestamp("us")).view(pa.int64())
    if old.null_count < len(old):
        found = pc.coalesce(found, _by_value([old], pa.int64(), convert=lambda value: timestamp(moment_bytes(value))))
    return found.cast(type_)


def _moment_texts(columns: Sequence[pa.Array], type_: pa.DataType, *, behind: str) -> pa.Array:
    """Without trailing zeros of the fraction, and with a sign only in years before 1."""
    (column,) = columns
    trimmed = pc.replace_substring_regex(pc.utf8_ltrim_whitespace(column), r"(\.\d*?)0+$", r"\1")
    plain = pc.replace_substring_regex(trimmed, r"\.$", "")
    return pc.binary_join_element_wise(plain, pa.scalar(behind, _TEXT), pa.scalar("", _TEXT)).cast(type_)


def moment_bytes(text: str) -> bytes:
    """The stored bytes of `-4712-01-01T00:00:00.5`."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        raise ValueError("not a date")
    sign, year, month, day, hour, minute, second, fraction = found.groups()
    century, of_century = divmod(int(year), 100)
    turn = -1 if sign else 1
    nanoseconds = int((fraction or "").ljust(9, "0")[:9])
    head = (100 + turn * century, 100 + turn * of_century, int(month), int(day))
    return bytes([*head, int(hour) + 1, int(minute) + 1, int(second) + 1]) + nanoseconds.to_bytes(4)


# -- intervals -----------------------------------------------------------------------------------------------


def months_bytes(text: str) -> bytes:
    """The stored bytes of `+03-04`."""
    found = _MONTHS.fullmatch(text.strip())
    if found is None:
        raise ValueError("not an interval of years and months")
    turn = -1 if found[1] == "-" else 1
    return (_SIGN + turn * int(found[2])).to_bytes(4) + bytes([60 + turn * int(found[3])])


def days_bytes(text: str) -> bytes:
    """The stored bytes of `+01 02:03:04.500000`."""
    found = _DAYS.fullmatch(text.strip())
    if found is None:
        raise ValueError("not an interval of days and seconds")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    turn = -1 if sign == "-" else 1
    nanoseconds = int((fraction or "").ljust(9, "0")[:9])
    parts = bytes(60 + turn * int(part) for part in (hours, minutes, seconds))
    return (_SIGN + turn * int(days)).to_bytes(4) + parts + (_SIGN + turn * nanoseconds).to_bytes(4)


def _interval(type_: OracleType, as_bytes: Callable[[str], bytes]) -> Callable[[str], Any]:
    decode = decoder(OracleColumn("", 1, type_))
    assert decode is not None
    return lambda text: decode(as_bytes(text))


_INTERVALS: dict[int, Callable[[str], Any]] = {
    OracleType.INTERVAL_YM: _interval(OracleType.INTERVAL_YM, months_bytes),
    OracleType.INTERVAL_DS: _interval(OracleType.INTERVAL_DS, days_bytes),
}
