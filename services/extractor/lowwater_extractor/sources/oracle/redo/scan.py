"""LWNs, and the records in them, side by side.

Positions in here are bytes of the payload: the blocks put together without their headers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import walk
from lowwater_extractor.sources.oracle.redo.blocks import Bytes
from lowwater_extractor.sources.oracle.redo.layout import (
    BLOCK_HEAD,
    LWN_HEAD,
    RECORD_HEAD,
    VECTOR_HEAD,
    VLD_LWN,
    Format,
)

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

#: the walk may look at a header behind the last vector
_MARGIN = 64


class Damage(NamedTuple):
    """The bytes are no redo. `at` is a position in the payload."""

    at: int
    what: str


class RecordRoom(NamedTuple):
    """Columns of records, as `walk.walk_records` fills them."""

    at: Ints
    key: Words

    @classmethod
    def of(cls, most: int) -> RecordRoom:
        return cls(np.empty(most, np.int64), np.empty(most, np.uint64))


class PickRoom(NamedTuple):
    """Columns of vectors, as `walk.pick_vectors` fills them."""

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


class Payload:
    """The blocks of one slice without their headers, seen as bytes and as numbers of the file's order."""

    def __init__(self, form: Format, blocks_max: int) -> None:
        self.form = form
        self.step = form.payload
        #: the bytes themselves; all else are views of it
        self.memory = bytearray(blocks_max * self.step + _MARGIN)
        self.raw = np.frombuffer(self.memory, np.uint8)
        self.blocks_max = blocks_max
        self.view = self.raw.data
        self.big = form.order == ">"
        self.u16 = self.raw[: len(self.raw) & ~1].view(f"{form.order}u2")
        self.u32 = self.raw[: len(self.raw) & ~3].view(f"{form.order}u4")
        #: the same in the machine's order, for the walk
        self.words = self.u16
        self.longs = self.u32
        #: room for what the walks find in it; memory that is made anew for each slice costs more than they do
        self.record_room = RecordRoom.of(len(self.raw) // RECORD_HEAD)
        self.pick_room = PickRoom.of(len(self.raw) // VECTOR_HEAD)
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


def _as_rows(pieces: NDArray[Any], dtype: Any) -> NDArray[Any]:
    rows: NDArray[Any] = pieces.view(dtype).reshape(len(pieces), -1)
    return rows


class Lwns(NamedTuple):
    """LWNs side by side. A group that was written as several is one here."""

    #: first block, and the one behind the last
    start: Ints
    stop: Ints
    scn: Words
    upper: Words
    time: Ints

    def before(self, count: int) -> Lwns:
        return Lwns(*(column[:count] for column in self))  # type: ignore[arg-type]  # each keeps its own type


class Records(NamedTuple):
    """Records side by side, as the file has them; they are the payload's, until it is loaded anew."""

    at: Ints
    #: SCN << 16 | sub-SCN: the order that they were made in
    key: Words
    #: the first record of each LWN, and the one behind the last
    cuts: Ints
    #: of each LWN its lowest and its highest key, and whether they never fall
    lowest: Words
    highest: Words
    ordered: NDArray[np.uint8]

    def lwn_of(self, records: Ints) -> Ints:
        """In which LWN these are, by their numbers."""
        return np.searchsorted(self.cuts, records, "right") - 1


# --- LWNs ----------------------------------------------------------------------------------------------------------


def find_lwns(blocks: Bytes, form: Format) -> tuple[Lwns, int] | Damage:
    """The whole LWNs at the start of `blocks`, and how many blocks the next one needs (0 if that is not known).

    `blocks` are good ones, as `blocks.find_bad` says it.
    """
    order, count = form.order, len(blocks)
    lengths = blocks[:, BLOCK_HEAD + 28 : BLOCK_HEAD + 32].view(f"{order}u4")[:, 0]
    start = _lwn_starts(blocks, lengths, order)
    here = _lwn_heads(blocks, start)
    wrong = _not_lwn(here, order)
    if wrong.any():
        return Damage(int(start[int(np.argmax(wrong))]) * form.payload, "no LWN begins here")
    stop = start + _u32(here, 28, order)
    wanted = 0
    if len(stop) and stop[-1] > count:
        wanted = int(stop[-1] - start[-1])
        start, stop, here = start[:-1], stop[:-1], here[:-1]
    lwns = Lwns(start, stop, _scns(here, 40, order), _scns(here, 56, order), _u32(here, 64, order))
    members = here[:, 26:28].view(f"{order}u2")[:, 0]
    if (members == 1).all():
        return lwns, wanted
    return _join_groups(lwns, _u16(here, 24, order), _u16(here, 26, order), wanted, form)


def _lwn_heads(blocks: Bytes, start: Ints) -> Bytes:
    """The long record headers at the start of these blocks, each copied as one piece."""
    size = blocks.shape[1]
    pieces = np.ndarray((len(blocks),), f"V{LWN_HEAD}", blocks.data, BLOCK_HEAD, (size,))
    return _as_rows(pieces[start], np.uint8)


def _lwn_starts(blocks: Bytes, lengths: NDArray[Any], order: str) -> Ints:
    """The blocks that begin an LWN, the last one perhaps without having all of its own.

    They are guessed by how such a block looks, all at once. Only the lengths prove it; if they do not fit the guess,
    the LWNs are gone through one by one.
    """
    looks = blocks[:, 12:14].view(f"{order}u2")[:, 0] & 0x7FFF == BLOCK_HEAD
    looks &= blocks[:, BLOCK_HEAD + 4] & VLD_LWN != 0
    start = np.flatnonzero(looks)
    if len(start) and start[0] == 0:
        stop = start + lengths[start]
        if (stop[:-1] == start[1:]).all() and stop[-1] >= len(blocks):
            return start
    starts: list[int] = []
    at, listed = 0, lengths.tolist()
    while at < len(blocks):
        starts.append(at)
        at += listed[at] or len(blocks)
    return np.array(starts, np.int64)


def _not_lwn(heads: Bytes, order: str) -> NDArray[np.bool_]:
    """An LWN's first record has the long header; its length stands there twice."""
    wrong: NDArray[np.bool_] = (heads[:, 4] & VLD_LWN) == 0
    wrong |= _u32(heads, 28, order) != _u32(heads, 32, order)
    wrong |= (_u32(heads, 0, order) < LWN_HEAD) | (_u32(heads, 28, order) == 0)
    return wrong


def _join_groups(lwns: Lwns, number: Ints, members: Ints, wanted: int, form: Format) -> tuple[Lwns, int] | Damage:
    """LWNs of a group are processed together, once all were read."""
    first: list[int] = []
    last: list[int] = []
    at = 0
    while at < len(number):
        size = max(1, int(members[at]))
        end = min(at + size, len(number))
        if (number[at:end] != np.arange(end - at)).any() or (members[at:end] != members[at]).any():
            return Damage(int(lwns.start[at]) * form.payload, "LWNs of a group do not follow each other")
        if end - at < size:
            # at least one block for each that is missing
            held = int(lwns.stop[end - 1] - lwns.start[at])
            wanted = held + max(wanted, 1) + size - (end - at) - 1
            break
        first.append(at)
        last.append(end - 1)
        at = end
    head, tail = np.array(first, np.int64), np.array(last, np.int64)
    upper = np.maximum.reduceat(lwns.upper[: int(tail[-1]) + 1], head) if first else lwns.upper[head]
    return Lwns(lwns.start[head], lwns.stop[tail], lwns.scn[head], upper, lwns.time[head]), wanted


def _u16(rows: Bytes, at: int, order: str) -> Ints:
    return rows[:, at : at + 2].view(f"{order}u2")[:, 0].astype(np.int64)


def _u32(rows: Bytes, at: int, order: str) -> Ints:
    return rows[:, at : at + 4].view(f"{order}u4")[:, 0].astype(np.int64)


def _scns(rows: Bytes, at: int, order: str) -> Words:
    base = _u32(rows, at, order).astype(np.uint64)
    high = _u16(rows, at + 4, order).astype(np.uint64)
    last = _u16(rows, at + 6, order).astype(np.uint64)
    flagged = base | last << np.uint64(32) | (high & np.uint64(0x7FFF)) << np.uint64(48)
    return np.where(high & np.uint64(0x8000), flagged, base | high << np.uint64(32))


# --- records -------------------------------------------------------------------------------------------------------


def walk_records(payload: Payload, lwns: Lwns) -> Records | Damage:
    """All records of these LWNs, which fill the first blocks of the payload."""
    groups, (at, key) = len(lwns.start), payload.record_room
    lowest, highest = np.empty(groups, np.uint64), np.empty(groups, np.uint64)
    cuts, ordered, wrong = np.empty(groups + 1, np.int64), np.empty(groups, np.uint8), np.zeros(1, np.int64)
    count = walk.walk_records(
        payload.words.data,
        payload.longs.data,
        payload.step,
        payload.first.data,
        np.ascontiguousarray(lwns.start).data,
        np.ascontiguousarray(lwns.stop).data,
        at.data,
        key.data,
        cuts.data,
        lowest.data,
        highest.data,
        ordered.data,
        wrong.data,
    )
    if count < 0:
        return Damage(int(wrong[0]), walk.DAMAGE[count])
    return Records(at[:count], key[:count], cuts, lowest, highest, ordered)
