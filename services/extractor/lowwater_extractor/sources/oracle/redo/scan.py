"""Records and vectors of whole LWNs, walked in lockstep: one numpy step moves all of them on by one.

A block's header says where its first record starts, so the records of all blocks are found side by side, and then the
vectors of all records. A vector that does not matter costs a few nanoseconds of numpy and no Python. What the block
headers say is checked against where the records end, so that no record can be missed.

Positions in here are bytes of the payload: the blocks put together without their headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo.blocks import Bytes
from lowwater_extractor.sources.oracle.redo.layout import (
    BLOCK_HEAD,
    LWN_HEAD,
    RECORD_HEAD,
    VECTOR_HEAD,
    VLD_LWN,
    VLD_VECTORS,
    Format,
)

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Sizes = NDArray[np.int32]

#: a vector's header, its size list's length and the first sizes of the list, looked at in one piece
_WINDOW = 64
_SIZES_MAX = (_WINDOW - VECTOR_HEAD - 2) // 2
#: most vectors have no more fields than these
_SIZES = 4
#: numpy may look at a whole window behind the last vector
_MARGIN = _WINDOW


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
        self._heads = self._pieces(RECORD_HEAD)
        self._windows = self._pieces(_WINDOW)
        #: offset of the first record, of each block
        self.first: Ints = np.zeros(0, np.int64)
        self.size = 0

    def load(self, blocks: Bytes) -> None:
        count = len(blocks)
        self.size = count * self.step
        self.raw[: self.size].reshape(count, self.step)[:] = blocks[:, BLOCK_HEAD:]
        self.raw[self.size : self.size + _MARGIN] = 0
        self.first = (blocks[:, 12:14].view(f"{self.form.order}u2")[:, 0] & 0x7FFF).astype(np.int64)

    def heads(self, at: Ints) -> Bytes:
        """The record headers at these positions, one row each."""
        return _as_rows(self._heads[at >> 2], np.uint8)

    def windows(self, at: Ints) -> NDArray[Any]:
        """The beginnings of the vectors at these positions, as rows of 16-bit words."""
        return _as_rows(self._windows[at >> 2], f"{self.form.order}u2")

    def _pieces(self, size: int) -> NDArray[Any]:
        """Pieces of `size` bytes that begin at every fourth byte: records and vectors begin at such."""
        count = (len(self.raw) - size) // 4 + 1
        return np.ndarray((count,), dtype=f"V{size}", buffer=self.raw, strides=(4,))


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
    #: which LWN it is in
    lwn: Ints
    #: the keys of an LWN do not fall
    ordered: bool


class Step(NamedTuple):
    """One vector of each record that has one more."""

    #: which record, by its place in what was walked
    record: Ints
    at: Ints
    stop: Ints
    opcode: Ints
    #: header and first sizes, as rows of 16-bit words
    words: NDArray[Any]
    #: where its first field begins
    first: Ints
    fields: Ints
    #: of the first fields, one row per field; 0 for those that are not there
    sizes: Sizes

    def padded_before(self, rows: Ints, field: int) -> Ints:
        """From the first field to the one with this number, counted from 0: at most the sizes in the window."""
        sizes = _sizes(self.words[rows], self.fields[rows], field)
        total: Ints = (sizes + 3 & ~3).sum(axis=0, dtype=np.int64)
        return total


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
    first = payload.first[: int(lwns.stop[-1])]
    block = np.flatnonzero((first >= BLOCK_HEAD) & (first < payload.form.block_size))
    step = payload.step
    start = block * step + first[block] - BLOCK_HEAD
    at = np.sort(np.concatenate([start[:0], *_step_records(payload, start, (block + 1) * step - RECORD_HEAD)]))
    heads = payload.heads(at)
    size = _u32(heads, 0, payload.form.order)
    if (size < RECORD_HEAD).any():
        return Damage(int(at[np.argmax(size < RECORD_HEAD)]), "a record that is smaller than its header")
    # the first records of the LWNs; in a group the others too have long headers
    cuts = np.flatnonzero(heads[:, 4] & VLD_LWN)
    if len(cuts) != len(lwns.start):
        cuts = np.searchsorted(at, lwns.start * step)
    cuts = np.append(cuts, len(at))
    damage = _check_chain(payload, lwns, at, size, cuts)
    if damage is not None:
        return damage
    lwn = np.repeat(np.arange(len(lwns.start)), np.diff(cuts))
    key = _keys(heads, payload.form.order)
    ordered = not bool(((key[1:] < key[:-1]) & (lwn[1:] == lwn[:-1])).any())
    return Records(at, size, heads[:, 4], key, lwn, ordered)


def _step_records(payload: Payload, at: Ints, room: Ints) -> Iterator[Ints]:
    """One record of each block that has one more. `room`: the last place of each block where a header fits."""
    fits = at <= room
    while True:
        at, room = at[fits], room[fits]
        size = payload.u32[at >> 2]
        # behind a size of 0 there is nothing more in the block
        if not size.all():
            more = size != 0
            at, room, size = at[more], room[more], size[more]
        if not len(at):
            return
        yield at
        at = at + (size.astype(np.int64) + 3 & ~3)
        fits = at <= room


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


def _keys(heads: Bytes, order: str) -> Words:
    """SCN << 16 | sub-SCN of record headers: wrap, base and sub-SCN stand side by side there."""
    raw = heads[:, 6:14].view(f"{order}u8")[:, 0].astype(np.uint64)
    if order == ">":
        return raw
    keys: Words = raw & np.uint64(0x0000_FFFF_FFFF_0000)
    keys |= raw << np.uint64(48)
    keys |= raw >> np.uint64(48)
    return keys


# --- vectors -------------------------------------------------------------------------------------------------------


def walk_vectors(payload: Payload, records: Records) -> Iterator[Step | Damage]:
    """Step by step the vectors of all records that have any: first the first of each, then the second, …"""
    record = np.flatnonzero(records.vld & VLD_VECTORS)
    head = np.where(records.vld[record] & VLD_LWN, LWN_HEAD, RECORD_HEAD)
    at = records.at[record] + head
    end = records.at[record] + (records.size[record] + 3 & ~3)
    while True:
        more = at < end
        if not more.all():
            record, at, end = record[more], at[more], end[more]
        if not len(record):
            return
        step, wrong = _one_step(payload, record, at, end)
        if wrong.any():
            yield Damage(int(at[np.argmax(wrong)]), "a vector that does not fit its record")
            return
        yield step
        at = step.stop


def _one_step(payload: Payload, record: Ints, at: Ints, end: Ints) -> tuple[Step, NDArray[np.bool_]]:
    words = payload.windows(at)
    listed = words[:, VECTOR_HEAD // 2].astype(np.int64)
    fields = (listed >> 1) - 1
    first = at + VECTOR_HEAD + (listed + 2 & ~3)
    wrong = (listed < 2) | (listed & 1 != 0) | (first > end)
    sizes = _sizes(words, fields, _SIZES)
    stop = first + (sizes + 3 & ~3).sum(axis=0, dtype=np.int32)
    many = np.flatnonzero(fields > _SIZES)
    if len(many):
        window = _sizes(words[many], fields[many], _SIZES_MAX)
        stop[many] = first[many] + (window + 3 & ~3).sum(axis=0, dtype=np.int32)
        many = many[(fields[many] > _SIZES_MAX) & ~wrong[many]]
        if len(many):
            stop[many] += _more_sizes(payload, at[many] + VECTOR_HEAD + 2 + 2 * _SIZES_MAX, fields[many] - _SIZES_MAX)
    wrong |= stop > end
    opcode = words[:, 0].astype(np.int64)
    if payload.form.order == "<":
        opcode = opcode >> 8 | (opcode & 0xFF) << 8
    return Step(record, at, stop, opcode, words, first, fields, sizes), wrong


def _sizes(words: NDArray[Any], fields: Ints, count: int) -> Sizes:
    """The first sizes of vectors, one row per field: so numpy's inner loop runs over the vectors, not the fields."""
    begin = VECTOR_HEAD // 2 + 1
    sizes: Sizes = words.T[begin : begin + count].astype(np.int32, order="C")
    for field, row in enumerate(sizes):
        row *= fields > field
    return sizes


def _more_sizes(payload: Payload, at: Ints, left: Ints) -> Ints:
    """The padded sizes of the fields behind those in the window, added up."""
    total = np.zeros(len(at), np.int64)
    width = 32
    columns = np.arange(width)
    rows = np.arange(len(at))
    last = len(payload.u16) - 1
    while len(rows):
        index = np.minimum((at >> 1)[:, None] + columns, last)
        sizes = payload.u16[index].astype(np.int64)
        sizes *= columns < left[:, None]
        total[rows] += (sizes + 3 & ~3).sum(axis=1)
        more = left > width
        rows, at, left = rows[more], at[more] + 2 * width, left[more] - width
    return total
