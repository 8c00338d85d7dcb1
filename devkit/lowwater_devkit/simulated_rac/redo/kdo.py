"""Packs the fields of 11.x and 5.1 with the operation on a row piece (KDO), and the head of a supplemental group."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from lowwater_devkit.simulated_rac.redo.cells import PAD, Cells, row_bytes
from lowwater_devkit.simulated_rac.redo.log import Form
from lowwater_devkit.simulated_rac.redo.pairs import KDO_REDO, KDO_UNDO

#: a row piece's block and slot
Place = tuple[int, int]
Pack = Callable[..., bytes]

#: flag byte of a row piece
HEAD, FIRST, LAST = 0x20, 0x08, 0x04
WHOLE = HEAD | FIRST | LAST
#: the slot of the transaction in the block
ITL = 1
#: kinds of a supplemental group
GROUP_UPDATE, GROUP_INSERT, GROUP_DELETE = 1, 2, 4

_MAX_FREE = 0x12FA
_COMMON = "IIHBBBBH"
_NOWHERE: Place = (0, 0)
#: bytes of unknown meaning in a supplemental group's head, as in real logs
_GROUP_17, _GROUP_13 = 2, 0x10


class Kdo:
    """Packs KDOs of one table; `header_dba` is the address of its segment header."""

    def __init__(self, form: Form, header_dba: int) -> None:
        order = self.order = form.order
        self._header = header_dba
        self._bare = struct.Struct(order + _COMMON).pack
        self._delete = struct.Struct(order + _COMMON + "HBx").pack
        self._forward = struct.Struct(order + _COMMON + "IH2xHBBB3x").pack
        self._group = struct.Struct(order + "BBHHHH3xB3xB2x").pack
        self._group_head = struct.Struct(order + "BBHHHH3xB3xB2xIHH").pack
        self._inserts: dict[int, tuple[int, Pack]] = {}
        self._updates: dict[int, tuple[int, Pack]] = {}

    def packer(self, count: int) -> Pack:
        """The packer of a field of `count` 16-bit numbers, padded to 4 bytes."""
        return struct.Struct(f"{self.order}{count}H{'2x' if count % 2 else ''}").pack

    def words(self, values: Sequence[int]) -> tuple[int, bytes]:
        return 2 * len(values), self.packer(len(values))(*values)

    def bare(self, dba: int, op: int) -> bytes:
        return self._bare(dba, self._header, _MAX_FREE, op, KDO_REDO, ITL, 0, 0)

    def delete(self, dba: int, slot: int, op: int) -> bytes:
        return self._delete(dba, self._header, _MAX_FREE, op, KDO_REDO, ITL, 0, 0, slot, 0)

    def insert(
        self, place: Place, op: int, fb: int, sizes: Sequence[int], head: Place | None, after: Place | None, lock: int
    ) -> tuple[int, bytes]:
        """The KDO of an insert or an overwrite. `head`: place of the row's head; `after`: place of its next piece."""
        count = len(sizes)
        if count not in self._inserts:
            self._inserts[count] = self._compile("BBBxIH2xIH6xHHB", 45, count, 3)
        size, pack = self._inserts[count]
        taken = row_bytes(sizes) + (6 if after else 0)
        return size, pack(
            *(place[0], self._header, _MAX_FREE, op, KDO_REDO, ITL, 0, 0, fb, lock, count),
            *(head or _NOWHERE),
            *(after or _NOWHERE),
            *(taken, place[1], 0, nulls(sizes)),
        )

    def update(
        self, place: Place, op: int, fb: int, columns: int, sizes: Sequence[int], growth: int, lock: int
    ) -> tuple[int, bytes]:
        """`columns`: number of columns in the piece; `sizes`: sizes of the changed columns."""
        count = len(sizes)
        if count not in self._updates:
            self._updates[count] = self._compile("BBBBHBBh", 26, count, 2)
        size, pack = self._updates[count]
        dba, slot = place
        # without unpacking of tuples, because it is called for each update
        return size, pack(
            dba,
            self._header,
            _MAX_FREE,
            op,
            KDO_REDO,
            ITL,
            0,
            0,
            fb,
            lock,
            0,
            0,
            slot,
            columns,
            count,
            growth,
            nulls(sizes),
        )

    def forward(self, place: Place, op: int, to: Place, lock: int) -> bytes:
        """The KDO that points the head of a migrated row to its new place."""
        return self._forward(
            *(place[0], self._header, _MAX_FREE, op, KDO_REDO, ITL, 0, 0),
            *(*to, place[1], HEAD, 0, lock),
        )

    def _compile(self, codes: str, fixed: int, count: int, behind: int) -> tuple[int, Pack]:
        """The struct of a KDO that ends with a null bitmap of `count` columns."""
        bitmap = (count + 7) // 8
        size = fixed + bitmap + behind
        return size, struct.Struct(f"{self.order}{_COMMON}{codes}{bitmap}s{behind + -size % 4}x").pack

    def many(self, dba: int, op: int, slots: Sequence[int]) -> tuple[int, bytes]:
        lock = 0 if op & KDO_UNDO else ITL
        body = struct.pack(f"{self.order}BBBx{len(slots)}H", 0, lock, len(slots), *slots)
        return 16 + len(body), self.bare(dba, op) + body + PAD[len(body) & 3]

    def group(
        self, kind: int, fb: int, count: int, before: int, after: int, head: Place | None
    ) -> tuple[Sequence[int], bytes]:
        """The head of a supplemental group, with the place of the row's head if it is given."""
        if head is None:
            return (20,), self._group(kind, fb, count, 1, before, after, 0, _GROUP_17)
        flag = _GROUP_13 if kind == GROUP_UPDATE else 0
        return (28,), self._group_head(kind, fb, count, 1, before, after, flag, _GROUP_17, *head, 0)


def nulls(sizes: Sequence[int]) -> bytes:
    """The null bitmap: one bit per column, the lowest first; set: NULL, which has no bytes."""
    count = (len(sizes) + 7) // 8
    if 0 not in sizes:
        return bytes(count)
    return sum([1 << at for at, size in enumerate(sizes) if not size]).to_bytes(count, "little")


def packed_row(cells: Cells, fb: int, lock: int, order: str = "<") -> bytes:
    """A row in block format: flags, lock, count, then length and bytes of each column."""
    parts = [bytes([fb, lock, len(cells)])]
    for size, padded in cells:
        if not size:
            parts.append(b"\xff")
        elif size <= 250:
            parts.append(bytes([size]) + padded[:size])
        else:
            parts.append(b"\xfe" + struct.pack(order + "H", size) + padded[:size])
    return b"".join(parts)
