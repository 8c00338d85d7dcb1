"""What `row_bytes` is told of a table: for each column of a row in the log, what it is and what that needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from lowwater.codec.encoder import TableEncoder

STEP = 4

#: flags: the column is not published; a null in it is not usual; a null in it is the rowid
HIDDEN, NEVER_NULL, ROWID = 128, 64, 32

#: what a change is
CREATE, UPDATE, DELETE = 0, 1, 2

#: of a DECIMAL: more do not fit 64 bits
DECIMAL_DIGITS_MAX = 18

#: a change is written here, and copied out: one buffer for all tables, of which there may be ten thousand. A larger row
#: goes the plain way
_OUT = bytearray(256 << 10)
#: of a column beside its value: its branch, and the longest varint; twice, for an update
_COLUMN_ROOM = 2 * 12
_CHANGE_ROOM = 32


class What(IntEnum):
    #: SQLite's, whose values say their size by themselves
    INTEGER = 1
    REAL = 2
    TEXT = 3
    BLOB = 4
    #: of MySQL's log, by its number of bytes: a number, little-endian; what is in Avro as it is in the log
    SIGNED = 5
    UNSIGNED = 6
    COPIED = 7
    #: text or bytes, by how many bytes their length has
    COUNTED = 8
    #: by all bytes, and those of the fraction
    TIMESTAMP = 9
    DATETIME = 10
    DATE = 11
    #: by all bytes, all digits, and those behind the point
    DECIMAL = 12
    #: text that must be UTF-8, by how many bytes its length has
    UTF8 = 13


def column(what: What, *needs: int) -> bytes:
    return bytes((what, *needs)).ljust(STEP, b"\0")


class Program:
    """A table's program, the buffer that changes are written to, and how much of it a row may take."""

    __slots__ = ("code", "columns", "header", "out", "room")

    def __init__(self, columns: Sequence[bytes], header: bytes) -> None:
        self.code = b"".join(columns)
        self.columns = len(columns)
        self.header = header
        self.out = _OUT
        #: the bytes that a row of the log may have
        self.room = len(_OUT) - _CHANGE_ROOM - _COLUMN_ROOM * (len(columns) + 1)


def program(
    encoder: TableEncoder,
    columns: Sequence[bytes],
    places: Sequence[int | None],
    flags: Callable[[int], int] = lambda _number: 0,
) -> Program | None:
    """`columns`: of a row in the log; empty ones have no quick way. `places`: which of the table's each is, if any.

    None: not for this table; a column that it publishes is masked, or has no quick way, or there is none at all.
    """
    shown = {column.place: column for column in encoder.columns}
    made = []
    for number, (code, place) in enumerate(zip(columns, places, strict=True)):
        if not code:
            return None
        mark = flags(number)
        found = None if place is None else shown.get(place)
        if found is None:
            mark |= HIDDEN
        elif found.change is not None:
            return None
        elif not found.column.nullable:
            mark |= NEVER_NULL
        made.append(bytes((code[0] | mark,)) + code[1:])
    return Program(made, encoder.header) if made else None
