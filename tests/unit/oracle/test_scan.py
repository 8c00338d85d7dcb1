"""The walk over records and vectors, at every boundary that the format has, against a walk one by one."""

from __future__ import annotations

from struct import unpack_from

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.oracle_logs import MadeLog, MadeLwn, MadeRecord, filler, record, seal, vector
from tests.unit.oracle.plain_vectors import unpack_record, unpack_vectors

from lowwater_extractor.sources.oracle.redo.blocks import Bytes, rows
from lowwater_extractor.sources.oracle.redo.layout import Format
from lowwater_extractor.sources.oracle.redo.opcodes import VectorKind
from lowwater_extractor.sources.oracle.redo.scan import (
    Damage,
    Lwns,
    Payload,
    Records,
    find_lwns,
    walk_records,
)
from lowwater_extractor.sources.oracle.redo.vector_columns import Wanted, pick_vectors

FORM = Format()
ROOM = FORM.payload
#: every vector is picked
EVERYTHING = Wanted(np.full(1 << 16, VectorKind.UNKNOWN, np.uint8), np.ones(1 << 16, np.uint8), 0)


class Walked:
    """All LWNs of a log, walked."""

    def __init__(self, data: bytes, form: Format = FORM) -> None:
        self.form = form
        self.blocks: Bytes = rows(data, form.block_size)[2:]
        found = find_lwns(self.blocks, form)
        assert not isinstance(found, Damage), found
        self.lwns, self.wanted = found
        self.payload = Payload(form, len(self.blocks))
        self.payload.load(self.blocks)
        records = walk_records(self.payload, self.lwns)
        assert not isinstance(records, Damage), records
        self.records = records

    def vectors(self) -> list[tuple[int, int, int]]:
        """(position, end, opcode) of each."""
        found = pick_vectors(self.payload, self.records, EVERYTHING)
        assert not isinstance(found, Damage), found
        return list(zip(found.at.tolist(), found.stop.tolist(), found.opcode.tolist(), strict=True))


def one_by_one(data: bytes, form: Format = FORM) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Records and vectors as the format tells it, without what the block headers say of first records."""
    blocks = rows(data, form.block_size)[2:]
    payload, step = blocks[:, 16:].tobytes(), form.payload
    records: list[int] = []
    vectors: list[tuple[int, int, int]] = []
    lwn = 0
    while lwn < len(blocks):
        at = lwn * step
        lwn += unpack_from(f"{form.order}I", payload, at + 28)[0]
        while at < lwn * step:
            left = step - at % step
            if left < 24 or payload[at : at + 4] == bytes(4):
                at += left
                continue
            size = unpack_record(payload, at, form.order).size
            records.append(at)
            for one in unpack_vectors(payload[at : at + size], form.order):
                vectors.append((at + one.at, at + one.stop, one.opcode))
            at += size + 3 & ~3
    return records, vectors


def both_ways(lwns: list[MadeLwn], form: Format = FORM) -> Walked:
    data = MadeLog(form=form).pack(lwns)
    walked = Walked(data, form)
    records, vectors = one_by_one(data, form)
    assert walked.records.at.tolist() == records
    assert walked.vectors() == vectors
    assert len(records) == sum(max(1, len(lwn.records)) for lwn in lwns)
    return walked


def test_an_lwn_that_ends_with_its_block() -> None:
    """The first record's header is 68 bytes: 44 more than a filler counts."""
    lwn = MadeLwn(10, [filler(10, ROOM - 44 - 200), filler(10, 200)])
    walked = both_ways([lwn, MadeLwn(20, [filler(20, 100)])])
    assert walked.lwns.stop.tolist() == [1, 2]


@pytest.mark.parametrize("left", [0, 4, 8, 20, 24, 28, 60, 64])
def test_what_is_left_behind_a_record(left: int) -> None:
    """Fewer than 24 bytes: the next record's header does not fit, and begins on the next block."""
    lwn = MadeLwn(10, [filler(10, ROOM - 44 - left), filler(11, 100), filler(12, 100)])
    walked = both_ways([lwn])
    second = int(walked.records.at[1])
    assert second == (ROOM if left < 24 else ROOM - left)


def test_a_record_over_13_blocks() -> None:
    lwn = MadeLwn(10, [filler(10, 100), filler(11, 12 * ROOM), filler(12, 100)])
    walked = both_ways([lwn, MadeLwn(20, [])])
    assert int(walked.lwns.stop[0]) == 13
    assert walked.payload.first[1:12].tolist() == [0] * 11


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_long_record_that_ends_with_its_block(blocks: int) -> None:
    both_ways([MadeLwn(10, [filler(10, 100), filler(11, (blocks + 1) * ROOM - 144), filler(12, 100)])])
    both_ways([MadeLwn(10, [filler(10, 100), filler(11, (blocks + 1) * ROOM - 144)]), MadeLwn(20, [])])


def test_an_lwn_with_nothing_but_a_mark_of_a_written_block() -> None:
    walked = both_ways([MadeLwn(10, []), MadeLwn(11, []), MadeLwn(12, [filler(12, 60)])])
    assert walked.payload.raw[walked.records.at + 4].tolist() == [6, 6, 5]
    assert len(walked.vectors()) == 1


def test_vectors_with_more_fields_than_a_window_shows() -> None:
    many = [vector(0x0B02, *(bytes(n % 7) for n in range(count))) for count in (0, 1, 4, 5, 15, 16, 47, 48, 300)]
    walked = both_ways([MadeLwn(10, [record(10, *many), record(11, *reversed(many)), record(12)])])
    assert len(walked.vectors()) == 18


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("size", [512, 1024, 4096])
def test_every_block_size_and_byte_order(order: str, size: int) -> None:
    form = Format(order, size)
    records = [filler(1 << 40 | n, 100 + 52 * n, form) for n in range(60)]
    walked = both_ways([MadeLwn(1 << 40, records, upper=(1 << 40) + 60), MadeLwn(1 << 41, [])], form)
    assert walked.lwns.scn.tolist() == [1 << 40, 1 << 41]
    assert int(walked.lwns.upper[0]) == (1 << 40) + 60
    assert (walked.records.key >> np.uint64(16)).tolist()[:60] == [1 << 40 | n for n in range(60)]


sizes = st.integers(15, 600).map(lambda words: words * 4)
lwn_sizes = st.lists(st.lists(sizes, min_size=1, max_size=12), min_size=1, max_size=6)


@given(shape=lwn_sizes, order=st.sampled_from("<>"), block_size=st.sampled_from([512, 1024, 4096]))
@settings(max_examples=60, deadline=None)
def test_any_sizes(shape: list[list[int]], order: str, block_size: int) -> None:
    form = Format(order, block_size)
    both_ways([MadeLwn(5, [filler(5, size, form) for size in lwn]) for lwn in shape], form)


# --- LWNs


def test_the_last_lwn_is_not_all_there() -> None:
    data = MadeLog().pack([MadeLwn(10, [filler(10, 60)]), MadeLwn(20, [filler(20, 2000)])])
    found = find_lwns(rows(data, 512)[2:-1], FORM)
    assert not isinstance(found, Damage)
    assert (found[0].stop.tolist(), found[1]) == ([1], 5)


def test_a_group_of_lwns_is_one() -> None:
    parts = [MadeLwn(10 + n, [filler(10 + n, 700)], number=n, members=3) for n in range(3)]
    walked = Walked(MadeLog().pack([MadeLwn(5, []), *parts, MadeLwn(20, [])]))
    assert walked.lwns.start.tolist() == [0, 1, 7]
    assert walked.lwns.stop.tolist() == [1, 7, 8]
    assert walked.lwns.scn.tolist() == [5, 10, 20]
    assert walked.lwns.upper.tolist() == [6, 13, 21]


@pytest.mark.parametrize("there", [1, 2, 3, 4, 5])
def test_a_group_that_is_not_all_there(there: int) -> None:
    parts = [MadeLwn(10 + n, [filler(10 + n, 700)], number=n, members=3) for n in range(3)]
    found = find_lwns(rows(MadeLog().pack(parts), 512)[2 : 2 + there], FORM)
    assert not isinstance(found, Damage)
    lwns, wanted = found
    assert len(lwns.start) == 0
    assert there < wanted <= 6


def test_a_group_with_a_member_missing() -> None:
    parts = [MadeLwn(10, [], number=0, members=2), MadeLwn(12, [], number=0, members=1)]
    found = find_lwns(rows(MadeLog().pack(parts), 512)[2:], FORM)
    assert isinstance(found, Damage)
    assert "group" in found.what


def test_no_lwn_begins_here() -> None:
    data = MadeLog().pack([MadeLwn(10, [filler(10, 2000)])])
    found = find_lwns(rows(data, 512)[3:], FORM)
    assert isinstance(found, Damage)


# --- what the checksum does not see: the log was written so


def damaged(at: int, value: bytes, records: list[MadeRecord] | None = None) -> tuple[Payload, Lwns]:
    """`at` is a byte of the redo behind the two header blocks."""
    lwn = MadeLwn(10, records or [filler(10, 300), filler(10, 300), filler(10, 900)])
    data = bytearray(MadeLog().pack([lwn, MadeLwn(11, [filler(11, 60)])])[1024:])
    data[at : at + len(value)] = value
    blocks = rows(seal(bytes(data), 2, 15, FORM), 512)
    found = find_lwns(blocks, FORM)
    assert not isinstance(found, Damage)
    payload = Payload(FORM, len(blocks))
    payload.load(blocks)
    return payload, found[0]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (16, b"\x5c\x01"),  # the first record is longer than it is
        (16, b"\x54\x01"),  # shorter
        (360, b"\x08\0\0\0"),  # the second is smaller than a header
        (360, b"\0\0\0\0"),  # there is none
        (512 + 12, b"\x20\x80"),  # the block header names another first record
        (512 + 12, b"\0\x80"),
        (12, b"\x14\x80"),
    ],
)
def test_records_that_do_not_follow_each_other(at: int, value: bytes) -> None:
    assert isinstance(walk_records(*damaged(at, value)), Damage)


def test_a_vector_that_does_not_fit_its_record() -> None:
    for value in (b"\xff\0", b"\3\0", b"\0\0", b"\4\0\xff\xff"):
        payload, lwns = damaged(16 + 68 + 32, value)
        records = walk_records(payload, lwns)
        assert isinstance(records, Records)
        assert isinstance(pick_vectors(payload, records, EVERYTHING), Damage)
