"""The two real logs: every block, the tally field by field, and one user transaction with its bytes. Nothing else."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from tests.support.oracle_logs import CONTAINER, IDENTITY, OBJECT, real_logs
from tests.unit.oracle.plain_vectors import (
    Record,
    Vector,
    Xid,
    unpack_commit,
    unpack_record,
    unpack_session,
    unpack_slot,
    unpack_undo,
    unpack_vector,
    unpack_vectors,
)
from tests.unit.oracle.test_scan import Walked, one_by_one

from lowwater_extractor.sources.oracle.redo.blocks import are_good, find_bad, fold, rows
from lowwater_extractor.sources.oracle.redo.codes import BEGIN, COMMIT, FLAG_SYSTEM, HEAD, ROW
from lowwater_extractor.sources.oracle.redo.events import Captured, Event, Lwn
from lowwater_extractor.sources.oracle.redo.files import LogDirectories
from lowwater_extractor.sources.oracle.redo.layout import Format, Place
from lowwater_extractor.sources.oracle.redo.reader import LogEnd, ThreadReader
from lowwater_extractor.sources.oracle.scn import Scn

FORM = Format()


class Log:
    """One log, taken apart."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.walked = Walked(self.data)
        payload = self.walked.blocks[:, 16:].tobytes()
        self.records: list[tuple[int, Record]] = []
        self.vectors: list[list[Vector]] = []
        at_of = self.walked.records.at
        for at, size in zip(at_of.tolist(), self.walked.payload.u32[at_of >> 2].tolist(), strict=True):
            self.records.append((at, unpack_record(payload, at)))
            self.vectors.append(list(unpack_vectors(payload[at : at + size])))


@cache
def both() -> tuple[Log, Log]:
    first, second = real_logs()
    return Log(first), Log(second)


def test_all_606_blocks_are_good() -> None:
    checked = 0
    for path, sequence in zip(real_logs(), (15, 16), strict=True):
        blocks = rows(path.read_bytes(), 512)
        assert find_bad(blocks[1:], 1, sequence, FORM) is None
        assert not fold(blocks).any()
        checked += len(blocks) - 1
    assert checked == 606


@pytest.mark.parametrize("which", [0, 1], ids=["log 15", "log 16"])
def test_every_single_bit_of_every_block_counts(which: int) -> None:
    """Each bit of each block changed in a copy of its own: none is taken, by what the reader asks of a block."""
    blocks = rows(real_logs()[which].read_bytes(), 512)
    bits = np.arange(512 * 8)
    masks = np.zeros((len(bits), 512), np.uint8)
    masks[bits, bits // 8] = 1 << bits % 8
    copies = np.empty_like(masks)
    for number, block in enumerate(blocks):
        np.bitwise_xor(masks, block, out=copies)
        if number:
            assert not are_good(copies, np.full(len(bits), number, np.uint32), 15 + which, FORM).any(), number
        else:
            # the physical header is no block of the log, but has the same checksum
            assert fold(copies).all()


def test_walked_in_lockstep_as_one_by_one() -> None:
    for log in both():
        records, vectors = one_by_one(log.data)
        assert log.walked.records.at.tolist() == records
        assert log.walked.vectors() == vectors
        assert log.walked.wanted == 0


def test_blocks_records_and_sizes() -> None:
    first, second = both()
    for log, blocks, lwns, records, with_vectors, sizes, spanning in (
        (first, 598, 524, 1154, 642, 169964, 55),
        (second, 10, 2, 7, 5, 3448, 5),
    ):
        walked = log.walked
        assert len(log.data) // 512 == blocks
        assert len(walked.lwns.start) == lwns
        assert int(walked.lwns.stop[-1]) == blocks - 2
        assert len(log.records) == records
        assert sum(bool(one.vld & 1) for _, one in log.records) == with_vectors
        assert sum(one.size for _, one in log.records) == sizes
        assert sum(at // 496 != (at + one.size - 1) // 496 for at, one in log.records) == spanning
    assert Counter(one.vld for _, one in first.records) == {0x01: 630, 0x05: 12, 0x06: 512}
    assert Counter(one.vld for _, one in second.records) == {0x01: 4, 0x05: 1, 0x06: 1, 0x02: 1}
    assert {one.sub_scn for log in both() for _, one in log.records} == {1}


def test_scns() -> None:
    for log, lowest, highest in zip(both(), (2266630, 2267717), (2267714, 2267720), strict=True):
        scns = [one.scn for _, one in log.records]
        assert (min(scns), max(scns)) == (lowest, highest)
        assert log.walked.records.ordered.all()
        own = log.walked.records.lwn_of(np.arange(len(scns)))
        lower, upper = log.walked.lwns.scn[own], log.walked.lwns.upper[own]
        assert (lower <= np.array(scns, np.uint64)).all()
        assert (np.array(scns, np.uint64) < upper).all()


FIRST = {
    "5.1": 51, "5.2": 21, "5.4": 20, "5.19": 2, "5.20": 18, "5.24": 2,
    "10.2": 7, "10.4": 8, "10.18": 6, "10.31": 1,
    "11.2": 8, "11.3": 8, "11.5": 6,
    "24.4": 20, "24.10": 1, "4.1": 19, "17.28": 5,
    "13.6": 3, "13.7": 3, "13.17": 2, "13.18": 2, "13.19": 2, "13.21": 6, "13.22": 6, "13.24": 2, "13.28": 6,
    "13.57": 1, "13.59": 127, "13.60": 2, "13.61": 128, "13.62": 2, "13.63": 128, "13.64": 1,
    "14.1": 2, "14.2": 2, "22.2": 4, "22.5": 2, "22.13": 1, "22.15": 128, "22.16": 1,
}  # fmt: skip
SECOND = {"5.1": 4, "5.2": 1, "5.4": 1, "5.20": 1, "10.2": 3, "11.2": 1, "24.4": 1}


def test_opcodes() -> None:
    for log, tally, count in zip(both(), (FIRST, SECOND), (764, 12), strict=True):
        found = Counter(f"{one.opcode >> 8}.{one.opcode & 0xFF}" for vectors in log.vectors for one in vectors)
        assert found == tally
        assert sum(found.values()) == count


def test_undo_and_its_partners() -> None:
    found: Counter[tuple[int, int]] = Counter()
    for log in both():
        for vectors in log.vectors:
            for one, behind in zip_longest(vectors, vectors[1:]):
                if one.opcode == 0x0501:
                    undo = unpack_undo(one)
                    assert undo.xid.segment == one.segment
                    found[undo.operation, behind.opcode] += 1
    assert found == {
        (0x0A16, 0x0A02): 10,
        (0x0A16, 0x0A04): 8,
        (0x0A16, 0x0A12): 6,
        (0x0B01, 0x0B02): 9,
        (0x0B01, 0x0B03): 8,
        (0x0B01, 0x0B05): 6,
        (0x0507, 0x0514): 4,
        (0x1603, 0x0514): 2,
        (0x160E, 0x160D): 1,
        (0x0D09, 0x0D06): 1,
    }


def test_begins_and_commits() -> None:
    begun, ended, flags = [], [], []
    for log in both():
        for vectors in log.vectors:
            for one in vectors:
                if one.opcode == 0x0502 and (xid := unpack_slot(one)).sequence:
                    begun.append((one.container, xid))
                elif one.opcode == 0x0504:
                    commit = unpack_commit(one)
                    assert not commit.rolled_back
                    assert 1772847878 <= commit.time <= 1772847880
                    ended.append((one.container, commit.xid))
                elif one.opcode in (0x0513, 0x0514):
                    flags.append(unpack_session(one, FORM).flags)
    assert len(begun) == len(ended) == 21
    assert sorted(begun) == sorted(ended)
    # all but the user's transaction are recursive
    assert Counter(flags) == {4: 20, 0: 1}


# --- through the reader


def read(captured: Captured, slice_max: int = 1 << 20) -> list[Lwn | LogEnd]:
    files = LogDirectories("real", IDENTITY, [], [real_logs().directory])
    reader = ThreadReader("real", 1, IDENTITY, files, captured, Place(15, 0), slice_max=slice_max)
    found: list[Lwn | LogEnd] = []
    while (one := reader.next()) is not None:
        found.append(one)
    assert reader.place == Place(17, 0)
    reader.close()
    return found


def events(found: list[Lwn | LogEnd]) -> list[Event]:
    return [event for one in found if isinstance(one, Lwn) for event in one.events]


XID = CONTAINER << 64 | Xid(10, 12, 572).number


def test_one_user_transaction_and_nothing_else() -> None:
    assert str(Xid(10, 12, 572)) == "0A000C003C020000"
    found = read(Captured.of([(CONTAINER, OBJECT)]))
    mine = [event for event in events(found) if event[1] == XID]
    assert [event[:4] for event in mine] == [
        (2267707, XID, BEGIN, 864),
        (2267707, XID, ROW | 0x0B02, 940),
        (2267708, XID, COMMIT, 1832),
    ]
    assert [event for event in events(found) if event[2] >= ROW] == [mine[1]]
    data = mine[1][4]
    number, flags, split = HEAD.unpack_from(data)
    assert (number, flags) == (OBJECT, 0)
    undo = unpack_vector(data, HEAD.size)
    row = unpack_vector(data, HEAD.size + split * 4)
    assert (undo.opcode, undo.stop, row.opcode, row.stop) == (0x0501, row.at, 0x0B02, len(data))
    assert unpack_undo(undo)[:2] == (Xid(10, 12, 572), OBJECT)
    assert (row.low_object, row.dba, row.file) == (OBJECT & 0xFFFF, 0x0600000E, 24)
    assert row.field(2)[16:19] == b"\x2c\x01\x02"
    assert [row.field(3), row.field(4)] == [b"\xc1\x02", b"hello world"]
    assert HEAD.unpack_from(mine[2][4]) == (1772847880, 0x12, 0)


def test_the_lwn_of_the_user_transaction() -> None:
    (lwn,) = [
        one
        for one in read(Captured.of([(CONTAINER, OBJECT)]))
        if isinstance(one, Lwn) and any(event[2] >= ROW for event in one.events)
    ]
    assert lwn[:5] == (15, 579 * 512, 2267707, 2267710, 1772847880)
    assert lwn.end == 584 * 512


def test_transactions_and_the_ends_of_both_logs() -> None:
    found = read(Captured.of([(CONTAINER, OBJECT), (1, 4711)]))
    kinds = Counter(event[2] & ~FLAG_SYSTEM for event in events(found))
    # the other fifteen begin and end in one LWN, and touch nothing that is captured
    assert kinds == {BEGIN: 6, COMMIT: 6, ROW | 0x0B02: 1}
    assert [one for one in found if isinstance(one, LogEnd)] == [LogEnd(15, Scn(2267717)), LogEnd(16, Scn(2267723))]


def test_nothing_is_captured() -> None:
    assert events(read(Captured.of([]))) == []


def test_all_rows_are_captured() -> None:
    """Each 5.1 of a table row with its partner, whatever the table."""
    objects = {
        (one.container, unpack_undo(one).object)
        for log in both()
        for vectors in log.vectors
        for one in vectors
        if one.opcode == 0x0501
    }
    found = events(read(Captured.of(objects)))
    kinds = Counter(event[2] for event in found if event[2] >= ROW)
    assert kinds == {ROW | 0x0B02: 9, ROW | 0x0B03: 8, ROW | 0x0B05: 6}


@pytest.mark.parametrize("slice_max", [512, 1536, 4096, 1 << 16])
def test_the_same_in_slices_of_any_size(slice_max: int) -> None:
    captured = Captured.of([(CONTAINER, OBJECT)])
    assert events(read(captured, slice_max=slice_max)) == events(read(captured))
    places = [(one.offset, one.events) for one in read(captured, slice_max=slice_max) if isinstance(one, Lwn)]
    whole = [(one.offset, one.events) for one in read(captured) if isinstance(one, Lwn) and one.events]
    assert [place for place in places if place[1]] == whole
