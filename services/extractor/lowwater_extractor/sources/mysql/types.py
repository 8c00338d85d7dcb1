"""Maps MySQL column types to published types and to readers of log bytes. `docs/mysql.md` has the table."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lowwater.codec import table as t
from lowwater.codec.table import Type
from lowwater.errors import ConfigError, LogUnknownError
from lowwater_extractor.row_program import DECIMAL_DIGITS_MAX, What
from lowwater_extractor.row_program import column as quick
from lowwater_extractor.sources.mysql.wire import binary_values as bv
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.binary_values import Convert
from lowwater_extractor.sources.mysql.wire.charsets import BINARY, Decoders
from lowwater_extractor.sources.mysql.wire.json_values import json_text
from lowwater_extractor.sources.mysql.wire.table_map import WireColumn

#: collation of binary strings; columns that are not strings have none
BINARY_COLLATION = 63

_INTEGERS = {tm.TINY: "b", tm.SHORT: "h", tm.LONG: "i", tm.LONGLONG: "q"}


@dataclass(frozen=True, slots=True)
class ColumnCode:
    """The published type of a column, and how it is read from a row."""

    type: Type
    #: `struct` format of a value with fixed size; otherwise empty
    format: str = ""
    #: size of the length prefix of a value with variable size
    length_bytes: int = 0
    #: converts the bytes or number to a value; None: no conversion
    convert: Callable[[Any], Any] | None = None
    #: the conversion for the compiled fast path; empty: none
    quick: bytes = b""
    #: text that is copied unchanged and must be valid UTF-8
    is_utf8: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """Configured options for columns."""

    as_text: frozenset[str] = frozenset()
    #: publish invalid dates as NULL
    is_zero_null: bool = False


def column_code(column: WireColumn, where: str, decoders: Decoders, wanted: Wanted) -> ColumnCode:
    """`where`: `namespace.table.column`."""
    if where in wanted.as_text:
        return _as_text(column, where)
    kind = column.type
    if kind in _INTEGERS or kind == tm.INT24:
        return _integer(column)
    if kind in (tm.VARCHAR, tm.STRING, tm.BLOB):
        return _text(column, where, decoders)
    if kind in (tm.ENUM, tm.SET):
        return _labelled(column, where, decoders)
    code = _other(column)
    if code is None:
        raise LogUnknownError(
            f"{where} has an unknown type: {kind}",
            hint="take the table out of `tables`, or change the column's type; and report it",
        )
    if wanted.is_zero_null and code.type in (t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ):
        assert code.convert is not None
        return replace(code, convert=bv.null_if_zero(code.convert))
    return code


def _integer(column: WireColumn) -> ColumnCode:
    what = What.UNSIGNED if column.is_unsigned else What.SIGNED
    if column.type == tm.INT24:
        convert = bv.unsigned_24 if column.is_unsigned else bv.signed_24
        return ColumnCode(t.INT32, "3s", convert=convert, quick=quick(what, 3))
    letter = _INTEGERS[column.type]
    number = quick(what, struct.calcsize(letter))
    if not column.is_unsigned:
        return ColumnCode(t.INT64 if column.type == tm.LONGLONG else t.INT32, letter, quick=number)
    if column.type == tm.LONGLONG:
        # an unsigned 64-bit number does not fit a long
        return ColumnCode(t.decimal(20, 0), letter.upper())
    return ColumnCode(t.INT64 if column.type == tm.LONG else t.INT32, letter.upper(), quick=number)


def _other(column: WireColumn) -> ColumnCode | None:
    digits = column.size
    match column.type:
        case tm.FLOAT:
            return ColumnCode(t.FLOAT32, "f", quick=quick(What.COPIED, 4))
        case tm.DOUBLE:
            return ColumnCode(t.FLOAT64, "d", quick=quick(What.COPIED, 8))
        case tm.NEWDECIMAL:
            return _decimal(column)
        case tm.YEAR:
            return ColumnCode(t.INT32, "B", convert=bv.year)
        case tm.DATE:
            return ColumnCode(t.DATE, "3s", convert=bv.date, quick=quick(What.DATE, 3))
        case tm.DATETIME2:
            size = bv.temporal_size(5, digits)
            code = quick(What.DATETIME, size, size - 5)
            return ColumnCode(t.TIMESTAMP, f"{size}s", convert=bv.datetime(digits), quick=code)
        case tm.TIMESTAMP2:
            size = bv.temporal_size(4, digits)
            code = quick(What.TIMESTAMP, size, size - 4)
            return ColumnCode(t.TIMESTAMPTZ, f"{size}s", convert=bv.timestamp(digits), quick=code)
        case tm.TIME2:
            return ColumnCode(t.INT64, f"{bv.temporal_size(3, digits)}s", convert=bv.time(digits))
        case tm.DATETIME:
            return ColumnCode(t.TIMESTAMP, "8s", convert=bv.old_datetime)
        case tm.TIMESTAMP:
            return ColumnCode(t.TIMESTAMPTZ, "4s", convert=bv.old_timestamp)
        case tm.TIME:
            return ColumnCode(t.INT64, "3s", convert=bv.old_time)
        case tm.BIT:
            size = (column.size + 7) // 8
            is_boolean = column.size == 1
            return ColumnCode(
                t.BOOLEAN if is_boolean else t.BYTES, f"{size}s", convert=bv.boolean if is_boolean else None
            )
        case tm.JSON:
            return ColumnCode(t.JSON, length_bytes=_length_bytes(column), convert=json_text)
        case tm.GEOMETRY:
            size = _length_bytes(column)
            return ColumnCode(t.BYTES, length_bytes=size, quick=quick(What.COUNTED, size))
        case _:
            return None


def _text(column: WireColumn, where: str, decoders: Decoders) -> ColumnCode:
    length_bytes = _length_bytes(column) if column.type == tm.BLOB else 1 if column.size < 256 else 2
    charset = BINARY if column.collation == BINARY_COLLATION else _charset(column, where, decoders)
    convert: Convert | None = None
    if charset != BINARY:
        convert = decoders.decoder(charset)
    elif column.type == tm.STRING:
        convert = bv.padded(column.size)
    type_ = t.BYTES if charset == BINARY else t.STRING
    # UTF-8 text and bytes are copied unchanged; text is checked, because MariaDB accepts surrogates
    is_text = charset != BINARY
    code = quick(What.UTF8 if is_text else What.COUNTED, length_bytes) if convert is None else b""
    return ColumnCode(type_, "", length_bytes, convert, code, is_utf8=is_text and convert is None)


def _length_bytes(column: WireColumn) -> int:
    """Return the size of the length prefix from the log; valid are 1 to 4 bytes."""
    if not 1 <= column.size <= 4:
        raise LogUnknownError(
            f"{column.name or 'a column'} has values with a length of {column.size} bytes",
            hint="report it with the server's version",
        )
    return column.size


def _decimal(column: WireColumn) -> ColumnCode:
    digits, scale = column.size, column.scale
    size = bv.decimal_size(digits, scale)
    code = quick(What.DECIMAL, size, digits, scale) if digits <= DECIMAL_DIGITS_MAX else b""
    return ColumnCode(t.decimal(digits, scale), f"{size}s", convert=bv.decimal(digits, scale), quick=code)


def _charset(column: WireColumn, where: str, decoders: Decoders) -> str:
    if not column.collation:
        raise LogUnknownError(
            f"the log does not contain the character set of {where}",
            hint="SET GLOBAL binlog_row_metadata = FULL on the server",
        )
    return decoders.charset(column.collation)


def _labelled(column: WireColumn, where: str, decoders: Decoders) -> ColumnCode:
    if column.labels is None:
        raise LogUnknownError(
            f"the log does not have the labels of {where}", hint="SET GLOBAL binlog_row_metadata = FULL on the server"
        )
    charset = decoders.charset(column.collation) if column.collation else "utf8mb4"
    labels = [decoders.text(charset, label) for label in column.labels]
    if column.type == tm.ENUM:
        return ColumnCode(t.STRING, "B" if column.size == 1 else "H", convert=bv.label_of_enum(labels))
    return ColumnCode(t.array(t.STRING), f"{column.size}s", convert=bv.labels_of_set(labels))


def _as_text(column: WireColumn, where: str) -> ColumnCode:
    digits = column.size
    match column.type:
        case tm.DATE:
            return ColumnCode(t.STRING, "3s", convert=bv.date_text)
        case tm.DATETIME2:
            return ColumnCode(t.STRING, f"{bv.temporal_size(5, digits)}s", convert=bv.datetime_text(digits))
        case tm.TIMESTAMP2:
            return ColumnCode(t.STRING, f"{bv.temporal_size(4, digits)}s", convert=bv.timestamp_text(digits))
        case tm.TIME2:
            return ColumnCode(t.STRING, f"{bv.temporal_size(3, digits)}s", convert=bv.time_text(digits))
        case _:
            raise ConfigError(
                f"as_text: {where} is no date and no time", hint="all other types are captured without loss"
            )
