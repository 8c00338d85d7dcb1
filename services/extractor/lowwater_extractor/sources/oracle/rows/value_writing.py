"""Encodes Python values to column bytes: for the simulated cluster, for LogMiner's literals, and for tests.

An encoder accepts the values that the decoder of the same column returns (`values.py`), and the corresponding Python
types. None and an empty text are NULL, as in the database: no bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from lowwater_extractor.sources.oracle.charsets import CESU8, cesu8_encode, codec_of
from lowwater_extractor.sources.oracle.rows.lobs import inline_locator
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType, has_locator, why_unreadable

Encode = Callable[[Any], bytes | None]

#: base-100 digits of a NUMBER
NUMBER_DIGITS_MAX = 20
_SECOND_US = 1_000_000
_DAY_SECONDS = 86_400
_EPOCH_DAYS = 719_468
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

ROWID_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


# -- numbers -------------------------------------------------------------------------------------------------


def encode_number(value: int | float | Decimal | str) -> bytes:
    number = value if isinstance(value, Decimal) else Decimal(value)
    if number.is_nan():
        raise ValueError("a NUMBER cannot be NaN")
    if number.is_infinite():
        return b"\xff\x65" if number > 0 else b"\x00"
    if not number:
        return b"\x80"
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    # an even exponent of ten is an integer exponent of a hundred
    text += "0" * (exponent % 2)
    text = "0" * (len(text) % 2) + text
    hundreds = bytes(int(text[at : at + 2]) for at in range(0, len(text), 2))
    first = len(hundreds) - 1 + (exponent - exponent % 2) // 2
    hundreds = hundreds.rstrip(b"\x00")
    if len(hundreds) > NUMBER_DIGITS_MAX or not -65 <= first <= 62:
        raise ValueError(f"{number} does not fit a NUMBER")
    if not sign:
        return bytes([193 + first, *(d + 1 for d in hundreds)])
    end = [102] if len(hundreds) < NUMBER_DIGITS_MAX else []
    return bytes([62 - first, *(101 - d for d in hundreds), *end])


def _encode_ieee(pack: Callable[[float], bytes]) -> Encode:
    """Big endian, with bits inverted so that bytes compare as numbers do."""

    def encode(value: float) -> bytes:
        raw = pack(value)
        return bytes(b ^ 0xFF for b in raw) if raw[0] & 0x80 else bytes([raw[0] | 0x80]) + raw[1:]

    return encode


encode_binary_float = _encode_ieee(struct.Struct(">f").pack)
encode_binary_double = _encode_ieee(struct.Struct(">d").pack)


# -- text and bytes ------------------------------------------------------------------------------------------


def _encode_text(column: OracleColumn) -> Encode:
    codec = codec_of(column.charset)

    def encode(value: str | bytes) -> bytes:
        text = value.decode() if isinstance(value, bytes) else value
        return cesu8_encode(text) if codec == CESU8 else text.encode(codec)

    return encode


def encode_boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


# -- dates and times -----------------------------------------------------------------------------------------


def _civil(days: int) -> tuple[int, int, int]:
    """Days since 1970 to year, month, day in the proleptic Gregorian calendar; also outside of `datetime`'s range."""
    era, of_era = divmod(days + _EPOCH_DAYS, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return year + era * 400 + (month <= 2), month, day


def _micros(value: dt.datetime | dt.date | int) -> int:
    if isinstance(value, int):
        return value
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    return (value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND


def _seven_bytes(seconds: int) -> bytes:
    days, of_day = divmod(seconds, _DAY_SECONDS)
    year, month, day = _civil(days)
    if not -4711 <= year <= 9999:
        raise ValueError("a date outside of the database's range")
    # 1 BC is the year 0
    label = year if year > 0 else year - 1
    century, of_century = (label // 100, label % 100) if label > 0 else (-(-label // 100), -(-label % 100))
    hour, minute = divmod(of_day // 60, 60)
    return bytes([100 + century, 100 + of_century, month, day, hour + 1, minute + 1, of_day % 60 + 1])


def encode_date(value: dt.datetime | dt.date | int) -> bytes:
    """Fractions of a second are truncated, as in the database."""
    return _seven_bytes(_micros(value) // _SECOND_US)


def encode_timestamp(value: dt.datetime | dt.date | int) -> bytes:
    """Seven bytes without a fraction, else eleven."""
    seconds, micros = divmod(_micros(value), _SECOND_US)
    return _seven_bytes(seconds) + ((micros * 1000).to_bytes(4) if micros else b"")


def encode_timestamp_tz(value: dt.datetime | int) -> bytes:
    """The instant and its UTC offset; the offset of a number is 0."""
    seconds, micros = divmod(_micros(value), _SECOND_US)
    offset = value.utcoffset() if isinstance(value, dt.datetime) else None
    minutes = int(offset.total_seconds()) // 60 if offset else 0
    # hour and minute have the same sign
    hour, minute = (minutes // 60, minutes % 60) if minutes >= 0 else (-(-minutes // 60), -(-minutes % 60))
    return _seven_bytes(seconds) + (micros * 1000).to_bytes(4) + bytes([hour + 20, minute + 60])


def zone_of(name: str) -> dt.tzinfo:
    """`+02:00`, or a region's name."""
    found = re.fullmatch(r"([+-])(\d\d):(\d\d)", name)
    if found is None:
        return ZoneInfo(name)
    minutes = int(found[2]) * 60 + int(found[3])
    return dt.timezone(dt.timedelta(minutes=-minutes if found[1] == "-" else minutes))


def _encode_local(column: OracleColumn) -> Encode:
    zone = zone_of(column.zone)

    def encode(value: dt.datetime | int) -> bytes:
        offset = (_EPOCH_UTC + dt.timedelta(microseconds=_micros(value))).astimezone(zone).utcoffset()
        return encode_timestamp(_micros(value) + (offset or dt.timedelta()) // _MICROSECOND)

    return encode


def _encode_nanoseconds(column: OracleColumn) -> Encode:
    """A timestamp of more than six digits is published as text: `2026-11-16T10:20:30.123456789Z`."""

    def encode(value: str | dt.datetime | int) -> bytes:
        if not isinstance(value, str):
            return encode_timestamp_tz(value) if column.type == OracleType.TIMESTAMP_TZ else encode_timestamp(value)
        found = re.fullmatch(r"(-?\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z?", value)
        if found is None:
            raise ValueError("not a timestamp")
        year, month, day, hour, minute, second = map(int, found.groups()[:6])
        moment = dt.datetime(year, month, day, hour, minute, second)
        nanoseconds = int((found[7] or "").ljust(9, "0"))
        if column.type == OracleType.TIMESTAMP_LTZ:
            offset = zone_of(column.zone).utcoffset(moment)
            moment += offset or dt.timedelta()
        raw = _seven_bytes((moment - _EPOCH) // dt.timedelta(seconds=1))
        if column.type == OracleType.TIMESTAMP_TZ:
            return raw + nanoseconds.to_bytes(4) + bytes([20, 60])
        return raw + (nanoseconds.to_bytes(4) if nanoseconds else b"")

    return encode


# -- intervals -----------------------------------------------------------------------------------------------

_YM = re.compile(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:T0S)?")
_DS = re.compile(r"P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?")


def encode_interval_ym(value: str | int) -> bytes:
    """`P3Y4M`, `P-3Y-4M`, or a number of months."""
    if isinstance(value, str):
        found = _YM.fullmatch(value)
        if found is None:
            raise ValueError("not an interval of years and months")
        months = 12 * int(found[1] or 0) + int(found[2] or 0)
    else:
        months = value
    sign = -1 if months < 0 else 1
    years, months = divmod(abs(months), 12)
    return (sign * years + 0x8000_0000).to_bytes(4) + bytes([sign * months + 60])


def encode_interval_ds(value: str | dt.timedelta) -> bytes:
    """`P1DT2H3M4.5S`, or a timedelta."""
    if isinstance(value, str):
        found = _DS.fullmatch(value)
        if found is None:
            raise ValueError("not an interval of days and seconds")
        days, hours, minutes = (int(found[part] or 0) for part in (1, 2, 3))
        whole = Fraction(found[4] or 0)
        nanoseconds = int(((days * 24 + hours) * 3600 + minutes * 60 + whole) * 1_000_000_000)
    else:
        nanoseconds = value // _MICROSECOND * 1000
    sign = -1 if nanoseconds < 0 else 1
    seconds, nanos = divmod(abs(nanoseconds), 1_000_000_000)
    days, of_day = divmod(seconds, _DAY_SECONDS)
    parts = (of_day // 3600, of_day // 60 % 60, of_day % 60)
    return (
        (sign * days + 0x8000_0000).to_bytes(4)
        + bytes(sign * part + 60 for part in parts)
        + (sign * nanos + 0x8000_0000).to_bytes(4)
    )


# -- rowids --------------------------------------------------------------------------------------------------


def _from_base64(text: str) -> int:
    number = 0
    for letter in text:
        number = number << 6 | ROWID_DIGITS.index(letter)
    return number


def rowid_parts(text: str) -> tuple[int, int, int]:
    """(data object, data block address, slot) of the 18 letters."""
    if len(text) != 18:
        raise ValueError("not an extended ROWID")
    dba = _from_base64(text[6:9]) << 22 | _from_base64(text[9:15])
    return _from_base64(text[:6]), dba, _from_base64(text[15:])


def encode_rowid(text: str) -> bytes:
    return struct.pack(">IIH", *rowid_parts(text))


def encode_urowid(text: str) -> bytes:
    """A logical UROWID (of an index-organized table) begins with `*`."""
    if text.startswith("*"):
        return b"\x02" + base64.b64decode(text[1:] + "=" * (-len(text[1:]) % 4))
    data_object, dba, slot = rowid_parts(text)
    return b"\x01" + struct.pack(">IHHI", data_object, slot, dba >> 22, dba & 0x3F_FFFF)


# -- per column ----------------------------------------------------------------------------------------------

_SIMPLE: dict[int, Encode] = {
    OracleType.NUMBER: encode_number,
    OracleType.DATE: encode_date,
    OracleType.TIMESTAMP: encode_timestamp,
    OracleType.TIMESTAMP_TZ: encode_timestamp_tz,
    OracleType.BINARY_FLOAT: encode_binary_float,
    OracleType.BINARY_DOUBLE: encode_binary_double,
    OracleType.INTERVAL_YM: encode_interval_ym,
    OracleType.INTERVAL_DS: encode_interval_ds,
    OracleType.RAW: bytes,
    OracleType.LONG_RAW: bytes,
    OracleType.ROWID: encode_rowid,
    OracleType.UROWID: encode_urowid,
    OracleType.BOOLEAN: encode_boolean,
}


def _encode_lob(column: OracleColumn) -> Encode:
    """A LOB in the row; text is UTF-16, as in every database with a multibyte character set."""

    def encode(value: str | bytes) -> bytes:
        if column.type in (OracleType.BLOB, OracleType.RAW):
            assert isinstance(value, bytes)
            return inline_locator(value, is_text=False)
        text = value.decode() if isinstance(value, bytes) else value
        return inline_locator(text.encode("utf-16-be"), is_text=True)

    return encode


def _plain(column: OracleColumn) -> Encode:
    if has_locator(column):
        return _encode_lob(column)
    if column.type in (OracleType.VARCHAR2, OracleType.CHAR, OracleType.LONG):
        return _encode_text(column)
    if column.type in (OracleType.TIMESTAMP, OracleType.TIMESTAMP_TZ, OracleType.TIMESTAMP_LTZ):
        if (column.scale or 0) > 6:
            return _encode_nanoseconds(column)
        if column.type == OracleType.TIMESTAMP_LTZ:
            return _encode_local(column)
    found = _SIMPLE.get(column.type)
    if found is None:
        why = why_unreadable(column) or f"type {column.type}"
        raise ValueError(f"{column.name}: cannot be written ({why})")
    return found


def encoder(column: OracleColumn) -> Encode:
    """The function that encodes values of this column; it returns None for NULL."""
    plain = _plain(column)
    # CHAR(n) is padded with blanks; `length` is in bytes
    width = column.length if column.type == OracleType.CHAR else 0
    codec = codec_of(column.charset) if width else CESU8
    blank = b" " if codec == CESU8 else " ".encode(codec)

    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        raw = plain(value)
        if raw and len(raw) < width:
            raw += blank * ((width - len(raw)) // len(blank))
        return raw or None

    return encode
