"""Parses one captured pair into columns. Pure.

The segment columns of a row piece are known from the supplemental group: in the row itself, columns are counted from 0
in each piece. Values are slices of the log, not decoded; None is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import error, unpack, unpack_from
from typing import Any

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.oracle.rows.pair_fields import bad, order_of, unknown

IRP, DRP, LKR, URP, ORP, CFA, QMI, QMD, DSC, LMN, LLB, CMP = 2, 3, 4, 5, 6, 8, 11, 12, 14, 16, 17, 22
#: operations that change rows; the others lock or forward a row, or add supplemental data
CHANGING = frozenset({IRP, DRP, URP, ORP, QMI, QMD})
_KNOWN = CHANGING | {LKR, CFA, DSC, LMN, LLB, CMP}
_OP, _ROW_DEPENDENCIES, _PACKED = 0x1F, 0x40, 0x80

#: flag byte of a row piece
GOES_ON, GOES_ON_BEFORE, LAST, FIRST, HEAD_PIECE, CLUSTERED = 0x01, 0x02, 0x04, 0x08, 0x20, 0xC0
WHOLE = HEAD_PIECE | FIRST | LAST
CLUSTER_KEY_PIECE = 0x80

#: kinds of a supplemental group
UPDATE, INSERT, DELETE, CLUSTER_KEY, LOCK = 1, 2, 4, 8, 16

_ROW_UNDO = b"\x0b\x01"
_NULL_LENGTH, _LONG_LENGTH, _NO_LENGTH = 0xFF, 0xFE, 0xFFFF

Value = bytes | None


@dataclass(slots=True)
class Image:
    """Some columns of a row: segment column (from 1) and bytes."""

    columns: list[int]
    values: list[Value]
    #: the flag byte of its piece
    fb: int
    #: its first column began in the previous piece; its last column continues in the next
    begins_inside: bool = False
    ends_inside: bool = False


@dataclass(slots=True)
class Group:
    """The supplemental group: additional columns of the row in the log."""

    kind: int
    fb: int
    #: segment column of the first column in the undo and in the redo
    undo_first: int
    redo_first: int
    #: position of the row's head: the same in all pairs of one update
    place: tuple[int, int] | None
    image: Image


@dataclass(slots=True)
class Pair:
    object_id: int
    op: int
    group: Group | None
    #: the row before and after the change
    undo: Image | None = None
    redo: Image | None = None
    #: the rows of a change of many rows
    rows: list[Image] = field(default_factory=list)


def read(data: bytes, undo: list[bytes], code: bytes, redo: list[bytes]) -> Pair:
    """Parse a pair from its fields; `undo` must be joined already."""
    order = order_of(data)
    try:
        return _read(int.from_bytes(data[:4], "little"), undo, code, redo, order)
    except (error, IndexError) as cause:
        raise bad(f"a row change ({'.'.join(map(str, code))}) that is shorter than its fields") from cause


def _read(object_id: int, undo: list[bytes], code: bytes, redo: list[bytes], order: str) -> Pair:
    if undo[1][16:18] != _ROW_UNDO:
        raise unknown(f"undo of {undo[1][16]}.{undo[1][17]} for object {object_id}: not of a table's row")
    if code[0] != 11 or code[1] not in _KNOWN:
        raise unknown(f"opcode {code[0]}.{code[1]} on object {object_id}")
    if code[1] == DSC:
        # DROP COLUMN rewrites the rows: the other columns are unchanged, and the DDL marks the table as stale
        return Pair(object_id, DSC, None)
    image, at = _image(undo, 3, order, is_undo=True)
    group = _group(undo, at, order)
    op = code[1]
    after = _image(redo, 1, order, is_undo=False)[0] if op in (IRP, ORP, URP, QMI) else None
    _number(image, group.undo_first if group else 0)
    _number(after, group.redo_first if group else 0)
    pair = Pair(object_id, op, group)
    if op in (QMI, QMD):
        # many rows: the rows of a delete are in the undo
        rows = after if op == QMI else image
        if not isinstance(rows, list):
            raise bad(f"a change of many rows of object {object_id} that has none")
        pair.rows = rows
        return pair
    if isinstance(image, list) or isinstance(after, list):
        raise bad(f"a change of one row of object {object_id} whose undo has many")
    pair.undo, pair.redo = image, after
    return pair


def _number(image: Image | list[Image] | None, first: int) -> None:
    """Convert column numbers in a piece, from 0, to segment columns."""
    if not isinstance(image, Image) or not image.columns:
        return
    if not first:
        # without a group: the first piece of a row begins with column 1
        if not image.fb & FIRST:
            raise no_group()
        first = image.columns[0] + 1
    shift = first - image.columns[0]
    image.columns = [column + shift for column in image.columns]


class NoGroupError(LogUnknownError):
    """The log does not identify the columns of a row: minimal supplemental logging is off."""


def no_group() -> NoGroupError:
    return NoGroupError(
        "a change of a row in pieces, or of some of its columns, without supplemental data",
        hint="ALTER DATABASE ADD SUPPLEMENTAL LOG DATA; then reset the source",
    )


def _image(found: list[bytes], at: int, order: str, *, is_undo: bool) -> tuple[Image | list[Image] | None, int]:
    """The row after the KDO in field `at`, and the index of the field after the row."""
    kdo = found[at]
    op = kdo[10] & _OP
    at += 1
    image: Image | list[Image] | None = None
    if op in (IRP, ORP):
        image, at = _piece(found, at, kdo, order, is_undo=is_undo)
    elif op == URP:
        image, at = _some_columns(found, at, kdo, order, is_undo=is_undo)
    elif op == QMI:
        image, at = _many(found, at, kdo, order), at + 2
    elif op not in _KNOWN:
        raise unknown(f"a row change of kind {op}")
    if kdo[10] & _ROW_DEPENDENCIES and op not in (QMI, QMD):
        at = _past_empty(found, at)
        # the row's SCN: 8 bytes, 6 before 12.2
        if at < len(found) and len(found[at]) in (6, 8):
            at += 1
    return image, at


def _past_empty(found: list[bytes], at: int) -> int:
    while at < len(found) and not found[at]:
        at += 1
    return at


def _take(found: list[bytes], at: int, count: int, nulls: bytes, *, is_undo: bool) -> tuple[list[Value], int]:
    """Read `count` columns. In the undo a NULL may have an empty field or none; a value is never empty."""
    values: list[Value] = []
    for i in range(count):
        is_null = bool(nulls[i >> 3] >> (i & 7) & 1)
        if is_undo:
            if is_null:
                values.append(None)
                continue
            at = _past_empty(found, at)
        elif at >= len(found) and is_null:
            # NULLs at the end are left out
            values.append(None)
            continue
        value = found[at]
        at += 1
        if value and is_null:
            raise bad("a column that is NULL and has a value")
        values.append(value or None)
    return values, at


def _piece(found: list[bytes], at: int, kdo: bytes, order: str, *, is_undo: bool) -> tuple[Image, int]:
    fb, count = kdo[16], kdo[18]
    if fb & CLUSTERED:
        raise unknown("a row of a table in a cluster")
    size = unpack_from(f"{order}H", kdo, 40)[0]
    if at < len(found) and len(found[at]) == size and size and count != 1:
        raise unknown("a row that its block has compressed")
    values, at = _take(found, at, count, kdo[45:], is_undo=is_undo)
    image = Image(list(range(count)), values, fb, bool(fb & GOES_ON_BEFORE), bool(fb & GOES_ON))
    return image, at


def _some_columns(found: list[bytes], at: int, kdo: bytes, order: str, *, is_undo: bool) -> tuple[Image, int]:
    fb, in_piece, count = kdo[16], kdo[22], kdo[23]
    if fb & CLUSTERED:
        raise unknown("a row of a table in a cluster")
    if not count:
        return Image([], [], fb), at + 1
    numbers = _numbers(found[at], order)
    if kdo[11] & _PACKED:
        columns = list(range(numbers[0], numbers[0] + count))
        values, _ = _unpack(found[at + 1], 0, count, order)
        at += 2
    else:
        columns = list(numbers[:count])
        values, at = _take(found, at + 1, count, kdo[26:], is_undo=is_undo)
    if len(columns) != count:
        raise bad("an update with fewer column numbers than columns")
    begins = bool(fb & GOES_ON_BEFORE) and columns[0] == 0
    ends = bool(fb & GOES_ON) and columns[-1] == in_piece - 1
    return Image(columns, values, fb, begins, ends), at


def _numbers(raw: bytes, order: str) -> tuple[int, ...]:
    return unpack(f"{order}{len(raw) // 2}H", raw[: len(raw) & ~1])


def _unpack(raw: bytes, at: int, count: int, order: str) -> tuple[list[Value], int]:
    """Columns in block format: each is preceded by its length."""
    values: list[Value] = []
    for _ in range(count):
        size = raw[at]
        at += 1
        if size == _NULL_LENGTH:
            values.append(None)
            continue
        if size == _LONG_LENGTH:
            size = unpack_from(f"{order}H", raw, at)[0]
            at += 2
        if at + size > len(raw):
            raise bad("a packed row that is shorter than its columns")
        values.append(raw[at : at + size] or None)
        at += size
    return values, at


def _many(found: list[bytes], at: int, kdo: bytes, order: str) -> list[Image]:
    """The rows of an insert of many, or of the undo of a delete of many."""
    sizes = _numbers(found[at], order)[: kdo[18]]
    raw = found[at + 1]
    rows: list[Image] = []
    start = 0
    for size in sizes:
        fb, count = raw[start], raw[start + 2]
        if fb & (CLUSTERED | WHOLE) != WHOLE:
            raise unknown(f"one of many rows with flags {fb:02x}: not a whole row of its own")
        # with row dependencies an SCN of 8 bytes precedes the columns
        values, end = _unpack(raw, start + 3 + (8 if kdo[10] & _ROW_DEPENDENCIES else 0), count, order)
        if end != start + size:
            raise unknown("one of many rows is not as long as its columns: compressed")
        rows.append(Image(list(range(1, count + 1)), values, fb))
        start += size
    if len(rows) != kdo[18]:
        raise bad(f"{kdo[18]} rows at once, with sizes of {len(rows)}")
    return rows


def _group(undo: list[bytes], at: int, order: str) -> Group | None:
    at = _past_empty(undo, at)
    if at >= len(undo):
        return None
    raw = undo[at]
    if len(raw) < 20:
        raise bad(f"a supplemental group of {len(raw)} bytes")
    count, _, undo_first, redo_first = unpack_from(f"{order}HHHH", raw, 2)
    # a short header has no position, and a long one has zeros if the head has no position yet
    place: Any = unpack_from(f"{order}IH", raw, 20) if len(raw) >= 26 else None
    if place == (0, 0):
        place = None
    columns: list[int] = []
    values: list[Value] = []
    if count:
        columns = list(_numbers(undo[at + 1], order)[:count])
        sizes = _numbers(undo[at + 2], order)[:count]
        for i, size in enumerate(sizes):
            value = undo[at + 3 + i] if at + 3 + i < len(undo) else b""
            if size != len(value) and size != _NO_LENGTH:
                raise bad("a supplemental column whose length is wrong")
            values.append(None if size in (0, _NO_LENGTH) else value)
        if len(columns) != count or len(values) != count:
            raise bad("a supplemental group with fewer columns than its count")
    fb = raw[1]
    image = Image(columns, values, fb, bool(fb & GOES_ON_BEFORE), bool(fb & GOES_ON))
    return Group(raw[0], fb, undo_first, redo_first, place, image)
