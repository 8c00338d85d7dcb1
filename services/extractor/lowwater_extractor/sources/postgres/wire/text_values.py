"""Converts PostgreSQL's text output to the Python values that the encoder takes.

The session settings fix the text format: ISO dates, UTC, hexadecimal bytea, ISO 8601 intervals and the C locale for
money. Strings stay UTF-8 bytes and are never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from lowwater.errors import CodecError

Convert = Callable[[bytes], Any]

#: settings that determine the text format, for every session that reads values
SESSION_SETTINGS = {
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    "client_encoding": "UTF8",
}

#: infinity (negated: -infinity), with the values that DuckDB and Java readers use
INSTANT_INFINITY = (1 << 63) - 1
DATE_INFINITY = (1 << 31) - 1

_DAY_US = 86_400_000_000
_EPOCH_DAYS = 719_468


def boolean(v: bytes) -> bool:
    return v == b"t"


def binary(v: bytes) -> bytes:
    """`\\x0102`"""
    return bytes.fromhex(v[2:].decode())


def bare_hex(v: bytes) -> bytes:
    """PostGIS writes its geometries as hexadecimal EWKB."""
    return bytes.fromhex(v.decode())


def numeric(v: bytes) -> Decimal:
    return Decimal(v.decode())


def money(v: bytes) -> Decimal:
    """`-$1,234.50` in the C locale."""
    return Decimal(v.replace(b"$", b"").replace(b",", b"").decode())


def _days_of(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar, also outside the range of `datetime`."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


@lru_cache(maxsize=65_536)
def days(v: bytes) -> int:
    """`2026-11-16`, `0044-03-15 BC`, `infinity`."""
    if v == b"infinity":
        return DATE_INFINITY
    if v == b"-infinity":
        return -DATE_INFINITY
    is_bc = v.endswith(b" BC")
    year, month, day = map(int, (v[:-3] if is_bc else v).split(b"-"))
    # 1 BC is the year 0
    return _days_of(1 - year if is_bc else year, month, day)


@lru_cache(maxsize=131_072)
def _clock_us(v: bytes) -> int:
    """`HH:MM:SS`"""
    return ((int(v[:2]) * 60 + int(v[3:5])) * 60 + int(v[6:8])) * 1_000_000


def _fraction_us(v: bytes) -> int:
    return int(v.ljust(6, b"0")) if v else 0


def time(v: bytes) -> int:
    return _clock_us(v[:8]) + _fraction_us(v[9:])


def timestamp(v: bytes) -> int:
    """`2026-11-16 11:40:15.25`; years that do not have four digits, BC and infinity take the slow path."""
    if v[10:11] == b" " and v[4:5] == b"-" and not v.endswith(b"C"):
        return days(v[:10]) * _DAY_US + _clock_us(v[11:19]) + _fraction_us(v[20:])
    return _far(v)


def instant(v: bytes) -> int:
    """A timestamp followed by `+00`: the session's time zone is UTC. Raises CodecError for another zone."""
    if len(v) == 29 and v[26:] == b"+00" and v[10] == 0x20:
        # fast path: six fractional digits, the most common form
        return days(v[:10]) * _DAY_US + _clock_us(v[11:19]) + int(v[20:26])
    if v[-3:] == b"+00" and v[10:11] == b" " and v[4:5] == b"-":
        return days(v[:10]) * _DAY_US + _clock_us(v[11:19]) + _fraction_us(v[20:-3])
    if v.endswith(b"infinity"):
        return _far(v)
    bare = v.removesuffix(b" BC")
    if not bare.endswith(b"+00"):
        raise CodecError(
            "an instant that is not in UTC",
            hint="does a connection pooler drop the session's settings? connect to the server directly",
        )
    return _far(bare[:-3] + v[len(bare) :])


def _far(v: bytes) -> int:
    if v == b"infinity":
        return INSTANT_INFINITY
    if v == b"-infinity":
        return -INSTANT_INFINITY
    is_bc = v.endswith(b" BC")
    date, _, clock = (v[:-3] if is_bc else v).partition(b" ")
    return days(date + b" BC" if is_bc else date) * _DAY_US + _clock_us(clock[:8]) + _fraction_us(clock[9:])


def array(depth: int, item: Convert, delimiter: bytes = b",") -> Convert:
    """Return a converter of `{1,2,NULL}`, `{{a,"b c"},{d,e}}`, `[0:1]={7,8}` to lists nested `depth` levels."""

    def convert(v: bytes) -> list[Any]:
        if v[:1] == b"[":
            # lower bounds other than 1 are dropped
            v = v[v.index(b"=") + 1 :]
        found, at = _list(v, 1, delimiter[0], item, depth)
        if at != len(v):
            raise CodecError("an array with trailing text")
        return found

    return convert


def _list(v: bytes, at: int, delimiter: int, item: Convert, depth: int) -> tuple[list[Any], int]:
    """Parse items after an opening brace; return them and the offset after the closing brace."""
    found: list[Any] = []
    while v[at] != 0x7D:
        if v[at] == delimiter:
            at += 1
        if v[at] == 0x7B:
            if depth < 2:
                raise CodecError(
                    "an array of more dimensions than its column declares",
                    hint="declare them (ALTER TABLE … TYPE int[][]), or capture the column `as_text`",
                )
            inner, at = _list(v, at + 1, delimiter, item, depth - 1)
            found.append(inner)
            continue
        if depth > 1:
            raise CodecError(
                f"an array of fewer dimensions than its column declares ({depth} more)",
                hint="capture the column `as_text`",
            )
        value, at = _item(v, at, delimiter)
        found.append(None if value is None else item(value))
    return found, at + 1


def _item(v: bytes, at: int, delimiter: int) -> tuple[bytes | None, int]:
    if v[at] != 0x22:
        end = at
        while v[end] not in (delimiter, 0x7D):
            end += 1
        # unquoted NULL is null; the text "NULL" is quoted
        return (None if v[at:end].upper() == b"NULL" else v[at:end]), end
    parts = bytearray()
    at += 1
    while v[at] != 0x22:
        if v[at] == 0x5C:
            at += 1
        parts.append(v[at])
        at += 1
    return bytes(parts), at + 1
