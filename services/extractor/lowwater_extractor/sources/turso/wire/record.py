"""A generic decoder of SQLite's record format, in which Turso's log has rows. `rows.py` generates one for each table.

A record is a header and a body. The header is its own length and one serial type for each value, all as varints; the
body is the values in order. Integers are stored in as few bytes as they need; 0 and 1 in none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from lowwater.errors import LogCorruptError

#: a value of a record; a text is bytes until it is decoded, because SQLite does not check that it is UTF-8
Value = int | float | bytes | str | None

#: bytes of the body by serial type, for those below 10
WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
NULL, REAL, ZERO, ONE, FIRST_BLOB = 0, 7, 8, 9, 12


def _long(size: int) -> Callable[[bytes, int], tuple[int]]:
    return lambda record, at: (int.from_bytes(record[at : at + size], "big", signed=True),)


#: (record, offset) → (number,), by serial type
UNPACK: tuple[Callable[[bytes, int], tuple[Any, ...]], ...] = (
    lambda _record, _at: (None,),
    struct.Struct(">b").unpack_from,
    struct.Struct(">h").unpack_from,
    _long(3),
    struct.Struct(">i").unpack_from,
    _long(6),
    struct.Struct(">q").unpack_from,
    struct.Struct(">d").unpack_from,
    lambda _record, _at: (0,),
    lambda _record, _at: (1,),
)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the offset after it: seven bits per byte, eight in the ninth."""
    number = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at
    return number << 8 | data[at], at + 1


def pieces(record: bytes) -> list[tuple[int, int | float | bytes | None]]:
    """Return serial type and value of all values; texts as bytes. LogCorruptError: not a valid record."""
    try:
        end, at = varint(record, 0)
        types = []
        while at < end:
            serial, at = varint(record, at)
            types.append(serial)
        if at != end:
            raise _corrupt("its header ends inside a number")
        found = []
        for serial in types:
            value, at = value_at(record, at, serial)
            found.append((serial, value))
    except (IndexError, struct.error) as error:
        raise _corrupt("it ends too soon") from error
    if at != len(record):
        raise _corrupt(f"{len(record) - at} bytes after its end")
    return found


def decode(record: bytes) -> list[Value]:
    """Return all values of a record, texts as `str`. UnicodeDecodeError: a text that is not UTF-8."""
    return [
        value.decode() if isinstance(value, bytes) and serial & 1 else value for serial, value in pieces(record)
    ]  # fmt: skip


def value_at(record: bytes, at: int, serial: int) -> tuple[int | float | bytes | None, int]:
    """Return a value of this serial type, and the offset after it. Odd types from 13 on are texts, as bytes."""
    if serial < len(WIDTHS):
        return UNPACK[serial](record, at)[0], at + WIDTHS[serial]
    if serial < FIRST_BLOB:
        raise _corrupt(f"serial type {serial}, which the format reserves")
    end = at + (serial - FIRST_BLOB >> 1)
    if end > len(record):
        raise _corrupt("it ends too soon")
    return record[at:end], end


def updated(record: bytes) -> dict[int, Value]:
    """Decode the column `updates`: index of a column → the value that the statement set, before affinity is applied.

    The record has one flag for each column, then one value for each column.
    """
    values = decode(record)
    half = len(values) // 2
    if len(values) != 2 * half or any(flag not in (0, 1) for flag in values[:half]):
        raise _corrupt("it does not have as many flags as values")
    return {place: values[half + place] for place in range(half) if values[place]}


def _corrupt(what: str) -> LogCorruptError:
    return LogCorruptError(
        f"an invalid record: {what}", thread=1, hint="the log is damaged: check the file, then reset the source"
    )
