"""Captured pairs made by hand, as the format document has them (not as the simulated cluster writes them)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

Value = bytes | None

IRP, DRP, LKR, URP, ORP, CFA, QMI, QMD, LMN, CMP = 2, 3, 4, 5, 6, 8, 11, 12, 16, 22
UPDATE, INSERT, DELETE = 1, 2, 4
WHOLE = 0x2C
OBJECT = 72726


def vector(opcode: tuple[int, int], fields: Sequence[bytes], order: str = "<", container: int = 3) -> bytes:
    head = bytes(opcode) + struct.pack(f"{order}HHHI", 1, 24, 0, 0x0600000E) + bytes(8) + b"\x01\x02"
    head += struct.pack(f"{order}HHHHH", 0x1C16, container, 0, 0, 0)
    assert len(head) == 32
    sizes = struct.pack(f"{order}{len(fields) + 1}H", 2 * len(fields) + 2, *map(len, fields))
    # padding is residue: never zero here, so that whoever reads it is found out
    body = b"".join(field + b"\xee" * (-len(field) % 4) for field in fields)
    return head + sizes + b"\xee" * (-len(sizes) % 4) + body


def nulls(values: Sequence[Value]) -> bytes:
    bits = sum(1 << i for i, value in enumerate(values) if value is None)
    return bits.to_bytes((len(values) + 7) // 8, "little")


@dataclass
class Build:
    order: str = "<"
    object_id: int = OBJECT
    container: int = 3
    dba: int = 0x0600000E
    slot: int = 5
    #: row dependencies, packed columns
    op_flags: int = 0
    kdo_flags: int = 1

    def pack(self, form: str, *values: int) -> bytes:
        return struct.pack(self.order + form, *values)

    # -- the KDO of each operation

    def kdo(self, op: int, rest: bytes, extra: int = 0) -> bytes:
        head = self.pack("IIH", self.dba, 0x0600000A, 0x12FA) + bytes(
            [op | extra | self.op_flags, self.kdo_flags, 1, 0]
        )
        return head + bytes(2) + rest

    def piece(
        self, values: Sequence[Value], fb: int = WHOLE, op: int = IRP, extra: int = 0, size: int | None = None
    ) -> bytes:
        if size is None:
            sizes = [len(value or b"") for value in values]
            size = 3 + sum(n + (3 if n > 250 else 1) for n in sizes)
        rest = bytes([fb, 1, len(values), 0]) + bytes(20) + self.pack("HHB", size, self.slot, 0)
        return self.kdo(op, rest + nulls(values) + bytes(3), extra)

    def some(self, values: Sequence[Value], fb: int = WHOLE, in_piece: int = 5, extra: int = 0) -> bytes:
        rest = bytes([fb, 1, 0, 0]) + self.pack("HBBh", self.slot, in_piece, len(values), 0)
        return self.kdo(URP, rest + nulls(values) + bytes(2), extra)

    def gone(self, extra: int = 0) -> bytes:
        return self.kdo(DRP, self.pack("HBB", self.slot, 0, 0), extra)

    def many(self, op: int, count: int, extra: int = 0) -> bytes:
        return self.kdo(op, bytes([0, 1, count, 0]) + self.pack(f"{count}H", *range(count)), extra)

    # -- the supplemental group

    def group(
        self,
        kind: int,
        *,
        fb: int | None = None,
        undo_first: int = 0,
        redo_first: int = 0,
        more: dict[int, Value] | None = None,
        place: bool | None = None,
    ) -> list[bytes]:
        more = more or {}
        if fb is None:
            fb = 0x0C if kind == UPDATE else 0x1C
        raw = bytes([kind, fb]) + self.pack("HHHH", len(more), 1, undo_first, redo_first) + bytes(10)
        if place or (place is None and kind == UPDATE):
            raw += self.pack("IH", self.dba, self.slot) + bytes(2)
        if not more:
            return [raw]
        sizes = [len(value or b"") for value in more.values()]
        lists = [self.pack(f"{len(more)}H", *more), self.pack(f"{len(more)}H", *sizes)]
        return [raw, *lists, *(value or b"" for value in more.values())]

    # -- pairs

    def undo(self, fields: Sequence[bytes], flags: int = 0x0080) -> bytes:
        f1 = self.pack("HHHHHHIHBB", 0x88, 0x0C86, 0x12, 0, 10, 12, 572, 0x8B, 0x23, 0)
        f2 = self.pack("IIII", self.object_id, self.object_id, 6, 0) + bytes([11, 1, 12, 0]) + self.pack("HH", flags, 1)
        return vector((5, 1), [f1, f2, *fields], self.order, self.container)

    def ktb(self) -> bytes:
        return b"\x01\x0d" + bytes(22)

    def pair(self, op: int, undo: Sequence[bytes], redo: Sequence[bytes], flags: int = 0x0080) -> bytes:
        first = self.undo([b"\x03\x0d" + bytes(6), *undo], flags)
        second = vector((11, op), [self.ktb(), *redo], self.order, self.container)
        return self.head(len(first)) + first + second

    def head(self, split: int) -> bytes:
        return struct.pack("<IHH", self.object_id, int(self.order == ">"), split // 4)

    def part(self, fields: Sequence[bytes], flags: int) -> bytes:
        """An undo that stands alone: one part of a long one."""
        return self.head(0) + self.undo(fields, flags)

    def insert(self, values: Sequence[Value], *, fb: int = WHOLE, first: int = 1, group_fb: int = 0x1C) -> bytes:
        group = self.group(INSERT, fb=group_fb, redo_first=first)
        return self.pair(IRP, [self.gone(0x20), *group], [self.piece(values, fb), *(v or b"" for v in values)])

    def delete(self, values: Sequence[Value], *, fb: int = WHOLE, first: int = 1, group_fb: int = 0x1C) -> bytes:
        group = self.group(DELETE, fb=group_fb, undo_first=first)
        undo = [self.piece(values, fb, IRP, 0x20), *(v or b"" for v in values), *group]
        return self.pair(DRP, undo, [self.gone()])

    def update(
        self,
        before: dict[int, Value],
        after: dict[int, Value],
        more: dict[int, Value] | None = None,
        *,
        first: int = 1,
        group_fb: int = 0x0C,
        fb: int = WHOLE,
        place: bool | None = None,
    ) -> bytes:
        """Columns are those of the segment; `first` is where the piece begins."""
        numbers_b = self.pack(f"{len(before)}H", *(column - first for column in before))
        numbers_a = self.pack(f"{len(after)}H", *(column - first for column in after))
        group = self.group(UPDATE, fb=group_fb, undo_first=min(before), redo_first=min(after), more=more, place=place)
        olds, news = list(before.values()), list(after.values())
        undo = [self.some(olds, fb, extra=0x20), numbers_b, *(v or b"" for v in olds), *group]
        return self.pair(URP, undo, [self.some(news, fb), numbers_a, *(v or b"" for v in news)])

    def packed(self, values: Sequence[Value]) -> bytes:
        parts = []
        for value in values:
            if value is None:
                parts.append(b"\xff")
            elif len(value) > 250:
                parts.append(b"\xfe" + self.pack("H", len(value)) + value)
            else:
                parts.append(bytes([len(value)]) + value)
        return b"".join(parts)

    def packed_rows(self, rows: Sequence[Sequence[Value]]) -> list[bytes]:
        scn = bytes(8) if self.op_flags & 0x40 else b""
        found = [bytes([WHOLE, 1, len(row)]) + scn + self.packed(row) for row in rows]
        return [self.pack(f"{len(found)}H", *map(len, found)), b"".join(found)]

    def insert_many(self, rows: Sequence[Sequence[Value]]) -> bytes:
        group = self.group(INSERT, redo_first=1)
        undo = [self.many(QMD, len(rows), 0x20), *group]
        return self.pair(QMI, undo, [self.many(QMI, len(rows)), *self.packed_rows(rows)])

    def delete_many(self, rows: Sequence[Sequence[Value]]) -> bytes:
        group = self.group(DELETE, undo_first=1)
        undo = [self.many(QMI, len(rows), 0x20), *self.packed_rows(rows), *group]
        return self.pair(QMD, undo, [self.many(QMD, len(rows))])

    def supplement(self, more: dict[int, Value], *, op: int = LMN, group_fb: int = 0x0C, kind: int = UPDATE) -> bytes:
        """Says more about a row, and changes nothing."""
        empty = self.kdo(op, b"")
        group = self.group(kind, fb=group_fb, more=more)
        return self.pair(op, [self.kdo(op, b"", 0x20), *group], [empty])

    def overwrite(
        self, before: Sequence[Value], after: Sequence[Value], *, fb: int = WHOLE, group_fb: int = 0x0C, first: int = 1
    ) -> bytes:
        group = self.group(UPDATE, fb=group_fb, undo_first=first, redo_first=first if after else 0)
        undo = [self.piece(before, WHOLE, ORP, 0x20), *(v or b"" for v in before), *group]
        return self.pair(ORP, undo, [self.piece(after, fb, ORP), *(v or b"" for v in after)])

    def moved_in(self, values: Sequence[Value], *, group_fb: int, first: int = 1, fb: int = 0x0C) -> bytes:
        """The new piece of a row that an update moves."""
        group = self.group(UPDATE, fb=group_fb, redo_first=first)
        return self.pair(IRP, [self.gone(0x20), *group], [self.piece(values, fb), *(v or b"" for v in values)])
