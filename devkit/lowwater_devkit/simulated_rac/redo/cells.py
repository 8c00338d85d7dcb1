"""Encodes values of the workload to column bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowwater.codec.table import Column, ColumnKind
from lowwater_extractor.sources.oracle.rows.value_writing import encoder
from lowwater_extractor.sources.oracle.types import DATABASE_FORM, OracleColumn, OracleType

#: a column's size, and its bytes padded to 4; size 0 is NULL
Cell = tuple[int, bytes]
Cells = Sequence[Cell]

NULL: Cell = (0, b"")
#: by size & 3
PAD = (b"", b"\0\0\0", b"\0\0", b"\0")

_CELLS_KEPT = 50_000
_KINDS: dict[ColumnKind, tuple[int, int, int | None]] = {
    ColumnKind.BOOLEAN: (OracleType.BOOLEAN, 1, None),
    ColumnKind.FLOAT32: (OracleType.BINARY_FLOAT, 4, None),
    ColumnKind.FLOAT64: (OracleType.BINARY_DOUBLE, 8, None),
    ColumnKind.BYTES: (OracleType.RAW, 2000, None),
    ColumnKind.DATE: (OracleType.DATE, 7, None),
    ColumnKind.TIMESTAMP: (OracleType.TIMESTAMP, 11, 6),
    ColumnKind.TIMESTAMPTZ: (OracleType.TIMESTAMP_TZ, 13, 6),
}
_INT32_DIGITS, _INT64_DIGITS = 9, 18
#: four decimal digits as two of a NUMBER
_DIGITS = [bytes([number // 100 + 1, number % 100 + 1]) for number in range(10_000)]
_POSITIVE = [bytes([193 + exponent]) for exponent in range(20)]


def oracle_column(column: Column, number: int) -> OracleColumn:
    """The Oracle column for a column of the workload."""
    kind, nullable = column.type.kind, column.nullable
    if kind in (ColumnKind.INT32, ColumnKind.INT64, ColumnKind.DECIMAL):
        digits, scale = column.type.precision, column.type.scale
        if kind is not ColumnKind.DECIMAL:
            digits, scale = _INT32_DIGITS if kind is ColumnKind.INT32 else _INT64_DIGITS, 0
        return OracleColumn(column.name, number, OracleType.NUMBER, 22, digits, scale, nullable)
    if kind in _KINDS:
        of, length, digits_of_second = _KINDS[kind]
        return OracleColumn(column.name, number, of, length, None, digits_of_second, nullable)
    # all other types, such as times of day, UUIDs, JSON and arrays, are text
    form = {"charset_form": DATABASE_FORM, "charset": "AL32UTF8"}
    return OracleColumn(column.name, number, OracleType.VARCHAR2, 4000, nullable=nullable, **form)  # type: ignore[arg-type]


def whole_number(value: int) -> bytes:
    """Encode an int as a NUMBER: a fast path for the most frequent type."""
    if value == 0:
        return b"\x80"
    rest = abs(value)
    raw = _DIGITS[rest % 10_000]
    while rest := rest // 10_000:
        raw = _DIGITS[rest % 10_000] + raw
    if raw[0] == 1:
        raw = raw[1:]
    exponent, digits = len(raw) - 1, raw.rstrip(b"\1")
    if len(digits) > 20 or exponent > 19:
        raise ValueError(f"{value} does not fit a NUMBER of this workload")
    if value > 0:
        return _POSITIVE[exponent] + digits
    end = b"\x66" if len(digits) < 20 else b""
    return bytes([62 - exponent, *[102 - digit for digit in digits]]) + end


class _Kept(dict[Any, Cell]):
    """A cache: values of one column → their cells. Values repeat in a workload."""

    def __init__(self, encode: Callable[[Any], bytes | None], only: type = object) -> None:
        """`only`: the type of the values that are cached."""
        super().__init__({None: NULL})
        self._encode = encode
        self._only = only

    def __missing__(self, value: Any) -> Cell:
        raw = self._encode(value) or b""
        cell = (len(raw), raw + PAD[len(raw) & 3])
        if isinstance(value, self._only):
            if len(self) > _CELLS_KEPT:
                self.clear()
                self[None] = NULL
            self[value] = cell
        return cell


def cells_of(column: OracleColumn, kind: ColumnKind) -> Callable[[Any], Cell]:
    """The encoder of one column."""
    encode = encoder(column)
    if column.type == OracleType.NUMBER:
        return _Kept(lambda value: whole_number(value) if type(value) is int else encode(value)).__getitem__
    if column.type == OracleType.VARCHAR2 and kind is not ColumnKind.STRING:
        return lambda value: _cell(encode(value if value is None or isinstance(value, str | bytes) else str(value)))
    if column.type == OracleType.TIMESTAMP_TZ:
        # equal instants have different bytes in different zones; a number has no zone
        return _Kept(encode, only=int).__getitem__
    if column.type in (OracleType.BINARY_FLOAT, OracleType.BINARY_DOUBLE):
        # 0.0 and -0.0 are equal, but their bytes differ
        return lambda value: _cell(encode(value))
    return _Kept(encode).__getitem__


def _cell(raw: bytes | None) -> Cell:
    return (len(raw), raw + PAD[len(raw) & 3]) if raw else NULL


def row_bytes(sizes: Sequence[int]) -> int:
    """Bytes of a row with columns of these sizes in its block."""
    return (
        3 + sum(sizes) + len(sizes) + (sum([2 for size in sizes if size > 250]) if max(sizes, default=0) > 250 else 0)
    )


def sizes_of(cells: Cells) -> list[int]:
    return [cell[0] for cell in cells]
