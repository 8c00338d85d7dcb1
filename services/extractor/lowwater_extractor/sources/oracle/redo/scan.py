"""Finds LWNs and the records in them, as columns.

Positions are byte offsets in the payload: the concatenated blocks without their headers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo._native import lwns as chain
from lowwater_extractor.sources.oracle.redo._native import record_scan as walk
from lowwater_extractor.sources.oracle.redo.blocks import Bytes
from lowwater_extractor.sources.oracle.redo.layout import (
    BLOCK_HEAD,
    RECORD_HEAD,
    VECTOR_HEAD,
    Format,
)

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

#: a scan may read a header after the last vector
_MARGIN = 64


class Damage(NamedTuple):
    """The bytes are not redo. `at` is a position in the payload."""

    at: int
    what: str


class RecordRoom(NamedTuple):
    """Columns of records, filled by `record_scan.walk_records`."""

    at: Ints
    key: Words

    @classmethod
    def of(cls, most: int) -> RecordRoom:
        return cls(np.empty(most, np.int64), np.empty(most, np.uint64))


class PickRoom(NamedTuple):
    """Columns of vectors, filled by `record_scan.pick_vectors`."""

    record: Ints
    at: Ints
    stop: Ints
    first: Ints
    fields: Ints
    opcode: Ints
    container: Ints
    kind: NDArray[np.uint8]
    before: Ints

    @classmethod
    def of(cls, most: int) -> PickRoom:
        record, at, stop, first, fields, opcode, container, before = (np.empty(most, np.int64) for _ in range(8))
        return cls(record, at, stop, first, fields, opcode, container, np.empty(most, np.uint8), before)


class EventRoom(NamedTuple):
    """Columns of events, filled by `vector_filter_fast.list_usual`."""

    record: Ints
    place: Ints
    stop: Ints
    container: Ints
    xid: Words
    code: Ints
    value: Ints
    flags: Ints
    split: Ints

    @classmethod
    def of(cls, most: int) -> EventRoom:
        record, place, stop, container, code, value, flags, split = (np.empty(most, np.int64) for _ in range(8))
        return cls(record, place, stop, container, np.empty(most, np.uint64), code, value, flags, split)

    def before(self, count: int) -> EventRoom:
        return EventRoom(*(column[:count] for column in self))  # type: ignore[arg-type]  # each keeps its own type


class Payload:
    """The blocks of one slice without their headers, as bytes and as integers in the file's byte order."""

    def __init__(self, form: Format, blocks_max: int) -> None:
        self.form = form
        self.step = form.payload
        #: the bytes; the other attributes are views of it
        self.memory = bytearray(blocks_max * self.step + _MARGIN)
        self.raw = np.frombuffer(self.memory, np.uint8)
        self.blocks_max = blocks_max
        self.view = self.raw.data
        self.big = form.order == ">"
        self.u16 = self.raw[: len(self.raw) & ~1].view(f"{form.order}u2")
        self.u32 = self.raw[: len(self.raw) & ~3].view(f"{form.order}u4")
        #: the same in the machine's byte order, for the scans
        self.words = self.u16
        self.longs = self.u32
        #: output buffers of the scans; allocating them for each slice would cost more than the scans
        self.record_room = RecordRoom.of(len(self.raw) // RECORD_HEAD)
        self.pick_room = PickRoom.of(len(self.raw) // VECTOR_HEAD)
        self.event_room = EventRoom.of(len(self.raw) // VECTOR_HEAD)
        #: offset of the first record, of each block
        self.first: Ints = np.zeros(0, np.int64)
        self.size = 0

    def load(self, blocks: Bytes) -> None:
        count = len(blocks)
        self.size = count * self.step
        self.raw[: self.size].reshape(count, self.step)[:] = blocks[:, BLOCK_HEAD:]
        self.raw[self.size : self.size + _MARGIN] = 0
        if not self.u16.dtype.isnative:
            self.words, self.longs = self.u16.astype(np.uint16), self.u32.astype(np.uint32)
        self.first = (blocks[:, 12:14].view(f"{self.form.order}u2")[:, 0] & 0x7FFF).astype(np.int64)


class Lwns(NamedTuple):
    """LWNs as columns. A group of LWNs that was written as one is one row."""

    #: first block, and the block after the last
    start: Ints
    stop: Ints
    scn: Words
    upper: Words
    time: Ints

    def before(self, count: int) -> Lwns:
        return Lwns(*(column[:count] for column in self))  # type: ignore[arg-type]  # each keeps its own type


class Records(NamedTuple):
    """Records as columns, in file order. The columns are the payload's memory: valid until the payload is reloaded."""

    at: Ints
    #: SCN << 16 | sub-SCN: the order in which they were generated
    key: Words
    #: the first record of each LWN, and the number of records
    cuts: Ints
    #: by LWN: the lowest and highest key, and whether the keys never decrease
    lowest: Words
    highest: Words
    ordered: NDArray[np.uint8]

    def lwn_of(self, records: Ints) -> Ints:
        """The indexes of the LWNs that contain these records."""
        return np.searchsorted(self.cuts, records, "right") - 1


# --- LWNs ----------------------------------------------------------------------------------------------------------


def find_lwns(blocks: Bytes, form: Format) -> tuple[Lwns, int] | Damage:
    """The complete LWNs at the start of `blocks`, and the number of blocks that the next one needs (0 if unknown).

    `blocks` must have been verified with `blocks.find_bad`.
    """
    is_big, raw = form.order == ">", blocks.reshape(-1).data
    found = chain.count_lwns(raw, form.block_size, len(blocks), is_big)
    if found < 0:
        return Damage((-1 - found) * form.payload, "no LWN begins here")
    columns = np.empty((chain.COLUMNS, found), np.uint64)
    chain.list_lwns(raw, form.block_size, found, is_big, columns.reshape(-1).data)
    start, stop, _, _, time, number, members = columns.view(np.int64)
    _, _, scn, upper, *_ = columns
    wanted, whole = 0, found
    if found and stop[-1] > len(blocks):
        wanted, whole = int(stop[-1] - start[-1]), found - 1
    lwns = Lwns(start, stop, scn, upper, time).before(whole)
    if (members[:whole] == 1).all():
        return lwns, wanted
    return _join_groups(lwns, number[:whole], members[:whole], wanted, form)


def _join_groups(lwns: Lwns, number: Ints, members: Ints, wanted: int, form: Format) -> tuple[Lwns, int] | Damage:
    """Join the LWNs of each group: they are processed together, when all of them have been read."""
    first: list[int] = []
    last: list[int] = []
    at = 0
    while at < len(number):
        size = max(1, int(members[at]))
        end = min(at + size, len(number))
        if (number[at:end] != np.arange(end - at)).any() or (members[at:end] != members[at]).any():
            return Damage(int(lwns.start[at]) * form.payload, "LWNs of a group do not follow each other")
        if end - at < size:
            # at least one block for each missing member
            held = int(lwns.stop[end - 1] - lwns.start[at])
            wanted = held + max(wanted, 1) + size - (end - at) - 1
            break
        first.append(at)
        last.append(end - 1)
        at = end
    head, tail = np.array(first, np.int64), np.array(last, np.int64)
    upper = np.maximum.reduceat(lwns.upper[: int(tail[-1]) + 1], head) if first else lwns.upper[head]
    return Lwns(lwns.start[head], lwns.stop[tail], lwns.scn[head], upper, lwns.time[head]), wanted


# --- records -------------------------------------------------------------------------------------------------------


def walk_records(payload: Payload, lwns: Lwns) -> Records | Damage:
    """All records of these LWNs, which fill the first blocks of the payload."""
    groups, (at, key) = len(lwns.start), payload.record_room
    lowest, highest = np.empty(groups, np.uint64), np.empty(groups, np.uint64)
    cuts, ordered, wrong = np.empty(groups + 1, np.int64), np.empty(groups, np.uint8), np.zeros(1, np.int64)
    room = Records(at, key, cuts, lowest, highest, ordered)
    whole = lwns._replace(start=np.ascontiguousarray(lwns.start), stop=np.ascontiguousarray(lwns.stop))
    count = walk.walk_records(payload, whole, room, wrong.data)
    if count < 0:
        return Damage(int(wrong[0]), walk.DAMAGE[count])
    return room._replace(at=at[:count], key=key[:count])
