"""Converts the text values of a SELECT to the same Python values as the bytes in the log.

Sessions use UTC and an empty sql_mode (`connect.SESSION`). FLOAT columns are selected with `+ 0e0`, because the server
otherwise returns only six digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from lowwater.codec.table import Type
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.types import Wanted, column_code
from lowwater_extractor.sources.mysql.wire import binary_values as bv
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.charsets import Decoders
from lowwater_extractor.sources.mysql.wire.table_map import WireColumn

Convert = Callable[[bytes], Any]

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column as read by SELECT."""

    wire: WireColumn
    type: Type
    #: None: the bytes are the value
    convert: Convert | None

    @property
    def expression(self) -> str:
        name = quoted(self.wire.name)
        return f"{name} + 0e0" if self.wire.type in (tm.FLOAT, tm.DOUBLE) else name


def text_column(wire: WireColumn, where: str, decoders: Decoders, wanted: Wanted) -> TextColumn:
    """`where`: `namespace.table`. The published type is the same as for the log."""
    name = f"{where}.{wire.name}"
    type_ = column_code(wire, name, decoders, wanted).type
    convert = None if name in wanted.as_text else _CONVERTS.get(wire.type)
    if wire.type == tm.BIT:
        convert = bv.boolean if wire.size == 1 else None
    if convert is not None and wanted.is_zero_null and wire.type in (tm.DATE, tm.DATETIME2, tm.TIMESTAMP2):
        convert = bv.null_if_zero(convert)
    return TextColumn(wire, type_, convert)


@lru_cache(maxsize=65_536)
def days(v: bytes) -> int:
    """`2026-11-16`"""
    year, month, day = v.split(b"-")
    return bv.days_of(int(year), int(month), int(day))


def timestamp(v: bytes) -> int:
    """`2026-11-16 11:40:15.25`"""
    return days(v[:10]) * _DAY_US + _clock_us(v[11:19]) + _fraction_us(v[20:])


@lru_cache(maxsize=131_072)
def _clock_us(v: bytes) -> int:
    """`HH:MM:SS`, where the hours may have more than two digits."""
    hours, minutes, seconds = v.split(b":")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000


def _fraction_us(v: bytes) -> int:
    return int(v.ljust(6, b"0")) if v else 0


def time(v: bytes) -> int:
    """`-838:59:59.999999`"""
    clock, _, fraction = v.lstrip(b"-").partition(b".")
    micros = _clock_us(clock) + _fraction_us(fraction)
    return -micros if v[:1] == b"-" else micros


def labels(v: bytes) -> list[str]:
    """Split the labels of a SET, which cannot contain commas."""
    return v.decode().split(",") if v else []


def number(v: bytes) -> Decimal:
    return Decimal(v.decode())


_CONVERTS: dict[int, Convert] = {
    tm.TINY: int,
    tm.SHORT: int,
    tm.INT24: int,
    tm.LONG: int,
    tm.LONGLONG: int,
    tm.YEAR: int,
    tm.FLOAT: float,
    tm.DOUBLE: float,
    tm.NEWDECIMAL: number,
    tm.DATE: days,
    tm.DATETIME2: timestamp,
    tm.TIMESTAMP2: timestamp,
    tm.TIME2: time,
    tm.SET: labels,
}
