"""The program by which `row_bytes` encodes rows of one table: the type and parameters of each column of a log row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from lowwater.codec.encoder import TableEncoder

STEP = 4

#: flags: the column is not published; a null in it is left to the slow path; a null in it stands for the rowid
HIDDEN, NEVER_NULL, ROWID = 128, 64, 32

#: kinds of a change
CREATE, UPDATE, DELETE = 0, 1, 2

#: maximum precision of a DECIMAL: more digits do not fit 64 bits
DECIMAL_DIGITS_MAX = 18

#: a change is encoded here and then copied: one buffer for all tables, of which there may be ten thousand. Larger rows
#: take the slow path
_OUT = bytearray(256 << 10)
#: bytes that a column may need in addition to its value: the union branch and the longest varint; twice, for an update
_COLUMN_ROOM = 2 * 12
_CHANGE_ROOM = 32


class What(IntEnum):
    #: types of SQLite, whose records contain the size of each value
    INTEGER = 1
    REAL = 2
    TEXT = 3
    BLOB = 4
    #: types of MySQL's binlog. Parameter: number of bytes. Little-endian numbers; bytes that are the same in Avro
    SIGNED = 5
    UNSIGNED = 6
    COPIED = 7
    #: text or bytes. Parameter: number of bytes of the length field
    COUNTED = 8
    #: parameters: number of bytes in total, and of the fraction
    TIMESTAMP = 9
    DATETIME = 10
    DATE = 11
    #: parameters: number of bytes, precision, scale
    DECIMAL = 12
    #: text that must be UTF-8. Parameter: number of bytes of the length field
    UTF8 = 13


def column(what: What, *needs: int) -> bytes:
    return bytes((what, *needs)).ljust(STEP, b"\0")


class Program:
    """The program of a table, the buffer that changes are written to, and the maximum size of a row."""

    __slots__ = ("code", "columns", "header", "out", "room")

    def __init__(self, columns: Sequence[bytes], header: bytes) -> None:
        self.code = b"".join(columns)
        self.columns = len(columns)
        self.header = header
        self.out = _OUT
        #: maximum size of a log row in bytes
        self.room = len(_OUT) - _CHANGE_ROOM - _COLUMN_ROOM * (len(columns) + 1)


def program(
    encoder: TableEncoder,
    columns: Sequence[bytes],
    places: Sequence[int | None],
    flags: Callable[[int], int] = lambda _number: 0,
) -> Program | None:
    """Return the program of a table, or None if its rows must take the slow path.

    `columns`: code of each column of a log row; empty if the fast path does not support its type. `places`: index of
    the column in the table, or None. None is returned if a column is not supported, if a published column is masked,
    or if there are no columns.
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
