"""Iterates over raw BSON without decoding it, because decoding by the driver loses the types of some values."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lowwater.errors import LogCorruptError

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, UNDEFINED, OBJECT_ID, BOOLEAN = 1, 2, 3, 4, 5, 6, 7, 8
DATE, NULL, REGEX, DB_POINTER, CODE, SYMBOL, CODE_WITH_SCOPE = 9, 10, 11, 12, 13, 14, 15
INT32, TIMESTAMP, INT64, DECIMAL, MAX_KEY, MIN_KEY = 16, 17, 18, 19, 127, 255

int32 = struct.Struct("<i").unpack_from
#: lengths are unsigned: a damaged one leads beyond the end, never backwards
length = struct.Struct("<I").unpack_from
int64 = struct.Struct("<q").unpack_from
uint64 = struct.Struct("<Q").unpack_from
double = struct.Struct("<d").unpack_from

#: size of a value by its type; negative: it has a length field, which excludes or includes itself, or another format
COUNTED, COUNTED_WITH_ITSELF, OTHER = -1, -2, -3
SIZES: dict[int, int] = {
    DOUBLE: 8, UNDEFINED: 0, OBJECT_ID: 12, BOOLEAN: 1, DATE: 8, NULL: 0, INT32: 4, TIMESTAMP: 8, INT64: 8, DECIMAL: 16,
    MAX_KEY: 0, MIN_KEY: 0, STRING: COUNTED, CODE: COUNTED, SYMBOL: COUNTED, DOCUMENT: COUNTED_WITH_ITSELF,
    ARRAY: COUNTED_WITH_ITSELF, CODE_WITH_SCOPE: COUNTED_WITH_ITSELF, BINARY: OTHER, REGEX: OTHER, DB_POINTER: OTHER,
}  # fmt: skip


#: errors raised by parsing bytes that are not BSON, in addition to LowwaterError
DAMAGE = (struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError, ArithmeticError, RecursionError)


@contextmanager
def named_damage(source: str, what: str) -> Iterator[None]:
    """Convert parse errors outside the stream to LogCorruptError, without the content of the document."""
    try:
        yield
    except DAMAGE as error:
        raise LogCorruptError(
            f"{what}: a damaged BSON document ({type(error).__name__})", source=source, thread=1,
            hint="restart the source to read it again; if the error recurs, run validate() on the collection",
        ) from error  # fmt: skip


class Value(NamedTuple):
    """One value: its type, and its start and end offset."""

    type: int
    at: int
    end: int


def end_of(data: bytes, type_: int, at: int) -> int:
    """Return the offset after the value of this type that begins at `at`."""
    size = SIZES.get(type_)
    if size is None:
        raise LogCorruptError(f"a BSON value of type {type_:#x}", hint="is the server newer than lowwater? upgrade it")
    if size >= 0:
        return at + size
    if size == OTHER:
        return _end_of_other(data, type_, at)
    (count,) = length(data, at)
    return at + int(count) + (4 if size == COUNTED else 0)


def _end_of_other(data: bytes, type_: int, at: int) -> int:
    if type_ == BINARY:
        return at + 5 + int(length(data, at)[0])
    if type_ == REGEX:
        return data.index(0, data.index(0, at) + 1) + 1
    return at + 4 + int(length(data, at)[0]) + 12  # DBPointer: a name with its length, and an ObjectId


def elements(data: bytes, at: int = 0) -> Iterator[tuple[bytes, Value]]:
    """Yield names and values of the document that begins at `at`, in order."""
    last = at + int(length(data, at)[0]) - 1
    at += 4
    while at < last:
        type_ = data[at]
        name_end = data.index(0, at + 1)
        end = end_of(data, type_, name_end + 1)
        yield data[at + 1 : name_end], Value(type_, name_end + 1, end)
        at = end
    if at != last:
        raise LogCorruptError("a BSON document whose length is wrong", hint="restart the source; report it")


def fields(data: bytes, at: int = 0) -> dict[bytes, Value]:
    """Return the values by name; for documents of the server itself, which have unique names."""
    return dict(elements(data, at))


def string(data: bytes, value: Value) -> bytes:
    """Return the bytes of a string, which are UTF-8 unless the client wrote invalid text."""
    return data[value.at + 4 : value.end - 1]
