"""DATE, the timestamps and the intervals: bytes to values."""

from __future__ import annotations

import datetime as dt
import struct

from lowwater.codec.table import ColumnKind
from lowwater.errors import CodecError
from lowwater_extractor.sources.oracle.rows.number_values import Decode, Kept
from lowwater_extractor.sources.oracle.rows.value_writing import zone_of
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType, published_type

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_EPOCH_DAYS = 719_468
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _label(raw: bytes) -> tuple[int, int, int]:
    """Year (-4712 is 4712 BC; there is no year 0), month, day."""
    century, year = raw[0] - 100, raw[1] - 100
    if century * year < 0:
        raise ValueError("not a date")
    return century * 100 + year, raw[2], raw[3]


def _day_us(raw: bytes) -> int:
    """Microseconds from 1970 to the start of the day: the same year, month and day in the Gregorian calendar."""
    label, month, day = _label(raw)
    year = label if label > 0 else label + 1
    if not label or not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError("not a date")
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > (31, 29 if is_leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]:
        raise CodecError(
            "a day that exists only in the Julian calendar, which the database uses before 1582",
            hint="capture the column `as_text`",
        )
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS
    return days * _DAY_US


DAYS = Kept(_day_us)
HOURS = {h + 1: h * 3600 * _SECOND_US for h in range(24)}
MINUTES = {m + 1: m * 60 * _SECOND_US for m in range(60)}
SECONDS = {s + 1: s * _SECOND_US for s in range(60)}
NANOSECONDS = struct.Struct(">I").unpack_from


def date(raw: bytes) -> int:
    if len(raw) != 7:
        raise ValueError("not a date")
    return DAYS[raw[:4]] + HOURS[raw[4]] + MINUTES[raw[5]] + SECONDS[raw[6]]  # type: ignore[no-any-return]


def timestamp(raw: bytes) -> int:
    """Seven bytes without a fraction, eleven with nanoseconds."""
    if len(raw) == 7:
        return date(raw)
    if len(raw) != 11:
        raise ValueError("not a timestamp")
    whole: int = DAYS[raw[:4]] + HOURS[raw[4]] + MINUTES[raw[5]] + SECONDS[raw[6]]
    return whole + NANOSECONDS(raw, 7)[0] // 1000  # type: ignore[no-any-return]


def timestamp_tz(raw: bytes) -> int:
    """The instant: it is stored in UTC, followed by an offset or a region."""
    if len(raw) not in (9, 13):
        raise ValueError("not a timestamp with time zone")
    return timestamp(raw[:-2])


def _local(column: OracleColumn) -> Decode:
    zone = zone_of(column.zone)
    fixed = zone.utcoffset(None)
    if fixed is not None:
        behind = fixed // dt.timedelta(microseconds=1)
        return lambda raw: timestamp(raw) - behind

    def decode(raw: bytes) -> int:
        wall = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=timestamp(raw))
        return (wall.replace(tzinfo=zone) - _EPOCH_UTC) // dt.timedelta(microseconds=1)

    return decode


def timestamp_text(raw: bytes) -> str:
    """ISO 8601 without trailing zeros of the fraction; years before 1 as in the database: -4712."""
    if len(raw) not in (7, 11):
        raise ValueError("not a timestamp")
    year, month, day = _label(raw)
    nanoseconds = NANOSECONDS(raw, 7)[0] if len(raw) == 11 else 0
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    sign = "-" if year < 0 else ""
    hour, minute, second = raw[4] - 1, raw[5] - 1, raw[6] - 1
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{fraction}"


def _timestamp_as_text(column: OracleColumn) -> Decode:
    if column.type in (OracleType.DATE, OracleType.TIMESTAMP):
        return timestamp_text
    if column.type == OracleType.TIMESTAMP_TZ:
        return lambda raw: timestamp_text(raw[:-2]) + "Z"
    local = _local(column)

    def decode(raw: bytes) -> str:
        # the fraction is the same in every zone
        moment = _EPOCH_UTC + dt.timedelta(microseconds=local(raw[:7]))
        return moment.replace(tzinfo=None).isoformat(timespec="seconds") + timestamp_text(raw)[19:] + "Z"

    return decode


_TIMES: dict[int, Decode] = {
    OracleType.DATE: date,
    OracleType.TIMESTAMP: timestamp,
    OracleType.TIMESTAMP_TZ: timestamp_tz,
}


def time(column: OracleColumn) -> Decode:
    if published_type(column).kind is ColumnKind.STRING:
        return _timestamp_as_text(column)
    return _local(column) if column.type == OracleType.TIMESTAMP_LTZ else _TIMES[column.type]


# -- intervals -----------------------------------------------------------------------------------------------


def _iso(parts: list[tuple[int | str, str]], time_parts: list[tuple[int | str, str]]) -> str:
    """The format of PostgreSQL's ISO 8601 style: every part has its sign, an empty interval is `PT0S`."""
    ahead = "".join(f"{n}{letter}" for n, letter in parts if n)
    behind = "".join(f"{n}{letter}" for n, letter in time_parts if n)
    return f"P{ahead}T{behind}" if behind else f"P{ahead}" if ahead else "PT0S"


def interval_ym(raw: bytes) -> str:
    if len(raw) != 5:
        raise ValueError("not an interval of years and months")
    return _iso([(int.from_bytes(raw[:4]) - 0x8000_0000, "Y"), (raw[4] - 60, "M")], [])


def interval_ds(raw: bytes) -> str:
    if len(raw) != 11:
        raise ValueError("not an interval of days and seconds")
    days = int.from_bytes(raw[:4]) - 0x8000_0000
    hours, minutes, seconds = (part - 60 for part in raw[4:7])
    nanoseconds = int.from_bytes(raw[7:]) - 0x8000_0000
    text: str | int = seconds
    if nanoseconds:
        sign = "-" if seconds < 0 or nanoseconds < 0 else ""
        text = f"{sign}{abs(seconds)}.{abs(nanoseconds):09d}".rstrip("0")
    return _iso([(days, "D")], [(hours, "H"), (minutes, "M"), (text, "S")])


TIMES = frozenset({*_TIMES, OracleType.TIMESTAMP_LTZ})
