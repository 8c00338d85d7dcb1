"""Packs change vectors and records.

A vector is a head of 32 bytes, a list of field sizes and the fields, each padded to 4 bytes. A row change is two
vectors in one record: 5.1 with the undo and the transaction, and the change itself, 11.x.

| record | vectors |
|---|---|
| the first change of a transaction | 5.2, 5.1, 11.x, 5.19 or 5.20 (session) |
| a change | 5.1, 11.x |
| a begin without a change | 5.2, 5.1 (opc 5.7), 5.20 |
| the undo of a change | 11.x (the reverse change), then 5.6, or 5.11 if it is the first record of an undo block |
| prepare, commit, rollback | 5.12; 5.4, 24.4; 5.4 with flag 0x04 |

5.6, 5.11, 5.12 and 24.1 follow documentation: no records of a real database were available for them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lowwater_devkit.simulated_rac.redo.log import (
    HAS_VECTORS,
    RECORD_HEAD_BYTES,
    Form,
    flagged_scn,
    plain_scn,
)
from lowwater_devkit.simulated_rac.redo.pairs import (
    CONTAINER,
    CONTAINER_UID,
    INDEX_BACK,
    INSERT,
    INSERT_MANY,
    KDO_ROLLBACK,
    KDO_UNDO,
    ROLLED_BACK,
    UNDO_CLASS,
    UNDO_HEADER_CLASS,
    UNDO_RECORDS_MAX,
    WAY_BACK,
    Pair,
    Segment,
    Session,
    Undo,
    UndoSegment,
    undo_of,
)

#: one block in this many is also cleaned out by a transaction's first change of it
CLEANOUT_EVERY = 5
_NO_OBJECT = 0xFFFF
_KTB_FLAGS = 0x0D
_KTB_F, _KTB_C, _KTB_Z, _KTB_L, _KTB_CLEANOUT = 1, 2, 3, 4, 0x10
_BEGIN, _LOG_USER = 0x0C08, 136
#: the operation in an undo, by layer
_OPC = {10: (10, 22), 11: (11, 1)}
#: operations that insert rows
_COMING = (INSERT, INSERT_MANY)
#: bytes of a pair's record without lists and fields: its head, the heads of two vectors, ktudb
_PAIR_BYTES = RECORD_HEAD_BYTES + 2 * 32 + 20
_NO_BLOCK_TYPE = 6


class Vectors:
    """Packs the vectors of one format; the methods return bytes."""

    def __init__(self, form: Form, session: Session | None = None) -> None:
        order = form.order
        self.form = form
        self.session = session or Session()
        self._record = struct.Struct(order + "IBBHIHHII").pack
        self._head = struct.Struct(order + "BBHHHI8sBBHHHHH").pack
        self._lists = [struct.Struct(f"{order}{n + 1}H{'' if n % 2 else '2x'}").pack for n in range(64)]
        self._ktudb = struct.Struct(order + "HHH2x8sHBx").pack
        self._ktub = struct.Struct(order + "IIIIBBBBHH").pack
        self._ktudb_ktub = struct.Struct(order + "HHH2x8sHBxIIIIBBBBHH").pack
        self._record_undo = struct.Struct(order + "IBBHIHHIIBBHHHI8sBBHHHHH").pack
        self._ktub_begin = struct.Struct(order + "HH8s8s8s4x8sIII").pack
        self._uba = struct.Struct(order + "IHBx").pack
        self._xid = struct.Struct(order + "HHI").pack
        self._ktb_f = struct.Struct(order + "BB6x8s8s").pack
        self._ktb_c = struct.Struct(order + "BB6x8s").pack
        self._ktb_cleanout = struct.Struct(order + "BB6x8s8s20xBBBB8sBBHIBBHI8x").pack
        self._ktudh = struct.Struct(order + "H2xI8sHHB3x8s").pack
        self._ktucm = struct.Struct(order + "H2xIH2xIB3x").pack
        self._ktucf = struct.Struct(order + "8sHHB3x").pack
        self._u16 = struct.Struct(order + "H").pack
        self._u32 = struct.Struct(order + "I").pack
        self._order = order
        self._last_scn = (-1, b"")
        self._ktb_z = struct.pack(order + "BB6x", _KTB_Z, _KTB_FLAGS)
        # the ITL slot belonged to another transaction before: its content is restored by the undo
        self._ktb_l = struct.pack(
            order + "BB6x8s8sBBHI", _KTB_L, _KTB_FLAGS, self._xid(0xFFFF, 0, 0), bytes(8), 0, 0x80, 0x8000, 1
        )

    # --- common parts

    def scn(self, scn: int) -> bytes:
        if scn != self._last_scn[0]:
            self._last_scn = (scn, plain_scn(self.form, scn))
        return self._last_scn[1]

    def xid(self, usn: int, slot: int, wrap: int) -> bytes:
        return self._xid(usn, slot, wrap)

    def record(self, scn: int, body: bytes, *, flags: int = HAS_VECTORS, uid: int = CONTAINER_UID) -> bytes:
        size = RECORD_HEAD_BYTES + len(body)
        return self._record(size, flags, 0, scn >> 32, scn & 0xFFFF_FFFF, 1, 0, uid, 0) + body

    def sizes(self, sizes: Sequence[int]) -> bytes:
        """The list of field sizes; its first word is the size of the list."""
        count = len(sizes)
        if count < len(self._lists):
            return self._lists[count](2 * count + 2, *sizes)
        return struct.pack(f"{self._order}{count + 1}H{'' if count % 2 else '2x'}", 2 * count + 2, *sizes)

    def block_vector(
        self, code: tuple[int, int], kind: int, segment: Segment, dba: int, scn: int, sizes: Sequence[int], body: bytes
    ) -> bytes:
        """A change of a block other than undo."""
        head = self._head(
            *code,
            kind,
            segment.file,
            segment.file_kind,
            dba,
            self.scn(scn),
            1,
            0,
            segment.data_object_id & 0xFFFF,
            CONTAINER,
            0,
            0,
            0,
        )
        return head + self.sizes(sizes) + body

    def undo_vector(
        self, code: int, owner: UndoSegment, header: bool, scn: int, sizes: Sequence[int], body: bytes, typ: int = 0
    ) -> bytes:
        """A change of an undo block, or of an undo segment's header."""
        kind = (UNDO_HEADER_CLASS if header else UNDO_CLASS) + 2 * owner.usn
        dba = owner.header_dba if header else owner.dba
        head = self._head(5, code, kind, owner.file, 0xFFFF, dba, self.scn(scn), 1, typ, _NO_OBJECT, CONTAINER, 0, 0, 0)
        return head + self.sizes(sizes) + body

    def bare_vector(self, layer: int, code: int, fields: Sequence[bytes], container: int = CONTAINER) -> bytes:
        """A vector that changes no block."""
        head = self._head(layer, code, 0, 0, 0, 0, bytes(8), 0, _NO_BLOCK_TYPE, 0, container, 0, 0, 0)
        body = b"".join([field + bytes(-len(field) % 4) for field in fields])
        return head + self.sizes([len(field) for field in fields]) + body

    # --- changes of rows

    def change(self, owner: UndoSegment, scn: int, pair: Pair, session: bool = False) -> tuple[bytes, Undo]:
        """The record of one change, and its undo. Not split into functions, because it writes most records of a log."""
        if owner.begin_scn < 0 or owner.record >= UNDO_RECORDS_MAX:
            return self._rare_change(owner, scn, pair, session)
        segment, code, dba, redo_sizes, redo, undo_sizes, undo, more_sizes, more, _, layer = pair
        before, rci = owner.uba, owner.record
        owner.record = number = rci + 1
        uba = owner.uba = self._uba(owner.dba, owner.sequence, number)
        if owner.block == dba:
            ktb, redo_ktb = self._ktb_c(_KTB_C, _KTB_FLAGS, before), self._ktb_c(_KTB_C, _KTB_FLAGS, uba)
        else:
            ktb = self._ktb_z if code in _COMING else self._ktb_l
            redo_ktb = self._first_touch(owner.xid, uba, dba)
            owner.block = dba
        undo_sizes = (20, 24, len(ktb), *undo_sizes, *more_sizes)
        undo_list, redo_list = self.sizes(undo_sizes), self.sizes((len(redo_ktb), *redo_sizes))
        body = 24 + len(ktb) + len(undo) + len(more)
        size = body + (2 * len(undo_sizes) + 3 & ~3)
        whole = _PAIR_BYTES + body + len(undo_list) + len(redo_list) + len(redo_ktb) + len(redo)
        at = self.scn(scn)
        parts = (
            self._record_undo(
                *(whole, HAS_VECTORS, 0, scn >> 32, scn & 0xFFFF_FFFF, 1, 0, CONTAINER_UID, 0),
                *(
                    5,
                    1,
                    UNDO_CLASS + 2 * owner.usn,
                    owner.file,
                    0xFFFF,
                    owner.dba,
                    at,
                    1,
                    0,
                    _NO_OBJECT,
                    CONTAINER,
                    0,
                    0,
                    0,
                ),
            ),
            undo_list,
            self._ktudb_ktub(
                *(size & 0xFFFF, 8000 - 64 * number, 0x22, owner.xid, owner.sequence, number),
                *(segment[0], segment[1], segment[2], 0, *_OPC[layer], owner.slot, rci, 0, owner.wrap & 0xFFFF),
            ),
            ktb,
            undo,
            more,
            self._head(
                *(layer, code, 1, segment[3], segment[5], dba, at, 1, 0, segment[1] & 0xFFFF, CONTAINER, 0, 0, 0)
            ),
            redo_list,
            redo_ktb,
            redo,
        )
        return b"".join(parts), undo_of(pair, ktb, rci == 0)

    def _rare_change(self, owner: UndoSegment, scn: int, pair: Pair, session: bool) -> tuple[bytes, Undo]:
        """The first change of a transaction, or of an undo block."""
        begins = owner.begin_scn < 0
        ktb, redo_ktb, ktub, typ = self._next_undo(owner, pair, begins)
        sizes = (20, len(ktub), len(ktb), *pair.undo_sizes, *pair.more_sizes)
        size = len(ktub) + len(ktb) + len(pair.undo) + len(pair.more) + (2 * len(sizes) + 3 & ~3)
        flags = 0x0A if typ else 0x12 if begins else 0x22
        ktudb = self._ktudb(size & 0xFFFF, 8000 - 64 * owner.record, flags, owner.xid, owner.sequence, owner.record)
        undo = self.undo_vector(1, owner, False, scn, sizes, b"".join((ktudb, ktub, ktb, pair.undo, pair.more)), typ)
        redo = self.block_vector(
            (pair.layer, pair.code),
            1,
            pair.segment,
            pair.dba,
            scn,
            (len(redo_ktb), *pair.redo_sizes),
            redo_ktb + pair.redo,
        )
        body = undo + redo
        if begins:
            owner.begin_scn = scn
            body = self._begin(owner, scn, size) + body + self._session(owner, session)
        return self.record(scn, body), undo_of(pair, ktb, ktub[19] == 0)

    def _next_undo(self, owner: UndoSegment, pair: Pair, begins: bool) -> tuple[bytes, bytes, bytes, int]:
        """A new undo record: KTB of the undo and of the redo, ktub, and 1 if it begins an undo block, else 0."""
        rci, typ = owner.record, 0
        if rci >= UNDO_RECORDS_MAX:
            owner.dba, owner.sequence, owner.record, rci, typ = owner.dba + 1, owner.sequence + 1, 0, 0, 1
        owner.record += 1
        before = owner.uba
        owner.uba = uba = self._uba(owner.dba, owner.sequence, owner.record)
        if owner.block == pair.dba and before:
            ktb, redo_ktb = self._ktb_c(_KTB_C, _KTB_FLAGS, before), self._ktb_c(_KTB_C, _KTB_FLAGS, uba)
        else:
            ktb = self._ktb_z if pair.code in _COMING else self._ktb_l
            redo_ktb = self._first_touch(owner.xid, uba, pair.dba)
            owner.block = pair.dba
        return ktb, redo_ktb, self.ktub(owner, pair.segment, 0 if begins else rci, begins, _OPC[pair.layer]), typ

    def _first_touch(self, xid: bytes, uba: bytes, dba: int) -> bytes:
        """The KTB of a transaction's first change of a block; for some blocks it also cleans out old ITL entries."""
        if dba % CLEANOUT_EVERY != 1:
            return self._ktb_f(_KTB_F, _KTB_FLAGS, xid, uba)
        entries = (1, 6, 0x8000, 1, 2, 6, 0x8000, 1)
        scn = flagged_scn(self.form, 1)
        return self._ktb_cleanout(_KTB_F | _KTB_CLEANOUT, _KTB_FLAGS, xid, uba, 2, 2, _KTB_FLAGS, 0, scn, *entries)

    def ktub(
        self, owner: UndoSegment, segment: Segment | None, rci: int, begins: bool, opc: tuple[int, int] = (11, 1)
    ) -> bytes:
        objects = (segment.object_id, segment.data_object_id, segment.tablespace) if segment else (0, 0, 0)
        if not begins:
            return self._ktub(*objects, 0, *opc, owner.slot, rci, 0, owner.wrap & 0xFFFF)
        scn = bytes(8)
        more = self._ktub_begin(
            0, 0, self._uba(owner.dba, owner.sequence, 1), scn, scn, b"\xff" * 8, owner.dba, 0, _LOG_USER
        )
        return self._ktub(*objects, 0, *opc, owner.slot, 0, _BEGIN, 1) + more

    def _begin(self, owner: UndoSegment, scn: int, size: int) -> bytes:
        uba = self._uba(owner.dba, owner.sequence, owner.record)
        flags = 0x0452 if owner.flags else 0x52
        ktudh = self._ktudh(owner.slot, owner.wrap, uba, flags, size & 0xFFFF, 0, bytes(8))
        return self.undo_vector(2, owner, True, scn, (32, 4), ktudh + self._u32(CONTAINER_UID))

    def _session(self, owner: UndoSegment, whole: bool) -> bytes:
        """5.19 for the first transaction of a session, 5.20 for later ones."""
        who = self.session
        user = who.user.encode()
        first = struct.pack(self._order + "HHI", 0, who.serial, who.number)
        flags = struct.pack(self._order + "HHH", owner.flags, 1, 0)
        version = self._u32(self.form.version & 0xFF00_0000)
        audit = struct.pack(self._order + "II", who.audit, 0)
        if not whole:
            return self.bare_vector(5, 20, (first, b"", flags, version, audit, b"", b"", user))
        where = who.machine.encode()
        names = (user, user, b"", b"oracle", where, b"", b"498", b"workload@" + where)
        return self.bare_vector(5, 19, (first, *names, b"", flags, version, audit, b"", b""))

    def begin_alone(self, owner: UndoSegment, scn: int, session: bool = False) -> bytes:
        """The begin of a transaction without a change: its undo record is empty."""
        owner.record += 1
        owner.uba = self._uba(owner.dba, owner.sequence, owner.record)
        owner.begin_scn = scn
        ktudb = self._ktudb(80, 8000, 0x10, owner.xid, owner.sequence, owner.record)
        ktub = self.ktub(owner, None, 0, True, (5, 7))
        undo = self.undo_vector(1, owner, False, scn, (20, 76), ktudb + ktub)
        return self.record(scn, self._begin(owner, scn, 80) + undo + self._session(owner, session))

    # --- undo, commit and rollback

    def take_back(self, owner: UndoSegment, scn: int, undo: Undo) -> bytes:
        """The record that undoes one change."""
        ktub = self.ktub(owner, undo.segment, 0, False, _OPC[undo.layer])
        # the undo of the first record of an undo block changes the segment's header
        if undo.first:
            mark = self.undo_vector(11, owner, True, scn, (24,), ktub)
        else:
            mark = self.undo_vector(6, owner, False, scn, (24, 8), ktub + bytes(8))
        back = (INDEX_BACK if undo.layer == 10 else WAY_BACK).get(undo.code)
        if back is None:
            return self.record(scn, mark)
        fields = undo.fields
        if undo.layer == 11:
            way = fields[11] & ~3 | KDO_ROLLBACK
            fields = fields[:10] + bytes([fields[10] & ~KDO_UNDO, way]) + fields[12:]
        sizes = (len(undo.ktb), *undo.sizes)
        body = self.block_vector((undo.layer, back), 1, undo.segment, undo.dba, scn, sizes, undo.ktb + fields)
        owner.block = -1
        return self.record(scn, body + mark)

    def prepare(self, owner: UndoSegment, scn: int) -> bytes:
        body = self._ktucm(owner.slot, owner.wrap, 0, 2, 0)
        return self.record(scn, self.undo_vector(12, owner, True, scn, (20,), body))

    def commit(self, owner: UndoSegment, scn: int, epoch: int) -> bytes:
        """The commit record: its SCN is the transaction's commit SCN."""
        body = self._ktucm(owner.slot, owner.wrap, 0, 9, 0x02) + self._ktucf(owner.uba, 0, 2000, 0) + self._u32(epoch)
        vector = self.undo_vector(4, owner, True, scn, (20, 16, 4), body)
        return self.record(scn, vector + self._companion(owner))

    def _companion(self, owner: UndoSegment) -> bytes:
        order = self._order
        fields = (
            struct.pack(order + "I8sHH", 9000, owner.xid, 255, 14),
            struct.pack(order + "HH", 0x0A01, 9),
            struct.pack(order + "HHH", owner.flags, 1, 0),
            plain_scn(self.form, owner.begin_scn),
        )
        return self.bare_vector(24, 4, fields)

    def rollback(self, owner: UndoSegment, scn: int, epoch: int) -> bytes:
        body = self._ktucm(owner.slot, owner.wrap, 0, 9, ROLLED_BACK) + self._u32(epoch)
        return self.record(scn, self.undo_vector(4, owner, True, scn, (20, 4), body))

    def ddl(self, owner: UndoSegment, scn: int, object_id: int, text: str, kind: int = 15) -> bytes:
        """A DDL statement on an object; `kind` 15: ALTER TABLE."""
        first = struct.pack(self._order + "I8sHHHHH2x", 0, owner.xid, kind, 0, 1, 0, 1)
        fields = [first, *[b""] * 6, text.encode() + b"\0", b"", b"", b"", self._u32(object_id)]
        return self.record(scn, self.bare_vector(24, 1, fields))
