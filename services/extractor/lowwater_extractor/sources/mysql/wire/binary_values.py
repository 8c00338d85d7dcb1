"""Converts values in rows of the log to the Python values that the encoder takes.

Zero dates (`0000-00-00`, `2026-00-10`) are not valid dates: a column that contains them must be captured `as_text`, or
with `zero_dates: null`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from lowwater.errors import CodecError

Convert = Callable[[bytes], Any]

_DAY_US = 86_400_000_000
_EPOCH_DAYS = 719_468
#: bytes for 0 … 9 digits of a decimal
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_DATETIME_OFFSET = 0x80_0000_0000

_YEAR_MAX = 9999
_MONTH_DAYS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

ZERO_DATE_HINT = "capture the column `as_text`; or set zero_dates: null to capture it as null"


def zero_date() -> CodecError:
    return ZeroDateError("an invalid date, such as 0000-00-00", hint=ZERO_DATE_HINT)


def _no_time() -> CodecError:
    return CodecError("bytes that are not a date or time", hint="report it with the server's version")


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


class ZeroDateError(CodecError):
    """An invalid date. A type of its own, because `zero_dates: null` applies only to it."""


def days_of(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar. Raises ZeroDateError for an invalid date."""
    if year > _YEAR_MAX or month > 12:
        raise _no_time()
    # with ALLOW_INVALID_DATES the server stores 31 February, too
    if not month or not day or day > _MONTH_DAYS[month] + (month == 2 and _is_leap(year)):
        raise zero_date()
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


def null_if_zero(convert: Convert) -> Convert:
    """Return `convert`, but with None for invalid dates (`zero_dates: null`)."""

    def converted(v: bytes) -> Any:
        try:
            return convert(v)
        except ZeroDateError:
            return None

    return converted


# -- dates and times ---------------------------------------------------------------------------------------


@lru_cache(maxsize=65_536)
def date(v: bytes) -> int:
    """Three bytes: year, four bits of month, five of day."""
    n = int.from_bytes(v, "little")
    return days_of(n >> 9, n >> 5 & 15, n & 31)


def date_text(v: bytes) -> str:
    n = int.from_bytes(v, "little")
    return f"{n >> 9:04}-{n >> 5 & 15:02}-{n & 31:02}"


@lru_cache(maxsize=65_536)
def _day_us(days: int) -> int:
    """Return microseconds of the date part of a datetime: (year · 13 + month) · 32 + day."""
    year, month = divmod(days >> 5, 13)
    return days_of(year, month, days & 31) * _DAY_US


def datetime(fraction: int) -> Convert:
    """Five bytes and the bytes of the fraction, big-endian."""
    shift, factor = 8 * _fraction_bytes(fraction), _fraction_factor(fraction)
    mask, offset = (1 << shift) - 1, _DATETIME_OFFSET << shift

    def convert(v: bytes) -> int:
        n = int.from_bytes(v, "big") - offset
        whole = n >> shift
        hours, minutes, seconds, micros = whole >> 12 & 31, whole >> 6 & 63, whole & 63, (n & mask) * factor
        if hours > 23 or minutes > 59 or seconds > 59 or micros > 999_999:
            raise _no_time()
        return _day_us(whole >> 17) + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros

    return convert


def datetime_text(fraction: int) -> Convert:
    shift, factor = 8 * _fraction_bytes(fraction), _fraction_factor(fraction)

    def convert(v: bytes) -> str:
        n = int.from_bytes(v, "big") - (_DATETIME_OFFSET << shift)
        whole, micros = n >> shift, (n & (1 << shift) - 1) * factor
        year, month = divmod(whole >> 22, 13)
        clock = f"{whole >> 12 & 31:02}:{whole >> 6 & 63:02}:{whole & 63:02}{fraction_text(micros, fraction)}"
        return f"{year:04}-{month:02}-{whole >> 17 & 31:02} {clock}"

    return convert


def timestamp(fraction: int) -> Convert:
    """Four bytes of seconds since 1970 in UTC; all zeros is the zero date."""
    shift, factor = 8 * _fraction_bytes(fraction), _fraction_factor(fraction)
    mask = (1 << shift) - 1

    def convert(v: bytes) -> int:
        n = int.from_bytes(v, "big")
        if not n >> shift:
            raise zero_date()
        micros = (n & mask) * factor
        if micros > 999_999:
            raise _no_time()
        return (n >> shift) * 1_000_000 + micros

    return convert


def timestamp_text(fraction: int) -> Convert:
    """In UTC, as in the session of a copy."""
    shift, factor = 8 * _fraction_bytes(fraction), _fraction_factor(fraction)

    def convert(v: bytes) -> str:
        n = int.from_bytes(v, "big")
        fractions = fraction_text((n & (1 << shift) - 1) * factor, fraction)
        seconds = n >> shift
        if not seconds:
            return f"0000-00-00 00:00:00{fractions}"
        days, clock = divmod(seconds, 86_400)
        year, month, day = date_of(days)
        return f"{year:04}-{month:02}-{day:02} {clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}{fractions}"

    return convert


def date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of days since 1970."""
    era, of_era = divmod(days + _EPOCH_DAYS, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    months = (5 * of_year + 2) // 153
    month = months + (3 if months < 10 else -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * months + 2) // 5 + 1


def time(fraction: int) -> Convert:
    """Three bytes and the bytes of the fraction: a duration, which may be negative and longer than a day."""
    shift, factor = 8 * _fraction_bytes(fraction), _fraction_factor(fraction)
    mask, offset = (1 << shift) - 1, 0x80_0000 << shift

    def convert(v: bytes) -> int:
        n = int.from_bytes(v, "big") - offset
        size = abs(n)
        whole = size >> shift
        seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        micros = seconds * 1_000_000 + (size & mask) * factor
        return -micros if n < 0 else micros

    return convert


def time_text(fraction: int) -> Convert:
    micros_of = time(fraction)

    def convert(v: bytes) -> str:
        return clock_text(micros_of(v), fraction)

    return convert


def clock_text(micros: int, fraction: int) -> str:
    """`-838:59:59.999999`"""
    seconds, rest = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction_text(rest, fraction)}"


def fraction_text(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def _fraction_bytes(digits: int) -> int:
    return (digits + 1) // 2


def _fraction_factor(digits: int) -> int:
    """Return the unit of a fraction, in microseconds."""
    return (1, 10_000, 100, 1)[_fraction_bytes(digits)]


def temporal_size(whole: int, digits: int) -> int:
    return whole + _fraction_bytes(digits)


def year(v: int) -> int:
    return v + 1900 if v else 0


# -- formats of servers before 5.6 -------------------------------------------------------------------------


def old_datetime(v: bytes) -> int:
    date_part, clock = divmod(int.from_bytes(v, "little"), 1_000_000)
    days = days_of(date_part // 10_000, date_part // 100 % 100, date_part % 100)
    return days * _DAY_US + (clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100) * 1_000_000


def old_timestamp(v: bytes) -> int:
    seconds = int.from_bytes(v, "little")
    if not seconds:
        raise zero_date()
    return seconds * 1_000_000


def old_time(v: bytes) -> int:
    n = int.from_bytes(v, "little", signed=True)
    size = abs(n)
    micros = (size // 10_000 * 3600 + size // 100 % 100 * 60 + size % 100) * 1_000_000
    return -micros if n < 0 else micros


# -- numbers -----------------------------------------------------------------------------------------------


def decimal_size(precision: int, scale: int) -> int:
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal(precision: int, scale: int) -> Convert:
    """Groups of nine digits in four bytes, big-endian; the first bit is set for positive numbers, for sorting."""
    whole = precision - scale
    sizes = [(_DIGIT_BYTES[whole % 9], whole % 9)] if whole % 9 else []
    sizes += [(4, 9)] * (whole // 9 + scale // 9)
    if scale % 9:
        sizes.append((_DIGIT_BYTES[scale % 9], scale % 9))
    mask = (1 << 8 * decimal_size(precision, scale)) - 1
    top = 1 << 8 * decimal_size(precision, scale) - 1
    suffix = f"E-{scale}" if scale else ""

    def convert(v: bytes) -> Decimal:
        n = int.from_bytes(v, "big")
        is_negative = not n & top
        n ^= top
        if is_negative:
            n ^= mask
        bits = n.to_bytes(len(v), "big")
        digits, at = 0, 0
        for size, count in sizes:
            digits = digits * 10**count + int.from_bytes(bits[at : at + size], "big")
            at += size
        return Decimal(f"{'-' if is_negative else ''}{digits}{suffix}")

    return convert


def integer(v: bytes, *, signed: bool) -> int:
    return int.from_bytes(v, "little", signed=signed)


signed_24: Convert = partial(integer, signed=True)
unsigned_24: Convert = partial(integer, signed=False)


def boolean(v: bytes) -> bool:
    return v != b"\x00"


# -- sets, enums, fixed lengths ----------------------------------------------------------------------------


def labels_of_set(labels: list[str]) -> Convert:
    def convert(v: bytes) -> list[str]:
        n = int.from_bytes(v, "little")
        return [label for number, label in enumerate(labels) if n >> number & 1]

    return convert


def label_of_enum(labels: list[str]) -> Callable[[int], str]:
    """0 is the empty text that the server stores for an invalid value."""
    return ["", *labels].__getitem__


def padded(size: int) -> Convert:
    """Restore the trailing zeros of a BINARY(n), which the log omits."""
    return lambda v: v.ljust(size, b"\x00")
