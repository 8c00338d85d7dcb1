"""Converts MySQL's binary JSON to the same text that the server returns, so that a copy and the log agree.

A document is a tree of offsets: an object has offsets and lengths of its keys, then a type and an offset (or the value
itself, if it is small) of each member. Offsets have two bytes, or four in large documents.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable

from lowwater.errors import CodecError
from lowwater_extractor.sources.mysql.wire import binary_values as bv

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15

_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {
    _INT16: struct.Struct("<h"),
    _UINT16: struct.Struct("<H"),
    _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"),
    _INT64: struct.Struct("<q"),
    _UINT64: struct.Struct("<Q"),
}
#: MySQL types of opaque values
_DATE, _TIMESTAMP, _DATETIME, _TIME, _DECIMAL = 10, 7, 12, 11, 246

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f]')
#: digits up to which the server writes a double without exponent
_PLAIN_DIGITS = 15
#: more than the server's limit
_DEPTH_MAX = 110


def json_text(v: bytes) -> str:
    """Return the text of a document. An empty value, written by old servers for a NOT NULL column, is null.

    Raises CodecError if the document is invalid.
    """
    if not v:
        return "null"
    try:
        return _value(v[0], v, 1, 0)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise CodecError(
            "binary JSON that is truncated or malformed", hint="report it with the server's version"
        ) from error


def _value(kind: int, v: bytes, at: int, depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise CodecError("binary JSON that is nested too deeply", hint="report it with the server's version")
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        return _container(kind, v, at, depth)
    if kind == _LITERAL:
        return _literal(v[at])
    if kind in _NUMBERS:
        return str(_NUMBERS[kind].unpack_from(v, at)[0])
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", v, at)[0])
    if kind == _STRING:
        size, at = _length(v, at)
        return quoted(_slice(v, at, size).decode())
    if kind == _OPAQUE:
        size, start = _length(v, at + 1)
        return _opaque(v[at], _slice(v, start, size))
    raise CodecError(f"binary JSON of an unknown type {kind}", hint="report it with the server's version")


def _literal(n: int) -> str:
    if n not in _LITERALS:
        raise CodecError(f"a literal {n} in binary JSON", hint="report it with the server's version")
    return _LITERALS[n]


def _slice(v: bytes, at: int, size: int) -> bytes:
    if at + size > len(v):
        raise IndexError
    return v[at : at + size]


def _length(v: bytes, at: int) -> tuple[int, int]:
    """Read a length of seven bits per byte, lowest first; return it and the offset after it."""
    n = shift = 0
    while True:
        byte = v[at]
        at += 1
        n |= (byte & 127) << shift
        if not byte & 128:
            return n, at
        shift += 7


def _container(kind: int, v: bytes, start: int, depth: int) -> str:
    is_large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    width = 4 if is_large else 2
    number = struct.Struct("<I" if is_large else "<H").unpack_from
    (count,) = number(v, start)
    at = start + 2 * width
    keys: list[str] | None = None
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        keys = []
        for _ in range(count):
            (offset,) = number(v, at)
            (size,) = struct.unpack_from("<H", v, at + width)
            keys.append(_slice(v, start + offset, size).decode())
            at += width + 2
    found = []
    for _ in range(count):
        found.append(_member(v, start, at, width, number, depth))
        at += 1 + width
    if keys is None:
        return f"[{', '.join(found)}]"
    members = (f"{quoted(key)}: {value}" for key, value in zip(keys, found, strict=True))
    return f"{{{', '.join(members)}}}"


def _member(v: bytes, start: int, at: int, width: int, number: Callable[..., tuple[int]], depth: int) -> str:
    kind = v[at]
    # small values are stored in place of the offset
    is_inline = kind in (_LITERAL, _INT16, _UINT16) or (width == 4 and kind in (_INT32, _UINT32))
    if is_inline:
        return _value(kind, v, at + 1, depth + 1)
    (offset,) = number(v, at + 1)
    return _value(kind, v, start + offset, depth + 1)


def quoted(text: str) -> str:
    return f'"{_TO_ESCAPE.sub(lambda m: _ESCAPES.get(m.group(), f"{chr(92)}u{ord(m.group()):04x}"), text)}"'


def double_text(x: float) -> str:
    """Return the shortest digits that represent the number exactly, in the server's format."""
    if not math.isfinite(x):
        raise CodecError("a double in JSON that is not finite", hint="report it with the server's version")
    digits, _, exponent = repr(abs(x)).partition("e")
    whole, _, fraction = digits.partition(".")
    # digits without the decimal point, and its position
    bare = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(bare))
    bare = bare.rstrip("0")
    sign = "-" if math.copysign(1.0, x) < 0 else ""
    if not bare:
        return f"{sign}0.0"
    # a number with fractional digits is written without exponent, however large it is
    if point <= -_PLAIN_DIGITS or point > max(_PLAIN_DIGITS, len(bare) - 1):
        mantissa = bare[0] + (f".{bare[1:]}" if len(bare) > 1 else "")
        return f"{sign}{mantissa}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{bare}"
    if len(bare) <= point:
        return f"{sign}{bare}{'0' * (point - len(bare))}.0"
    return f"{sign}{bare[:point]}.{bare[point:]}"


def _opaque(kind: int, v: bytes) -> str:
    if kind == _DECIMAL:
        return f"{bv.decimal(v[0], v[1])(v[2:]):f}"
    if kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
        return f'"{_temporal(kind, struct.unpack("<q", v)[0])}"'
    return f'"base64:type{kind}:{base64.b64encode(v).decode()}"'


def _temporal(kind: int, packed: int) -> str:
    """Return the text of a packed time: from the lowest bits, 24 bits of microseconds, time of day, date."""
    size = abs(packed)
    micros, whole = size & 0xFFFFFF, size >> 24
    fraction = bv.fraction_text(micros, 6)
    if kind == _TIME:
        sign = "-" if packed < 0 else ""
        return f"{sign}{whole >> 12 & 0x3FF:02}:{whole >> 6 & 63:02}:{whole & 63:02}{fraction}"
    year, month = divmod(whole >> 22, 13)
    day = f"{year:04}-{month:02}-{whole >> 17 & 31:02}"
    if kind == _DATE:
        return day
    return f"{day} {whole >> 12 & 31:02}:{whole >> 6 & 63:02}:{whole & 63:02}{fraction}"
