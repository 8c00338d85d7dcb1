"""Parses TABLE_MAP events, which describe the columns of a table.

Types and sizes are always present. Names, labels and the key are present with `binlog_row_metadata=FULL`; otherwise
they are read from the catalogue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lowwater.errors import LogUnknownError

# column types, as numbered in the log
TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13,
)  # fmt: skip
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
JSON, NEWDECIMAL, ENUM, SET = 245, 246, 247, 248
BLOB, VAR_STRING, STRING, GEOMETRY = 252, 253, 254, 255

_NUMERIC = frozenset((TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE))
CHARACTER = frozenset((VARCHAR, VAR_STRING, STRING, BLOB))
_LABELLED = frozenset((ENUM, SET))

_WITHOUT_METADATA = frozenset((TINY, SHORT, LONG, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR))
_ONE_BYTE = frozenset((FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, JSON, BLOB, GEOMETRY))

# optional metadata
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME, _SET_LABELS, _ENUM_LABELS = range(1, 7)
_GEOMETRY_TYPE, _SIMPLE_KEY, _PREFIXED_KEY, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET, _VISIBILITY = range(7, 13)

#: name prefix of the hidden column of a functional index
HIDDEN = "!hidden!"


@dataclass(frozen=True, slots=True)
class WireColumn:
    type: int
    #: by type: maximum bytes, size of the length prefix, bits, precision, or fractional digits of seconds
    size: int = 0
    scale: int = 0
    is_unsigned: bool = False
    #: 0: none or unknown
    collation: int = 0
    name: str = ""
    #: in the column's character set
    labels: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableMap:
    namespace: str
    table: str
    columns: tuple[WireColumn, ...]
    #: includes names, labels and the key
    is_full: bool = False
    #: includes the signedness of numbers, which MariaDB may omit
    has_signs: bool = False
    key: tuple[int, ...] = field(default=())


def packed(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def table_name(body: bytes) -> tuple[str, str, int]:
    """Return namespace, table and the offset after them. `body` starts with the table number."""
    at = 8
    size = body[at]
    namespace = body[at + 1 : at + 1 + size].decode()
    at += size + 2
    size = body[at]
    return namespace, body[at + 1 : at + 1 + size].decode(), at + size + 2


def parse(body: bytes, *, counts_year: bool = False, counts_geometry: bool = False) -> TableMap:
    """Parse a table map. `counts_year`: the writing server's signedness metadata has bits for YEAR columns;
    `counts_geometry`: its character set metadata has entries for geometry columns."""
    namespace, table, at = table_name(body)
    count, at = packed(body, at)
    types = body[at : at + count]
    size, at = packed(body, at + count)
    columns = list(_columns(types, body[at : at + size], f"{namespace}.{table}"))
    at += size + (count + 7) // 8
    if len(columns) != count or at > len(body):
        raise struct.error("cut off")
    text = CHARACTER | {GEOMETRY} if counts_geometry else CHARACTER
    return _with_metadata(TableMap(namespace, table, tuple(columns)), body, at, counts_year, text)


def _columns(types: bytes, metadata: bytes, where: str) -> Iterator[WireColumn]:
    at = 0
    for number, kind in enumerate(types, 1):
        if kind in _WITHOUT_METADATA:
            yield WireColumn(kind)
        elif kind in _ONE_BYTE:
            yield WireColumn(kind, metadata[at])
            at += 1
        elif kind == NEWDECIMAL:
            yield WireColumn(kind, metadata[at], metadata[at + 1])
            at += 2
        elif kind == BIT:
            yield WireColumn(kind, metadata[at] + 8 * metadata[at + 1])
            at += 2
        elif kind in (VARCHAR, VAR_STRING):
            yield WireColumn(VARCHAR, metadata[at] | metadata[at + 1] << 8)
            at += 2
        elif kind in (STRING, ENUM, SET):
            yield _string(metadata[at], metadata[at + 1])
            at += 2
        else:
            raise LogUnknownError(
                f"column {number} of {where} has an unknown type: {kind}",
                hint="take the table out of `tables`, or change the column's type; and report it",
            )


def _string(first: int, second: int) -> WireColumn:
    """Decode the metadata of a STRING: the real type, with the upper bits of a CHAR's length inverted in two bits."""
    if first & 0x30 != 0x30:
        return WireColumn(first | 0x30, second | (first & 0x30 ^ 0x30) << 4)
    return WireColumn(first, second)


def _with_metadata(found: TableMap, body: bytes, at: int, counts_year: bool, text: frozenset[int]) -> TableMap:
    columns = list(found.columns)
    key: tuple[int, ...] = ()
    has_names = False
    has_signs = False
    while at < len(body):
        kind = body[at]
        size, at = packed(body, at + 1)
        value = body[at : at + size]
        at += size
        match kind:
            case 1:  # _SIGNEDNESS
                has_signs = True
                for n, is_unsigned in _signs(columns, value, counts_year, f"{found.namespace}.{found.table}"):
                    columns[n] = replace(columns[n], is_unsigned=is_unsigned)
            case 2 | 10:  # default character sets
                _set_collations(columns, text if kind == _DEFAULT_CHARSET else _LABELLED, _defaulted(value))
            case 3 | 11:
                _set_collations(columns, text if kind == _COLUMN_CHARSET else _LABELLED, list(_numbers(value)))
            case 4:  # _COLUMN_NAME
                has_names = True
                for n, name in enumerate(_texts(value)):
                    columns[n] = replace(columns[n], name=name.decode())
            case 5 | 6:
                wanted = SET if kind == _SET_LABELS else ENUM
                labelled = [n for n, c in enumerate(columns) if c.type == wanted]
                for n, labels in zip(labelled, _lists(value), strict=True):
                    columns[n] = replace(columns[n], labels=labels)
            case 8:  # _SIMPLE_KEY
                key = tuple(_numbers(value))
            case 9:  # _PREFIXED_KEY: each with the length of its prefix
                key = tuple(_numbers(value))[::2]
            case _:
                # geometry type, visibility and unknown fields do not affect the rows; each field has its length, so it
                # can be skipped
                pass
    return replace(found, columns=tuple(columns), is_full=has_names, has_signs=has_signs, key=key)


def _signs(columns: list[WireColumn], value: bytes, counts_year: bool, where: str) -> list[tuple[int, bool]]:
    """Return (column index, is unsigned) of the numeric columns. MySQL before 8.0.29 has bits for numbers only, later
    versions and MariaDB also for YEAR, whose bit is always set; unused bits are never set. Usually the bits fit only
    one of the two layouts; if they fit both, the server's version decides."""
    bits = "".join(f"{byte:08b}" for byte in value)
    fits: dict[bool, list[tuple[int, bool]]] = {}
    for with_year in (False, True):
        counted = [n for n, c in enumerate(columns) if c.type in _NUMERIC or (with_year and c.type == YEAR)]
        used, spare = bits[: len(counted)], bits[len(counted) :]
        signs = [(n, bit == "1") for n, bit in zip(counted, used, strict=False)]
        has_years = all(is_unsigned for n, is_unsigned in signs if columns[n].type == YEAR)
        if len(value) == (len(counted) + 7) // 8 and "1" not in spare and has_years:
            fits[with_year] = signs
    if not fits:
        raise LogUnknownError(
            f"the signs of the numbers of {where} do not fit: {len(value)} bytes for {len(columns)} columns",
            hint="report it with the server's version",
        )
    return fits[counts_year] if counts_year in fits else fits[not counts_year]


def _numbers(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        number, at = packed(value, at)
        yield number


def _texts(value: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(value):
        size, at = packed(value, at)
        yield value[at : at + size]
        at += size


def _lists(value: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(value):
        count, at = packed(value, at)
        found = []
        for _ in range(count):
            size, at = packed(value, at)
            found.append(value[at : at + size])
            at += size
        yield tuple(found)


def _defaulted(value: bytes) -> dict[int, int]:
    """Return index among the text columns → collation, with the default at -1."""
    default, *pairs = _numbers(value)
    return {-1: default, **dict(zip(pairs[::2], pairs[1::2], strict=True))}


def _set_collations(columns: list[WireColumn], kinds: frozenset[int], given: dict[int, int] | list[int]) -> None:
    found = [n for n, c in enumerate(columns) if c.type in kinds]
    if isinstance(given, list) and len(given) != len(found):
        raise LogUnknownError(
            f"{len(given)} character sets for {len(found)} columns of text", hint="report it with the server's version"
        )
    for place, n in enumerate(found):
        collation = given[place] if isinstance(given, list) else given.get(place, given[-1])
        columns[n] = replace(columns[n], collation=collation)
