"""Joins captured pairs to complete row changes.

A row in several pieces is logged as several pairs, and so is one that migrates to another block because it has outgrown
its own. The pairs of one row are consecutive, and flags in the supplemental group mark the first (F) and the last (L).
An insert writes its last piece first, so that the piece before can point to it.

The values of a column in a change:

| | before | after |
|---|---|---|
| in the row before, or after | that value | that value |
| in one of the two only | NULL: the row ended before it | NULL |
| in the supplemental group | that value | that value: it did not change |
| nowhere | unknown | unknown: it did not change |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lowwater.errors import LogCorruptError
from lowwater_extractor.sources.oracle.redo.layout import UNDO_MIDDLE, UNDO_TAIL
from lowwater_extractor.sources.oracle.rows import pair_fields, pairs
from lowwater_extractor.sources.oracle.rows.pairs import CHANGING, Image, Pair, Value

_OPS = {pairs.UPDATE: "u", pairs.INSERT: "c", pairs.DELETE: "d"}


@dataclass(slots=True)
class RowChange:
    object_id: int
    op: str
    #: segment column → bytes, for the columns in the log
    before: dict[int, Value] = field(default_factory=dict)
    after: dict[int, Value] = field(default_factory=dict)
    #: columns of the supplemental group, before the change
    more: dict[int, Value] = field(default_factory=dict)
    #: the log has supplemental data of the row
    has_group: bool = True


def is_ddl(data: bytes) -> bool:
    """Whether it is a captured DDL record, not a pair: its first vector is a 24.1."""
    return data[8:10] == b"\x18\x01"


def changes_max(data: bytes) -> int:
    """Upper bound of the number of changes in a captured pair.

    The sum over a transaction is exact if every row is in one piece.
    """
    split = data[6] | data[7] << 8
    if not split:
        return int(is_ddl(data))
    at = 8 + 4 * split
    op = data[at + 1]
    if op in (pairs.QMI, pairs.QMD):
        return pair_fields.fields(data, at, pair_fields.order_of(data))[1][18]
    return int(op in CHANGING)


class Joiner:
    """Joins the pairs of one transaction, in their order; returns each change with its last piece."""

    __slots__ = ("_open", "_parts", "is_idle")

    def __init__(self) -> None:
        self._open: list[Pair] = []
        #: parts of an undo whose head was not added yet
        self._parts: list[list[bytes]] = []
        self.is_idle = True

    def add(self, data: bytes) -> list[RowChange]:
        undo, code, redo = pair_fields.vectors(data)
        order = pair_fields.order_of(data)
        flags = pair_fields.undo_flags(undo, order)
        if not code:
            if flags & (UNDO_TAIL | UNDO_MIDDLE):
                self._parts.append(undo)
                self.is_idle = False
            # an undo without a row change changes no row
            return []
        if self._parts:
            undo = pair_fields.join_parts(undo, self._parts, order)
            self._parts = []
        changes = self._add(pairs.read(data, undo, code, redo))
        self.is_idle = not self._open and not self._parts
        return changes

    def end(self) -> None:
        """End of the transaction. Raises if a row is incomplete."""
        if not self.is_idle:
            raise pair_fields.bad("the transaction ends in the middle of a row: its last piece is missing")

    def _add(self, pair: Pair) -> list[RowChange]:
        if pair.op in (pairs.QMI, pairs.QMD):
            self._expect_none(pair)
            return [_one_of_many(pair, row) for row in pair.rows]
        group = pair.group
        if group is None:
            change = _alone(pair)
            return [change] if change else []
        if group.kind & pairs.CLUSTER_KEY:
            raise pair_fields.unknown("a row of a table in a cluster")
        if group.kind == pairs.LOCK and pair.op not in CHANGING:
            return []
        if group.fb & pairs.CLUSTER_KEY_PIECE and pair.op in CHANGING:
            raise pair_fields.unknown(f"a change of object {pair.object_id} with supplemental flags {group.fb:02x}")
        if self._open and self._is_other_row(pair):
            self._expect_none(pair)
        self._open.append(pair)
        if not group.fb & pairs.LAST:
            return []
        row, self._open = self._open, []
        return _whole(row)

    def _is_other_row(self, pair: Pair) -> bool:
        """Whether the pair belongs to another row: by object, by the position of the row's head, or else by the flag of
        a row's first pair.

        A short supplemental header has no position: that of inserts, of deletes, and (seen in 19c) of the first pair of
        an update whose other pairs have one. So positions are compared only if both sides have one.
        """
        if self._open[0].object_id != pair.object_id:
            return True
        place, known = _place(pair), next((p for each in self._open if (p := _place(each)) is not None), None)
        if place is not None and known is not None:
            return place != known
        return pair.group is not None and bool(pair.group.fb & pairs.FIRST)

    def _expect_none(self, pair: Pair) -> None:
        if self._open:
            raise pair_fields.bad(
                f"a change of object {pair.object_id} in the middle of a row of {self._open[0].object_id}"
            )


def _place(pair: Pair) -> tuple[int, int] | None:
    return pair.group.place if pair.group else None


def _one_of_many(pair: Pair, row: Image) -> RowChange:
    values = dict(zip(row.columns, row.values, strict=True))
    if pair.op == pairs.QMI:
        return RowChange(pair.object_id, "c", after=values)
    return RowChange(pair.object_id, "d", before=values)


def _alone(pair: Pair) -> RowChange | None:
    """The change of a pair without supplemental data: possible only for complete rows."""
    if pair.op not in CHANGING:
        return None
    image = pair.redo if pair.op == pairs.IRP else pair.undo if pair.op == pairs.DRP else None
    if image is None or image.fb & pairs.WHOLE != pairs.WHOLE or image.begins_inside or image.ends_inside:
        raise pairs.no_group()
    values = dict(zip(image.columns, image.values, strict=True))
    if pair.op == pairs.IRP:
        return RowChange(pair.object_id, "c", after=values, has_group=False)
    return RowChange(pair.object_id, "d", before=values, has_group=False)


def _whole(row: list[Pair]) -> list[RowChange]:
    """The change of the pairs of one row; empty if they change nothing."""
    changing = [pair for pair in row if pair.op in CHANGING]
    if not changing:
        return []
    kinds = {pair.group.kind for pair in changing if pair.group} & _OPS.keys()
    op = _OPS[kinds.pop()] if len(kinds) == 1 else "u"
    if op == "c":
        row = row[::-1]
    _check_all_pieces(op, row)
    return [
        RowChange(
            row[0].object_id,
            op,
            before=_joined([pair.undo for pair in row]),
            after=_joined([pair.redo for pair in row]),
            more=_joined([pair.group.image for pair in row if pair.group]),
        )
    ]


def _check_all_pieces(op: str, row: list[Pair]) -> None:
    """Raise if the pieces of an inserted or deleted row lack the first or the last one."""
    if op == "u":
        return
    found = 0
    for pair in row:
        image = pair.redo if op == "c" else pair.undo
        found |= image.fb if image is not None else 0
    if found & (pairs.FIRST | pairs.LAST) != pairs.FIRST | pairs.LAST:
        raise pair_fields.bad(f"a row of object {row[0].object_id} of which not all pieces are in the log")


def _joined(images: list[Image | None]) -> dict[int, Value]:
    """The columns of all pieces; a column that spans several pieces is joined."""
    values: dict[int, Value] = {}
    parts: dict[int, list[tuple[int, bytes]]] = {}
    for image in images:
        if image is None:
            continue
        end = len(image.columns) - 1
        for i, (column, value) in enumerate(zip(image.columns, image.values, strict=True)):
            begins = image.begins_inside and i == 0
            ends = image.ends_inside and i == end
            if begins or ends:
                parts.setdefault(column, []).append((2 * begins - ends, value or b""))
            else:
                values[column] = value
    for column, found in parts.items():
        values[column] = _from_parts(column, found)
    return values


def _from_parts(column: int, found: list[tuple[int, bytes]]) -> bytes:
    """Join parts: first the one that only continues in the next piece (-1), then those that also began before (1), last
    the one that only began before (2).
    """
    ranks = sorted(rank for rank, _ in found)
    if len(ranks) < 2 or ranks[0] != -1 or ranks[-1] != 2 or any(rank != 1 for rank in ranks[1:-1]):
        raise LogCorruptError(
            f"segment column {column} spans several row pieces, of which not all are in the log",
            hint="add supplemental logging of all columns to the table, or drop the column from capture",
        )
    return b"".join(value for _, value in sorted(found, key=lambda part: part[0]))
