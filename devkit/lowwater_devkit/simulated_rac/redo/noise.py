"""Records other than changes of users' rows: a reader has to skip them.

| record | meaning |
|---|---|
| 5.1, 10.2 or 10.4 | an index entry is inserted or deleted with its row |
| 23.1, flag 0x02 | blocks that were written to their files |
| 13.22, 13.61, 13.63, 22.15 | space management |
| 4.1 | cleanout of a block |
| 17.28 | a marker of the log writer |
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from lowwater_devkit.simulated_rac.redo.cells import Cell
from lowwater_devkit.simulated_rac.redo.kdo import Place
from lowwater_devkit.simulated_rac.redo.log import BLOCKS_WRITTEN, flagged_scn, plain_scn
from lowwater_devkit.simulated_rac.redo.pairs import INDEX_DELETE, INDEX_INSERT, Pair, Segment
from lowwater_devkit.simulated_rac.redo.rows import RedoTable
from lowwater_devkit.simulated_rac.redo.vectors import Vectors

#: the root container, of records by the log writer itself
ROOT, ROOT_UID = 1, 1
_SPACE = Segment(0xFFFF, 0xFFFF, 0, 22, 0x80, 0xFFFF)
_DATA = Segment(72000, 72000, 6, 24, 24 << 22 | 0x80)
_SPACE_MAP, _BITMAP, _EXTENTS = 8, 9, 11


class Noise:
    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._order = vectors.form.order
        self._count = 0
        self._kinds: tuple[Callable[[int], bytes], ...] = (
            self.written,
            lambda scn: self._space((13, 22), _SPACE_MAP, _DATA, scn, 36),
            lambda scn: self._space((13, 61), _SPACE_MAP, _SPACE, scn, 28),
            self._cleanout,
            lambda scn: self._space((13, 63), _BITMAP, _SPACE, scn, 28),
            lambda scn: self._space((22, 15), _EXTENTS, _SPACE, scn, 84),
            self._marker,
        )

    def record(self, scn: int) -> bytes:
        """The next record, of each kind in turn."""
        self._count += 1
        return self._kinds[self._count % len(self._kinds)](scn)

    def written(self, scn: int, blocks: int = 3) -> bytes:
        """A record of written blocks, without a change; also used as the log writer's heartbeat."""
        entry = struct.Struct(self._order + "II8sBBxx")
        before = plain_scn(self._vectors.form, scn - 1)[:6] + b"\0\1"
        body = b"".join(entry.pack(24, 24 << 22 | 128 + at, before, 4, 0) for at in range(blocks))
        vector = self._vectors.bare_vector(23, 1, (body,), ROOT)
        return self._vectors.record(scn, vector, flags=BLOCKS_WRITTEN, uid=ROOT_UID)

    def _space(self, code: tuple[int, int], kind: int, segment: Segment, scn: int, size: int) -> bytes:
        body = struct.pack(self._order + "II", 1, self._count) + bytes(size - 8)
        dba = segment.header_dba + self._count % 64
        vector = self._vectors.block_vector(code, kind, segment, dba, scn, (size,), body)
        return self._vectors.record(scn, vector)

    def _cleanout(self, scn: int) -> bytes:
        flagged = flagged_scn(self._vectors.form, scn)
        body = struct.pack(self._order + "BBBx8sBBHI6x2x", 2, 1, 13, flagged, 2, 6, 0x8000, scn & 0xFFFF_FFFF)
        vector = self._vectors.block_vector((4, 1), 1, _DATA, _DATA.header_dba + self._count % 64, scn, (26,), body)
        return self._vectors.record(scn, vector)

    def _marker(self, scn: int) -> bytes:
        vector = self._vectors.bare_vector(17, 28, (struct.pack(self._order + "IHH", scn & 0xFFFF_FFFF, 0, 2), b""))
        return self._vectors.record(scn, vector)

    def index_entry(self, table: RedoTable, key: Cell, place: Place, inserted: bool) -> Pair:
        """The entry of a row in the index of its key."""
        segment, order = table.index, self._order
        dba = segment.header_dba + 2
        entry = bytes([key[0] & 0xFF]) + key[1][: key[0]]
        padded = entry + bytes(-len(entry) % 4)
        undo = struct.pack(order + "BBBxIIHH4x", 3, 2, 1, segment.header_dba, dba, 0x7FFE, 0) + padded
        if not inserted:
            redo = struct.pack(order + "HHH2x", 2, 0, len(entry) + 12)
            return Pair(segment, INDEX_DELETE, dba, (6,), redo, (20, len(entry)), undo, changes=0, layer=10)
        # a rowid in an index is big-endian, whatever the host
        rowid = struct.pack(">IH2x", *place)
        redo = struct.pack(order + "HHH2x", 2, 0, len(entry) + 10) + padded + rowid
        return Pair(segment, INDEX_INSERT, dba, (6, len(entry), 6), redo, (20, len(entry)), undo, changes=0, layer=10)
