"""BSON as bytes: walked, not decoded. What a driver decodes has lost which of its types some values were."""

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
#: lengths: what is damaged leads beyond the end, never back
length = struct.Struct("<I").unpack_from
int64 = struct.Struct("<q").unpack_from
uint64 = struct.Struct("<Q").unpack_from
double = struct.Struct("<d").unpack_from

#: a value's bytes by its type: so many; or counted by a number in front of it
COUNTED, COUNTED_WITH_ITSELF, OTHER = -1, -2, -3
SIZES: dict[int, int] = {
    DOUBLE: 8, UNDEFINED: 0, OBJECT_ID: 12, BOOLEAN: 1, DATE: 8, NULL: 0, INT32: 4, TIMESTAMP: 8, INT64: 8, DECIMAL: 16,
    MAX_KEY: 0, MIN_KEY: 0, STRING: COUNTED, CODE: COUNTED, SYMBOL: COUNTED, DOCUMENT: COUNTED_WITH_ITSELF,
    ARRAY: COUNTED_WITH_ITSELF, CODE_WITH_SCOPE: COUNTED_WITH_ITSELF, BINARY: OTHER, REGEX: OTHER, DB_POINTER: OTHER,
}  # fmt: skip


#: what reading bytes that are not BSON can raise, beside errors of our own
DAMAGE = (struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError, ArithmeticError, RecursionError)


@contextmanager
def named_damage(source: str, what: str) -> Iterator[None]:
    """For bytes that are read outside of the stream: an error with the source's name, and no document in it."""
    try:
        yield
    except DAMAGE as error:
        raise LogCorruptError(
            f"{what}: a BSON document that is damaged ({type(error).__name__})", source=source, thread=1,
            hint="it is read again after a restart; if it comes again, run validate() on the collection",
        ) from error  # fmt: skip


class Value(NamedTuple):
    """One value: its type, and where in the bytes it lies."""

    type: int
    at: int
    end: int


def end_of(data: bytes, type_: int, at: int) -> int:
    """Behind the value of this type that begins at `at`."""
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
    return at + 4 + int(length(data, at)[0]) + 12  # of a pointer: a counted name, an ObjectId


def elements(data: bytes, at: int = 0) -> Iterator[tuple[bytes, Value]]:
    """Names and values of the document that begins at `at`, in their order."""
    last = at + int(length(data, at)[0]) - 1
    at += 4
    while at < last:
        type_ = data[at]
        name_end = data.index(0, at + 1)
        end = end_of(data, type_, name_end + 1)
        yield data[at + 1 : name_end], Value(type_, name_end + 1, end)
        at = end
    if at != last:
        raise LogCorruptError("a BSON document that does not end where it says", hint="restart the source; report it")


def fields(data: bytes, at: int = 0) -> dict[bytes, Value]:
    """By name; for documents of the server's own, which have each once."""
    return dict(elements(data, at))


def string(data: bytes, value: Value) -> bytes:
    """UTF-8, if whoever wrote it kept to that."""
    return data[value.at + 4 : value.end - 1]
