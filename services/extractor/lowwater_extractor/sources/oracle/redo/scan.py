"""Records of whole LWNs, walked in lockstep: one numpy step moves all of them on by one.

A block's header says where its first record starts, so the records of all blocks are found side by side. What the
block headers say is checked against where the records end, so that no record can be missed.

Positions in here are bytes of the payload: the blocks put together without their headers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo.blocks import Bytes
from lowwater_extractor.sources.oracle.redo.layout import (
    BLOCK_HEAD,
    LWN_HEAD,
    RECORD_HEAD,
    VLD_LWN,
    Format,
)

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

#: numpy may look at a header and the first sizes behind the last vector
_MARGIN = 64


class Damage(NamedTuple):
    """The bytes are no redo. `at` is a position in the payload."""

    at: int
    what: str


class Payload:
    """The blocks of one slice without their headers, seen as bytes and as numbers of the file's order."""

    def __init__(self, form: Format, blocks_max: int) -> None:
        self.form = form
        self.step = form.payload
        self.raw = np.zeros(blocks_max * self.step + _MARGIN, np.uint8)
        self.blocks_max = blocks_max
        self.view = self.raw.data
        self.u16 = self.raw[: len(self.raw) & ~1].view(f"{form.order}u2")
        self.u32 = self.raw[: len(self.raw) & ~3].view(f"{form.order}u4")
        #: 16-bit numbers in twos: the first one in the low half
        self.twos = self.raw[: len(self.raw) & ~3].view("<u4") if form.order == "<" else np.zeros(0, np.uint32)
        #: offset of the first record, of each block
        self.first: Ints = np.zeros(0, np.int64)
        self.size = 0

    def load(self, blocks: Bytes) -> None:
        count = len(blocks)
        self.size = count * self.step
        self.raw[: self.size].reshape(count, self.step)[:] = blocks[:, BLOCK_HEAD:]
        self.raw[self.size : self.size + _MARGIN] = 0
        if self.form.order == ">":
            self.twos = self.u16.astype("<u2").view("<u4")
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
    """Records side by side, as the file has them."""

    at: Ints
    size: Ints
    vld: NDArray[Any]
    #: SCN << 16 | sub-SCN: the order that they were made in
    key: Words
    #: which LWN it is in, and the first record of each LWN
    lwn: Ints
    cuts: Ints
    #: the keys of an LWN do not fall
    ordered: bool


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
    at = _record_starts(payload, int(lwns.stop[-1]))
    size = payload.u32.take(at >> 2).astype(np.int64)
    if size.min(initial=RECORD_HEAD) < RECORD_HEAD:
        return Damage(int(at[np.argmax(size < RECORD_HEAD)]), "a record that is smaller than its header")
    vld = payload.raw.take(at + 4)
    # the first records of the LWNs; in a group the others too have long headers
    cuts = np.flatnonzero(vld & VLD_LWN)
    if len(cuts) != len(lwns.start):
        cuts = np.searchsorted(at, lwns.start * payload.step)
    cuts = np.append(cuts, len(at))
    damage = _check_chain(payload, lwns, at, size, cuts)
    if damage is not None:
        return damage
    lwn = np.repeat(np.arange(len(lwns.start)), np.diff(cuts))
    key = _keys(payload, at)
    falls = key[1:] < key[:-1]
    ordered = not (falls.any() and (falls & (lwn[1:] == lwn[:-1])).any())
    return Records(at, size, vld, key, lwn, cuts[:-1], ordered)


def _record_starts(payload: Payload, blocks: int) -> Ints:
    """In all blocks side by side: from the first record that each of them names to the last that fits its header."""
    first = payload.first[:blocks]
    block = np.flatnonzero((first >= BLOCK_HEAD) & (first < payload.form.block_size))
    at = block * payload.step + first[block] - BLOCK_HEAD
    # the last place of each block where a header fits
    room = (block + 1) * payload.step - RECORD_HEAD
    found = [at[:0]]
    fits = np.flatnonzero(at <= room)
    while len(fits):
        at, room = at.take(fits), room.take(fits)
        size = payload.u32.take(at >> 2)
        # behind a size of 0 there is nothing more in the block
        if not size.all():
            more = np.flatnonzero(size)
            at, room, size = at.take(more), room.take(more), size.take(more)
        found.append(at)
        at = at + (size.astype(np.int64) + 3 & ~3)
        fits = np.flatnonzero(at <= room)
    return np.sort(np.concatenate(found))


def _check_chain(payload: Payload, lwns: Lwns, at: Ints, size: Ints, cuts: Ints) -> Damage | None:
    """Does each record start where the one before it ended, from the first block of its LWN to the last?

    So it does not matter what the block headers say of the first records: what they did not lead to is missed here.
    `cuts` are the first records of the LWNs.
    """
    if not np.diff(cuts).all() or (at[cuts[:-1]] != lwns.start * payload.step).any():
        return Damage(0, "an LWN that does not begin with a record")
    stop = at + (size + 3 & ~3)
    wanted = np.append(at[1:], 0)
    wanted[cuts[1:] - 1] = lwns.stop * payload.step
    gap = wanted - stop
    # only the end of a block is passed over: too little for a header, or said to be empty
    some = np.flatnonzero(gap)
    gap, behind = gap[some], wanted[some]
    wrong = (gap < 0) | (gap >= payload.step) | (behind % payload.step != 0)
    wrong |= (gap >= RECORD_HEAD) & (payload.u32[np.where(wrong, 0, stop[some]) >> 2] != 0)
    if wrong.any():
        what = "a record that does not end where the next one starts, or its LWN ends"
        return Damage(int(at[some[np.argmax(wrong)]]), what)
    return None


def _keys(payload: Payload, at: Ints) -> Words:
    """SCN << 16 | sub-SCN of the records at these positions."""
    half = at >> 1
    key = payload.u16.take(half + 3).astype(np.uint64)
    key <<= np.uint64(32)
    key |= payload.u32.take((at >> 2) + 2)
    key <<= np.uint64(16)
    key |= payload.u16.take(half + 6)
    return key
