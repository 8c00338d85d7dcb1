"""Decodes column bytes to the Python values that the encoder of the column's published type accepts.

`decoder(column)` is called once per column of a table version; the function that it returns is called for every value
except NULL. Strings that are UTF-8 in the log stay bytes: they are validated, but not decoded.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any, Final

from lowwater.errors import CodecError, LogUnknownError
from lowwater_extractor.sources.oracle.charsets import CESU8, NOT_ASCII, cesu8_decode, codec_of
from lowwater_extractor.sources.oracle.rows import lobs
from lowwater_extractor.sources.oracle.rows.number_values import Decode, ieee, number
from lowwater_extractor.sources.oracle.rows.time_values import TIMES, interval_ds, interval_ym, time
from lowwater_extractor.sources.oracle.rows.value_writing import ROWID_DIGITS
from lowwater_extractor.sources.oracle.types import (
    CHARACTERS,
    OracleColumn,
    OracleType,
    has_locator,
    why_unreadable,
)

#: raised when bytes are not of the expected type
ERRORS = (CodecError, ValueError, ArithmeticError, LookupError, struct.error)


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


#: the value is not in the row: a LOB that is stored outside of it
MISSING: Final = _Missing()


# -- rowids, booleans, bytes ---------------------------------------------------------------------------------


def _base64(number: int, letters: int) -> str:
    return "".join(ROWID_DIGITS[number >> 6 * at & 63] for at in reversed(range(letters)))


def rowid_text(data_object: int, dba: int, slot: int) -> str:
    """Six letters data object, three relative file, six block, three slot."""
    return _base64(data_object, 6) + _base64(dba >> 22, 3) + _base64(dba & 0x3F_FFFF, 6) + _base64(slot, 3)


def rowid(raw: bytes) -> str:
    return rowid_text(*struct.unpack(">IIH", raw))


def urowid(raw: bytes) -> str:
    """A physical UROWID as a ROWID; a logical one (of an index-organized table) as `*` and its bytes in base64."""
    if raw[0] == 1 and len(raw) == 13:
        data_object, slot, file, block = struct.unpack(">IHHI", raw[1:])
        return rowid_text(data_object, file << 22 | block, slot)
    return "*" + base64.b64encode(raw[1:]).decode().rstrip("=")


def boolean(raw: bytes) -> bool:
    if raw not in (b"\x00", b"\x01"):
        raise ValueError("not a boolean")
    return raw == b"\x01"


# -- text ----------------------------------------------------------------------------------------------------


def _bad_text(charset: str, error: UnicodeError) -> CodecError:
    return CodecError(
        f"its bytes are not {charset} ({error.reason if isinstance(error, UnicodeDecodeError) else error})",
        hint="fix the row, or capture the column with `on_bad_text: replace`",
    )


def text(charset: str, errors: str = "strict") -> Decode:
    """The decoder of a character set. ASCII bytes, which are most text, are returned unchanged if they are UTF-8."""
    codec = codec_of(charset)

    def decode(raw: bytes) -> str | bytes:
        try:
            if codec == CESU8:
                return cesu8_decode(raw, errors)
            decoded = raw.decode(codec, errors)
            return raw if codec == "utf-8" and errors == "strict" else decoded
        except UnicodeError as error:
            raise _bad_text(charset, error) from error

    if codec in NOT_ASCII:
        return decode
    return lambda raw: raw if raw.isascii() else decode(raw)


def _lob(column: OracleColumn) -> Decode:
    """The decoder of a LOB; it returns MISSING if the value is not in the row."""
    is_text = column.type in CHARACTERS
    plain = text(column.charset, column.on_bad_text) if is_text else bytes

    def decode(raw: bytes) -> Any:
        value = lobs.value_in(raw)
        if value is None:
            return MISSING
        codec = lobs.text_codec(raw) if is_text else None
        if codec is None:
            return plain(value)
        try:
            return value.decode(codec, column.on_bad_text)
        except UnicodeError as error:
            raise _bad_text(codec, error) from error

    return decode


# -- per column ----------------------------------------------------------------------------------------------

_SIMPLE: dict[int, Decode] = {
    OracleType.RAW: bytes,
    OracleType.LONG_RAW: bytes,
    OracleType.BINARY_FLOAT: ieee(">f"),
    OracleType.BINARY_DOUBLE: ieee(">d"),
    OracleType.INTERVAL_YM: interval_ym,
    OracleType.INTERVAL_DS: interval_ds,
    OracleType.ROWID: rowid,
    OracleType.UROWID: urowid,
    OracleType.BOOLEAN: boolean,
}
_AS_TEXT: dict[type, Callable[[Any], str]] = {
    bool: lambda value: str(value).lower(),
    bytes: lambda value: value.hex().upper(),
    float: repr,
    str: str,
}


def decoder(column: OracleColumn) -> Decode | None:
    """The decoder of this column; None: its values cannot be read from the log (`why_unreadable`)."""
    if why_unreadable(column):
        return None
    if has_locator(column):
        return _lob(column)
    if column.type in CHARACTERS:
        return text(column.charset, column.on_bad_text)
    if column.type == OracleType.NUMBER:
        return number(column)
    if column.type in TIMES:
        return time(column)
    plain = _SIMPLE.get(column.type)
    if plain is None:
        raise LogUnknownError(
            f"column {column.name} has the unknown type number {column.type}",
            hint="drop the column from capture (columns.drop), and report it with the database's version",
        )
    if not column.as_text:
        return plain

    def as_text(raw: bytes) -> str:
        value = plain(raw)
        return _AS_TEXT[type(value)](value)

    return as_text
