"""Converts literals of LogMiner's SQL to published values.

The session's formats are fixed (`connect.SESSION_SETTINGS`), so each date has one form. All literals but text are
converted to the column's stored bytes and decoded from these: a value captured with LogMiner is identical, digit by
digit, to one read from redo files.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from lowwater.codec.table import ColumnKind
from lowwater.errors import CodecError, LogUnknownError, LowwaterError
from lowwater_extractor.sources.oracle.logminer.sql_redo import OPAQUE, Call, Literal
from lowwater_extractor.sources.oracle.rows.value_writing import encoder
from lowwater_extractor.sources.oracle.rows.values import MISSING, decoder
from lowwater_extractor.sources.oracle.types import (
    CHARACTERS,
    FRACTION_DIGITS_MAX,
    OracleColumn,
    OracleType,
    has_locator,
    published_type,
    why_unreadable,
)

Convert = Callable[[Literal], Any]

#: raised for a literal that does not fit its column
_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, struct.error, CodecError, InvalidOperation)

_FORMAT = re.compile(r"S?YYYY-MM-DD HH24:MI:SS(?:[.,]FF\d?)?(?: ?TZ[HR](?::TZM)?)?")
_MOMENT = re.compile(
    r"\s*([+-]?\d{1,4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})?)?)?"
    r"(?:\s*([+-]\d{1,2}):?(\d\d)|\s*(UTC|GMT|Z))?\s*"
)
_YEARS = re.compile(r"\s*([+-]?)(\d+)-(\d+)\s*")
_DAYS = re.compile(r"\s*([+-]?)(\d+)\s+(\d+):(\d+):(\d+)(?:[.,](\d{1,9})?)?\s*")
_WHOLE = re.compile(r"[+-]?\d+")
_MINUTE_US = 60_000_000
_EPOCH = dt.datetime(1970, 1, 1)
#: the bytes of a TIMESTAMP to microseconds since 1970
_MICROS: Callable[[bytes], Any] = decoder(OracleColumn("", 1, OracleType.TIMESTAMP, scale=6)) or bytes
_FUNCTIONS = {
    OracleType.DATE: ("TO_DATE", "TO_TIMESTAMP"),
    OracleType.TIMESTAMP: ("TO_TIMESTAMP", "TO_DATE"),
    OracleType.TIMESTAMP_TZ: ("TO_TIMESTAMP_TZ", "TO_TIMESTAMP"),
    OracleType.TIMESTAMP_LTZ: ("TO_TIMESTAMP", "TO_TIMESTAMP_TZ"),
    OracleType.INTERVAL_YM: ("TO_YMINTERVAL",),
    OracleType.INTERVAL_DS: ("TO_DSINTERVAL",),
}


def converter(column: OracleColumn) -> Convert | None:
    """The converter of this column's literals that are not NULL. None: LogMiner does not write the column's value.

    The converter returns `MISSING` if the statement shows that the value is not in the log.
    """
    if why_unreadable(column):
        return None
    convert = _converter(column)
    # LogMiner may write that it has no value of a LOB; for any other type that is an error
    may_lack = has_locator(column)

    def checked(literal: Literal) -> Any:
        if literal is OPAQUE and may_lack:
            return MISSING
        try:
            return convert(literal)
        except LowwaterError:
            raise
        except _ERRORS as error:
            raise _unfit(column, type(literal).__name__) from error

    return checked


def _converter(column: OracleColumn) -> Convert:
    kind = column.type
    if kind in CHARACTERS:
        # an empty text is NULL, except for a LOB, which can be empty
        return _text if not has_locator(column) else _lob_text
    if kind in (OracleType.RAW, OracleType.LONG_RAW, OracleType.BLOB):
        return _bytes(column)
    if kind == OracleType.NUMBER:
        return _number(column)
    if kind in (OracleType.ROWID, OracleType.UROWID):
        return _plain_text
    if kind in _FUNCTIONS:
        return _time(column)
    through = _through(column)
    if kind in (OracleType.BINARY_FLOAT, OracleType.BINARY_DOUBLE):
        return lambda literal: through(float(_plain_text(literal)))
    if kind == OracleType.BOOLEAN:
        return lambda literal: through(_boolean(literal))
    raise _unfit(column, "type")


def _through(column: OracleColumn) -> Callable[[Any], Any]:
    """Convert a Python value to the published one, by way of the column's stored bytes."""
    encode, decode = encoder(column), decoder(column)
    assert decode is not None

    def through(value: Any) -> Any:
        raw = encode(value)
        return None if raw is None else decode(raw)

    return through


def _plain_text(literal: Literal) -> str:
    if not isinstance(literal, str):
        raise TypeError("not a text")
    return literal


def _text(literal: Literal) -> str | None:
    return _plain_text(literal) or None


def _lob_text(literal: Literal) -> str:
    # LogMiner writes EMPTY_BLOB() for an empty CLOB, too
    return "" if literal == b"" else _plain_text(literal)


def _bytes(column: OracleColumn) -> Convert:
    decode = None if has_locator(column) else decoder(column)

    def convert(literal: Literal) -> Any:
        raw = b"" if literal == "" else literal
        if not isinstance(raw, bytes):
            raise TypeError("not HEXTORAW")
        if decode is None:
            return raw
        return decode(raw) if raw else None

    return convert


def _number(column: OracleColumn) -> Convert:
    kind = published_type(column).kind
    through = _through(column)

    def exact(literal: Literal) -> Any:
        return through(_plain_text(literal).strip())

    if kind in (ColumnKind.INT32, ColumnKind.INT64):
        whole = _WHOLE.fullmatch
        return lambda literal: int(literal) if isinstance(literal, str) and whole(literal) else exact(literal)
    if kind is ColumnKind.DECIMAL:
        return lambda literal: Decimal(_plain_text(literal).strip())
    return exact


def _boolean(literal: Literal) -> bool:
    if isinstance(literal, bool):
        return literal
    return {"1": True, "0": False, "TRUE": True, "FALSE": False}[_plain_text(literal).strip().upper()]


def _time(column: OracleColumn) -> Convert:
    functions = _FUNCTIONS[OracleType(column.type)]
    through = _through(column)

    def text(literal: Literal) -> str:
        return _called(column, literal, functions)

    if column.type == OracleType.INTERVAL_YM:
        return lambda literal: through(_months(text(literal)))
    if column.type == OracleType.INTERVAL_DS:
        return lambda literal: through(_days(text(literal)))
    if column.type in (OracleType.DATE, OracleType.TIMESTAMP):
        decode = decoder(column)
        assert decode is not None
        return lambda literal: decode(_bytes_of(_moment(text(literal))))
    if published_type(column).kind is ColumnKind.TIMESTAMPTZ:
        return lambda literal: _instant(_moment(text(literal)))
    if (column.scale or 0) > FRACTION_DIGITS_MAX:
        return lambda literal: through(_utc_text(_moment(text(literal))))
    return lambda literal: through(_instant(_moment(text(literal))))


def _called(column: OracleColumn, literal: Literal, functions: tuple[str, ...]) -> str:
    if isinstance(literal, str):
        return literal
    if not isinstance(literal, Call) or literal.function not in functions:
        raise _unfit(column, literal.function if isinstance(literal, Call) else type(literal).__name__)
    if literal.format is not None and not _FORMAT.fullmatch(literal.format.upper()):
        raise _unfit(column, f"the format {literal.format!r}")
    return literal.text


class _Moment(NamedTuple):
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanoseconds: int
    #: minutes east of Greenwich
    offset: int


def _moment(text: str) -> _Moment:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError("not a date in the session's formats")
    *whole, fraction, east, minutes, _ = found.groups()
    offset = 0
    if east is not None:
        offset = abs(int(east)) * 60 + int(minutes)
        offset = -offset if east.startswith("-") else offset
    year, month, day, hour, minute, second = (int(part or 0) for part in whole)
    return _Moment(year, month, day, hour, minute, second, int((fraction or "").ljust(9, "0")), offset)


def _bytes_of(moment: _Moment) -> bytes:
    """The stored bytes of a DATE or a TIMESTAMP: seven, and four more for the fraction."""
    year = moment.year
    # in years before 1, both parts are negative
    century, rest = (year // 100, year % 100) if year > 0 else (-(-year // 100), -(-year % 100))
    raw = bytes(
        [100 + century, 100 + rest, moment.month, moment.day, moment.hour + 1, moment.minute + 1, moment.second + 1]
    )
    return raw + moment.nanoseconds.to_bytes(4) if moment.nanoseconds else raw


def _instant(moment: _Moment) -> int:
    micros = _MICROS(_bytes_of(moment))
    assert isinstance(micros, int)
    return micros - moment.offset * _MINUTE_US


def _utc_text(moment: _Moment) -> str:
    """The text with nine fractional digits, in UTC: for timestamps that are published as text."""
    whole = _instant(moment._replace(nanoseconds=0))
    text = (_EPOCH + dt.timedelta(microseconds=whole)).isoformat()
    return f"{text}.{moment.nanoseconds:09d}Z"


def _months(text: str) -> int:
    found = _YEARS.fullmatch(text)
    if found is None:
        raise ValueError("not an interval of years and months")
    months = int(found[2]) * 12 + int(found[3])
    return -months if found[1] == "-" else months


def _days(text: str) -> str:
    found = _DAYS.fullmatch(text)
    if found is None:
        raise ValueError("not an interval of days and seconds")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    minus = "-" if sign == "-" else ""
    return f"P{minus}{int(days)}DT{minus}{int(hours)}H{minus}{int(minutes)}M{minus}{int(seconds)}.{fraction or '0'}S"


def _unfit(column: OracleColumn, what: str) -> LogUnknownError:
    # the literal itself is left out of the message: the column may be masked
    return LogUnknownError(
        f"column {column.name} (type {column.type}): a literal ({what}) that does not fit it",
        hint="capture the source by redo files, or report the statement's form",
    )
