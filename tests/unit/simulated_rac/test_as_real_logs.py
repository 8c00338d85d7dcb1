"""What the writer makes is what a real database has written: field by field, on its two archived logs."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.support.oracle_logs import real_logs
from tests.unit.simulated_rac.walk import Record, Vector, block1, records

from lowwater.codec.table import STRING, Column, TableSchema, decimal
from lowwater_devkit.simulated_rac.redo.cells import oracle_column
from lowwater_devkit.simulated_rac.redo.kdo import Kdo
from lowwater_devkit.simulated_rac.redo.log import (
    Form,
    LogHeader,
    LwnBuffer,
    LwnTail,
    block_checksums,
    epoch_of,
    log_time,
    pack_block0,
    pack_block1,
)
from lowwater_devkit.simulated_rac.redo.noise import Noise
from lowwater_devkit.simulated_rac.redo.pairs import Session, Undo, UndoSegment
from lowwater_devkit.simulated_rac.redo.pieces import PieceMaker
from lowwater_devkit.simulated_rac.redo.rows import RedoTable
from lowwater_devkit.simulated_rac.redo.vectors import Vectors

FORM = Form()
SIZE = 512


def _logs() -> list[bytes]:
    return [path.read_bytes() for path in real_logs()]


def _u(code: str, raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<" + code, raw, at)[0])


def _scn(raw: bytes, at: int) -> int:
    return _u("I", raw, at) | _u("H", raw, at + 6) << 32


def _header(raw: bytes) -> LogHeader:
    """The fields of a real block 1."""
    block = raw[SIZE : 2 * SIZE]
    return LogHeader(
        thread=_u("H", block, 176),
        sequence=_u("I", block, 8),
        database=_u("I", block, 24),
        name=block[28:36].rstrip(b"\0").decode(),
        activation=_u("I", block, 52),
        resetlogs_id=_u("I", block, 160),
        resetlogs_scn=_scn(block, 164),
        first_scn=_scn(block, 180),
        first_time=epoch_of(_u("I", block, 188)),
        blocks=_u("I", block, 40),
        group=_u("H", block, 48),
        enabled_scn=_scn(block, 208),
        enabled_time=epoch_of(_u("I", block, 216)),
        next_scn=_scn(block, 192),
        next_time=epoch_of(_u("I", block, 200)),
        used=_u("I", block, 156),
        control_sequence=_u("I", block, 36),
        header_writes=_u("I", block, 172),
        thread_closed_scn=_scn(block, 220),
        thread_closed_time=epoch_of(_u("I", block, 228)),
        lwn_blocks_max=_u("I", block, 268),
        previous_resetlogs_scn=_u("I", block, 284),
        previous_resetlogs_id=_u("I", block, 292),
        flags=_u("I", block, 236),
    )


# --- headers, checksums, blocks


def test_block_0_is_the_same_byte_for_byte() -> None:
    for raw in _logs():
        assert pack_block0(FORM, len(raw) // SIZE - 1) == raw[:SIZE]


def test_block_1_is_the_same_but_for_bytes_of_unknown_meaning() -> None:
    for raw in _logs():
        made, real = pack_block1(FORM, _header(raw)), raw[SIZE : 2 * SIZE]
        differ = {at for at in range(SIZE) if made[at] != real[at]}
        # the checksum follows from the rest; 432 to 480 may be key material
        assert differ <= {14, 15, *range(432, 481)}


def test_times_are_those_of_the_logs() -> None:
    assert log_time(1772847880) == 0x49261288
    for raw in _logs():
        for at in (188, 200, 216, 228):
            assert log_time(epoch_of(_u("I", raw, SIZE + at))) == _u("I", raw, SIZE + at)


def test_all_checksums() -> None:
    for raw in _logs():
        blocks = np.frombuffer(raw, np.uint8).reshape(-1, SIZE)
        assert not block_checksums(blocks).any()


def _lwns(raw: bytes) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for record in records(raw, block1(raw).used):
        found.setdefault(record.lwn, []).append(record)
    return found


def _as_short(record: Record) -> bytes:
    """The record with a head of 24 bytes, as it is handed to the buffer."""
    if not record.flags & 4:
        return record.data
    size = struct.pack("<I", len(record.data) - 44)
    return size + bytes([record.flags & ~4]) + record.data[5:24] + record.data[68:]


#: old memory in the long head of an LWN's first record
_LWN_RESIDUE = (*range(37, 40), *range(48, 56))


def test_records_packed_again_give_the_same_blocks() -> None:
    """Every record of both logs, taken out and put into blocks anew."""
    blocks = 0
    for raw in _logs():
        for lwn, those in _lwns(raw).items():
            buffer = LwnBuffer(FORM)
            for record in those:
                buffer.add(_as_short(record))
            first = those[0].data
            tail = LwnTail(_u("Q", first, 40), _u("Q", first, 56), epoch_of(_u("I", first, 64)))
            made = buffer.packed(block1(raw).sequence, lwn, tail)
            real = bytearray(raw[lwn * SIZE : lwn * SIZE + len(made)])
            assert len(made) == _u("I", first, 28) * SIZE
            for at in _LWN_RESIDUE:
                real[16 + at] = 0
            blocks += len(made) // SIZE
            for number in range(0, len(made), SIZE):
                _same_block(
                    made[number : number + SIZE], bytes(real[number : number + SIZE]), those, lwn + number // SIZE
                )
    assert blocks == 604


def _same_block(made: bytes, real: bytes, those: list[Record], number: int) -> None:
    differ = [at for at in range(SIZE) if made[at] != real[at] and at not in (14, 15)]
    # behind a record's end, where a record's head does not fit, is old memory
    assert all(at >= SIZE - 23 and not made[at] for at in differ), (number, differ)


# --- the user's transaction: xid 10.12.572

TABLE = TableSchema(
    "", "OLR_TEST", "TEST_CDC", 1, (Column("ID", decimal(38, 0), nullable=False), Column("NAME", STRING)), ("ID",)
)
XID = (10, 12, 572)
CHANGE_SCN, COMMIT_SCN, EPOCH = 2267707, 2267708, 1772847880


def _real_vectors(scn: int, *codes: tuple[int, int]) -> list[Vector]:
    """The vectors of the record at this SCN that has exactly these."""
    for record in records(_logs()[0], 598):
        if record.scn() == scn and record.flags & 1:
            found = list(record.vectors())
            if [(v.layer, v.code) for v in found] == list(codes):
                return found
    pytest.fail(f"no record with {codes}")


class _Table(RedoTable):
    """The real table, at its real place."""

    def __init__(self) -> None:
        super().__init__(FORM, TABLE, 1)
        self.segment = self.segment._replace(header_dba=0x0600000A)
        self.index = self.index._replace(header_dba=0x06000012)
        self._kdo = Kdo(FORM, 0x0600000A)
        self._pieces = PieceMaker(self.segment, self._kdo, self.key, "all")

    def _home(self, row: object, cells: object) -> tuple[int, int]:
        return 0x0600000E, 0


def _owner(vectors: Vectors) -> UndoSegment:
    return UndoSegment(*XID, file=23, header_dba=0xA0, dba=0xA7, sequence=0x8B, record=0x22, xid=vectors.xid(*XID))


def _made(data: bytes) -> list[Vector]:
    return list(Record(0, 0, 0, data).vectors())


def _compare(made: Vector, real: Vector, *ignored: tuple[int, range]) -> None:
    """Everything but (field, bytes): those are of the environment or old memory. Field 0 is the head."""
    assert made.sizes == real.sizes
    for number, (ours, theirs) in enumerate(zip((made.head, *made.fields), (real.head, *real.fields), strict=True)):
        skipped = {at for field, those in ignored if field == number for at in those}
        differ = [at for at in range(len(ours)) if ours[at] != theirs[at] and at not in skipped]
        assert not differ, f"{real.layer}.{real.code} field {number}: {differ}"


#: the block's SCN before the change, and how often it was changed at that SCN
BEFORE = (0, range(12, 21))
#: the 8th byte of a UBA
UBA_END = 7


@pytest.fixture(scope="module")
def first_change() -> tuple[list[Vector], Undo, UndoSegment, Vectors]:
    vectors = Vectors(FORM, Session(serial=0xCC81, number=56, audit=30014, user="OLR_TEST"))
    owner = _owner(vectors)
    (pair,) = _Table().insert((1, "hello world"))
    data, undo = vectors.change(owner, CHANGE_SCN, pair)
    return _made(data), undo, owner, vectors


def test_the_begin(first_change: tuple[list[Vector], Undo, UndoSegment, Vectors]) -> None:
    real = _real_vectors(CHANGE_SCN, (5, 2), (5, 1), (11, 2), (5, 20))
    _compare(first_change[0][0], real[0], BEFORE)


def test_the_undo(first_change: tuple[list[Vector], Undo, UndoSegment, Vectors]) -> None:
    real = _real_vectors(CHANGE_SCN, (5, 2), (5, 1), (11, 2), (5, 20))
    # the space left in the undo block; what the slot was used for before
    _compare(first_change[0][1], real[1], BEFORE, (1, range(2, 4)), (2, range(28, 56)), (2, range(64, 68)))


def test_the_insert(first_change: tuple[list[Vector], Undo, UndoSegment, Vectors]) -> None:
    real = _real_vectors(CHANGE_SCN, (5, 2), (5, 1), (11, 2), (5, 20))
    # behind the null bitmap, and in the places of a row that has only one piece, is old memory
    _compare(first_change[0][2], real[2], (2, range(20, 40)), (2, range(46, 49)))
    assert first_change[0][2].fields[2:] == (b"\xc1\x02", b"hello world")


def test_the_session(first_change: tuple[list[Vector], Undo, UndoSegment, Vectors]) -> None:
    real = _real_vectors(CHANGE_SCN, (5, 2), (5, 1), (11, 2), (5, 20))
    _compare(first_change[0][3], real[3])


def test_the_index_entry(first_change: tuple[list[Vector], Undo, UndoSegment, Vectors]) -> None:
    _, _, owner, vectors = first_change
    real = _real_vectors(CHANGE_SCN, (5, 1), (10, 2))
    entry = Noise(vectors).index_entry(_Table(), (2, b"\xc1\x02\0\0"), (0x0600000E, 0), inserted=True)
    entry = entry._replace(dba=0x06000013)
    owner.record, owner.begin_scn, owner.block = 0x23, CHANGE_SCN, 0
    made = _made(vectors.change(owner, CHANGE_SCN, entry)[0])
    # an index block always has an owner before: the KTB of the undo is longer
    assert made[0].sizes[:2] == real[0].sizes[:2]
    assert made[0].sizes[3:] == real[0].sizes[3:]
    assert made[0].fields[1] == real[0].fields[1]
    assert made[0].fields[4] == real[0].fields[4] == b"\x02\xc1\x02"
    # the second byte of the KTB's flags
    _compare(made[1], real[1], BEFORE, (1, range(2, 4)))


def test_the_commit() -> None:
    vectors = Vectors(FORM)
    owner = _owner(vectors)
    owner.begin_scn, owner.uba = CHANGE_SCN, struct.pack("<IHBx", 0xA7, 0x8B, 0x24)
    made = _made(vectors.commit(owner, COMMIT_SCN, EPOCH))
    real = _real_vectors(COMMIT_SCN, (5, 4), (24, 4))
    # the real one also has flag 0x10, and a field for it
    kept = [0, 1, 3]
    trimmed = real[0]._replace(
        sizes=tuple(real[0].sizes[at] for at in kept), fields=tuple(real[0].fields[at] for at in kept)
    )
    _compare(made[0], trimmed, BEFORE, (1, range(16, 17)), (2, range(10, 12)))
    assert made[0].fields[0][16] | 0x10 == real[0].fields[0][16]
    _compare(made[1], real[1])


def test_a_commit_as_most_are() -> None:
    vectors = Vectors(FORM)
    owner = UndoSegment(4, 16, 735, file=18, header_dba=0x40, dba=0x267, sequence=0xC2, record=0x16, xid=b"")
    owner.begin_scn, owner.uba = 2267717, struct.pack("<IHBx", 0x267, 0xC2, 0x16)
    made = _made(vectors.commit(owner, 2267718, EPOCH))[0]
    real = next(
        v for r in records(_logs()[1], 10) if r.scn() == 2267718 for v in r.vectors() if (v.layer, v.code) == (5, 4)
    )
    # another container; extents and space of the undo segment
    _compare(made, real, BEFORE, (0, range(24, 26)), (2, range(8, 12)))


# --- updates and deletes of the database's own tables have the writer's structure


def test_sizes_of_updates_and_deletes_follow_the_same_rules() -> None:
    """KDO lengths, column lists and supplemental groups for the same numbers of columns."""
    checked = 0
    for raw in _logs():
        for record in records(raw, block1(raw).used):
            if not record.flags & 1:
                continue
            found = list(record.vectors())
            for undo, redo in pairwise(found):
                if (undo.layer, undo.code) == (5, 1) and redo.layer == 11:
                    _check_structure(undo, redo)
                    checked += 1
    assert checked == 23


def _check_structure(undo: Vector, redo: Vector) -> None:
    count = {2: redo.fields[1], 3: undo.fields[3]}[redo.code][18] if redo.code != 5 else redo.fields[1][23]
    columns = tuple(Column(f"C{at}", decimal(38, 0)) for at in range(count))
    table = RedoTable(FORM, TableSchema("", "T", "T", 1, columns, ("C0",)), 1)
    old, new = tuple(range(1, len(columns) + 1)), tuple(range(2, len(columns) + 2))
    (pair,) = table.insert(new) if redo.code == 2 else table.delete(old) if redo.code == 3 else table.update(old, new)
    assert redo.sizes[1] == pair.redo_sizes[0]
    assert undo.sizes[3] == pair.undo_sizes[0]
    assert len(redo.sizes) - 1 == len(pair.redo_sizes)
    at = 3 + len(pair.undo_sizes)
    assert undo.sizes[at] == pair.more_sizes[0]
    group = undo.fields[at]
    assert group[0] == pair.more[0] or group[0] == 8
    assert group[10:14] == pair.more[10:14]
    # F1 of the undo says how much room the rest takes
    assert _u("H", undo.fields[0], 0) == sum(size + 3 & ~3 for size in undo.sizes[1:]) + (2 * len(undo.sizes) + 3 & ~3)


def test_a_column_of_the_workload_is_one_of_oracle() -> None:
    assert oracle_column(TABLE.columns[0], 1).type == 2


def test_the_real_logs_are_whole() -> None:
    raw = [len(list(records(raw, block1(raw).used))) for raw in _logs()]
    assert raw == [1154, 7]
    assert isinstance(real_logs().directory, Path)
