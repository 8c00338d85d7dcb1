"""Decodes records to rows, by code that is generated for each table: SQLite's format unrolled over the columns.

SQLite stores the type with each value. A column is published with one type, so each value is checked against it: a
value that does not fit raises an error with the column's name; values are not converted. Two forms are the same value:
an integer in a REAL column (the file format stores 2.0 as 2), and the rowid, which a record may omit.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any

from lowwater.errors import CodecError, LogCorruptError, LogUnknownError
from lowwater_extractor.sources.turso.schema.definitions import CellType, Definition
from lowwater_extractor.sources.turso.wire.record import FIRST_BLOB, UNPACK, WIDTHS, pieces, value_at, varint


class WidthError(LogUnknownError):
    """A record with more or fewer values than its table has columns."""


#: (record, rowid) → values of the captured columns; texts are UTF-8
ReadRow = Callable[[bytes, int], list[Any]]

#: integers that a double holds exactly
_EXACT = 1 << 53
#: errors raised when a record does not fit its table
_ERRORS = (IndexError, ValueError, struct.error, LogCorruptError)


def any_value(value: int | float | bytes | None, *, is_text: bool) -> str | None:
    """Return a value of any type as JSON, without loss: types that JSON does not have are an object with the type."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return json.dumps(value.decode(), ensure_ascii=False) if is_text else _said("blob", value)
        except UnicodeDecodeError:
            return _said("text", value)
    if isinstance(value, float) and math.isinf(value):
        return json.dumps({"real": "Infinity" if value > 0 else "-Infinity"})
    return json.dumps(value)


def _said(kind: str, value: bytes) -> str:
    return json.dumps({kind: base64.b64encode(value).decode()})


def _any(record: bytes, at: int, serial: int) -> tuple[str | None, int]:
    value, end = value_at(record, at, serial)
    return any_value(value, is_text=bool(serial & 1)), end


#: published type → Python types of the values that a SELECT returns
_PYTHON: dict[CellType, tuple[type[Any], ...]] = {
    CellType.INTEGER: (int,),
    CellType.REAL: (float, int),
    CellType.TEXT: (str,),
    CellType.BLOB: (bytes,),
}


def published_value(kind: CellType, value: Any) -> Any:
    """Convert a value of a SELECT to the same value as from a record. TypeError: it does not fit."""
    if value is None or kind is CellType.ANY:
        return any_value(value.encode() if isinstance(value, str) else value, is_text=isinstance(value, str))
    if not isinstance(value, _PYTHON[kind]):
        raise TypeError(f"a {type(value).__name__}")
    return float(value) if kind is CellType.REAL else value


_INTEGER = """
    if t == 1:
        v{i} = (r[p] ^ 128) - 128
        p += 1
    elif t == 2:
        v{i} = ((r[p] << 8 | r[p + 1]) ^ 32768) - 32768
        p += 2
    elif t == 3:
        v{i} = ((r[p] << 16 | r[p + 1] << 8 | r[p + 2]) ^ 8388608) - 8388608
        p += 3
    elif 3 < t < 7:
        v{i} = U[t](r, p)[0]
        p += W[t]
    elif t == 8 or t == 9:
        v{i} = t - 8
    elif t == 0:
        v{i} = {null}
    else:
        raise wrong({i}, t)"""
_REAL = """
    if t == 7:
        v{i} = D(r, p)[0]
        p += 8
    elif t == 0:
        v{i} = {null}
    elif t < 10:
        v{i} = U[t](r, p)[0]
        if v{i} > X or v{i} < -X:
            raise wrong({i}, t)
        v{i} = float(v{i})
        p += W[t]
    else:
        raise wrong({i}, t)"""
_BYTES = """
    if t > 11 and t & 1 == {odd}:
        e = p + (t - 12 >> 1)
        v{i} = r[p:e]
        p = e{check}
    elif t == 0:
        v{i} = {null}
    else:
        raise wrong({i}, t)"""
#: a text remains bytes, once it is checked to be UTF-8
_CHECK = """
        if not v{i}.isascii():
            v{i}.decode()"""
_ANY = """
    v{i}, p = A(r, p, t)
    if v{i} is None:
        v{i} = {null}"""


def _lines(place: int, kind: CellType, null: str) -> str:
    read = "\n    t = r[i]\n    i += 1\n    if t > 127:\n        t, i = V(r, i - 1)"
    match kind:
        case CellType.INTEGER:
            return read + _INTEGER.format(i=place, null=null)
        case CellType.REAL:
            return read + _REAL.format(i=place, null=null)
        case CellType.TEXT:
            return read + _BYTES.format(i=place, null=null, odd=1, check=_CHECK.format(i=place))
        case CellType.BLOB:
            return read + _BYTES.format(i=place, null=null, odd=0, check="")
        case CellType.ANY:
            return read + _ANY.format(i=place, null=null)


def compile_reader(definition: Definition, source: str) -> ReadRow:
    """Generate and compile the decoder of a table. The source contains only numbers and the templates above."""
    cells = definition.cells
    parts = [
        "def read(r, rowid):",
        "  try:",
        "    n, i = r[0], 1",
        "    if n > 127:",
        "      n, i = V(r, 0)",
        "    p = n",
    ]
    for place, cell in enumerate(cells):
        null = "None"
        if cell.name == definition.alias:
            null = "rowid"
        elif cell.name in definition.key:
            null = f"no_key({place})"
        parts.append(_lines(place, cell.type, null))
    parts += ["    if i != n or p != len(r):", "        raise wrong_width(r)", "  except ERRORS as error:"]
    parts.append("    raise explain(r, error) from error")
    first = [] if definition.key else ["rowid"]
    parts.append(f"  return [{', '.join(first + [f'v{place}' for place in range(len(cells))])}]")
    scope: dict[str, Any] = {"V": varint, "U": UNPACK, "W": WIDTHS, "D": UNPACK[7], "X": _EXACT, "A": _any}
    scope |= {"ERRORS": _ERRORS} | _errors(definition, source)
    exec("\n".join(parts), scope)
    read: ReadRow = scope["read"]
    return read


# -- errors ----------------------------------------------------------------------------------------------


def _errors(definition: Definition, source: str) -> dict[str, Callable[..., Any]]:
    where, cells = definition.full_name, definition.cells

    def wrong(place: int, serial: int) -> CodecError:
        column = f"{where}.{cells[place].name}"
        return CodecError(
            f"{column}: {_kind(serial)} in a column that is published as {cells[place].type}",
            source=source,
            thread=1,
            hint=f"SQLite accepts it: set types: {{{column}: any}} to publish the column as JSON",
        )

    def no_key(place: int) -> None:
        raise CodecError(
            f"{where}: a null in {cells[place].name}, which is part of the key: such rows cannot be identified",
            source=source,
            thread=1,
            hint="declare the column NOT NULL, and give the row a key",
        )

    def wrong_width(record: bytes) -> WidthError:
        return WidthError(
            f"{where}: a record of {len(pieces(record))} values for {len(cells)} columns",
            source=source,
            thread=1,
            hint="the table was altered by a connection that does not capture: reset the source to copy it again",
        )

    def explain(record: bytes, error: Exception) -> Exception:
        """Return the error that names the wrong column; the message does not contain the value."""
        found = pieces(record)
        if len(found) != len(cells):
            return wrong_width(record)
        for place, (serial, value) in enumerate(found):
            if isinstance(value, bytes) and serial & 1 and cells[place].type is CellType.TEXT:
                try:
                    value.decode()
                except UnicodeDecodeError:
                    return wrong(place, -1)
        return error

    return {"wrong": wrong, "no_key": no_key, "wrong_width": wrong_width, "explain": explain}


def _kind(serial: int) -> str:
    if serial == -1:
        return "a text that is not UTF-8"
    if serial >= FIRST_BLOB:
        return "a text" if serial & 1 else "a blob"
    return "a real" if serial == 7 else "an integer"
