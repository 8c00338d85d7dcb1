"""NUMBER and the binary floating point types: bytes to values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from lowwater.codec.table import ColumnKind
from lowwater.errors import CodecError
from lowwater_extractor.sources.oracle.types import OracleColumn, number_type

Decode = Callable[[bytes], Any]

_KEPT_MAX = 65_536
#: numbers of up to six digits are cached; longer ones rarely repeat
_KEPT_BYTES_MAX = 4
_DICTIONARY = "the dictionary does not match the log: read it again at this position (source reset)"


class Kept(dict[bytes, Any]):
    """A cache: bytes → value. Values repeat in a log, and a lookup costs a fifth of decoding."""

    def __init__(self, decode: Decode, bytes_max: int = _KEPT_BYTES_MAX) -> None:
        super().__init__()
        self._decode = decode
        self._bytes_max = bytes_max

    def __missing__(self, raw: bytes) -> Any:
        value = self._decode(raw)
        if len(raw) <= self._bytes_max:
            if len(self) >= _KEPT_MAX:
                self.clear()
            self[raw] = value
        return value


#: the valid bytes of digits; in a negative number digit 0 is 101, in a positive one it is 1
_POSITIVE, _NEGATIVE = bytes(range(1, 101)), bytes(range(2, 102))
#: by number of digits n: the difference between the base-100 number of the bytes and the value
_MORE = [sum(100**at for at in range(n)) for n in range(22)]


def parts_of_number(raw: bytes) -> tuple[int, int]:
    """The value as (integer, exponent of ten)."""
    first = raw[0]
    is_positive = first >= 0x80
    body = raw[1:-1] if not is_positive and raw[-1] == 102 else raw[1:]
    if not body:
        if raw == b"\x80":
            return 0, 0
        raise ValueError("not a NUMBER")
    if body.translate(None, _POSITIVE if is_positive else _NEGATIVE):
        raise ValueError("not a NUMBER")
    value = 0
    for digit in body:
        value = value * 100 + digit
    if is_positive:
        return value - _MORE[len(body)], 2 * (first - 192 - len(body))
    return value - 101 * _MORE[len(body)], 2 * (63 - first - len(body))


def _is_infinite(raw: bytes) -> bool:
    return raw == b"\x00" or raw == b"\xff\x65"


def number_to_whole(raw: bytes) -> int:
    # fast path: a positive integer
    size = len(raw) - 1
    if size and raw[0] - 192 >= size and raw[0] != 0xFF:
        body = raw[1:]
        if body.translate(None, _POSITIVE):
            raise ValueError("not a NUMBER")
        value = 0
        for digit in body:
            value = value * 100 + digit
        value -= _MORE[size]
        return value if raw[0] - 192 == size else int(value * 100 ** (raw[0] - 192 - size))
    if _is_infinite(raw):
        raise CodecError("an infinite NUMBER", hint="capture the column as text")
    value, exponent = parts_of_number(raw)
    if exponent >= 0:
        return value * int(10**exponent)
    whole, rest = divmod(value, int(10**-exponent))
    if rest:
        raise CodecError("a NUMBER with a fraction in a column of integers", hint=_DICTIONARY)
    return whole


def number_to_decimal(raw: bytes) -> Decimal:
    if _is_infinite(raw):
        return Decimal("Infinity" if raw[0] else "-Infinity")
    value, exponent = parts_of_number(raw)
    # by way of text: it is not rounded to the precision of a decimal context
    return Decimal(f"{value}E{exponent}")


def number_to_text(raw: bytes) -> str:
    """All digits, without an exponent: `0.5`, `-123.45`, `Infinity`."""
    if _is_infinite(raw):
        return "Infinity" if raw[0] else "-Infinity"
    value, exponent = parts_of_number(raw)
    if exponent >= 0:
        return str(value * int(10**exponent))
    sign = "-" if value < 0 else ""
    digits = str(abs(value)).rjust(1 - exponent, "0")
    return f"{sign}{digits[:exponent]}.{digits[exponent:].rstrip('0')}".rstrip(".")


#: caches shared by all columns
_WHOLES = Kept(number_to_whole)
_DECIMALS = Kept(number_to_decimal)
_TEXTS = Kept(number_to_text)


def number(column: OracleColumn) -> Decode:
    kind = ColumnKind.STRING if column.as_text else number_type(column.precision, column.scale).kind
    kept = {ColumnKind.STRING: _TEXTS, ColumnKind.DECIMAL: _DECIMALS}.get(kind, _WHOLES)
    return kept.__getitem__


def ieee(form: str) -> Decode:
    pack, unpack = struct.Struct(form.upper().replace("F", "I").replace("D", "Q")).pack, struct.Struct(form).unpack
    size = struct.calcsize(form)
    top, all_ones = 1 << (8 * size - 1), (1 << 8 * size) - 1

    def decode(raw: bytes) -> float:
        if len(raw) != size:
            raise ValueError("not a binary floating point number")
        bits = int.from_bytes(raw)
        value: float = unpack(pack(bits ^ top if bits & top else bits ^ all_ones))[0]
        return value

    return decode
