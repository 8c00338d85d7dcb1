"""Vectors of many records, walked in lockstep: first the first of each record, then the second, …

Of a vector that does not matter only its opcode and the list of its fields' sizes are looked at: a few nanoseconds of
numpy, and no Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo.layout import LWN_HEAD, RECORD_HEAD, VECTOR_HEAD, VLD_LWN, VLD_VECTORS
from lowwater_extractor.sources.oracle.redo.scan import Damage, Ints, Payload, Records

Twos = NDArray[np.uint32]

#: where the list of sizes is, in words of 4 bytes; the first of them has the list's length and the first size
_LIST = VECTOR_HEAD // 4
#: so many words, two sizes in each, are added up at once: sizes up to 32 KB cannot overflow
_WORDS = 5
_SIZES = 2 * _WORDS
_LOW, _HALF, _TWO = np.uint32(0xFFFF), np.uint32(16), np.uint32(2)
#: for both halves of a word: what rounds up to 4 bytes, the rest without what came over from above, and beyond 32 KB
_ROUND, _QUARTER, _HUGE = np.uint32(0x0003_0003), np.uint32(0x3FFF_3FFF), 0x8000_8000


def _masks() -> Twos:
    """[word, n]: what lets the first n sizes through."""
    count = np.arange(_SIZES + 1)
    words = [np.where(count > 2 * at, 0xFFFF, 0) | np.where(count > 2 * at + 1, 0xFFFF_0000, 0) for at in range(_WORDS)]
    return np.array(words, np.uint32)


_ALL = _masks()
#: without the very first, which is the list's own length
_BUT_FIRST = _ALL.copy()
_BUT_FIRST[0] &= np.uint32(0xFFFF_0000)


class Step(NamedTuple):
    """One vector of each record that has one more."""

    payload: Payload
    #: which record, by its place in what was walked
    record: Ints
    #: which of the step before are still there; None: all
    kept: Ints | None
    at: Ints
    stop: Ints
    #: where its first field begins, and how many there are
    first: Ints
    fields: Ints

    def at_rows(self, rows: Ints) -> Step:
        """These alone, not to be walked on from."""
        columns = (self.record.take(rows), None, self.at.take(rows), self.stop.take(rows))
        return Step(self.payload, *columns, self.first.take(rows), self.fields.take(rows))

    def opcodes(self, rows: Ints) -> Ints:
        """layer << 8 | code"""
        at = self.at[rows]
        return self.payload.raw[at].astype(np.int64) << 8 | self.payload.raw[at + 1]

    def word(self, rows: Ints, number: int) -> Ints:
        """A 16-bit word of the vector's header."""
        found: Ints = self.payload.u16[(self.at[rows] >> 1) + number].astype(np.int64)
        return found

    def size(self, rows: Ints, field: int) -> Ints:
        """Of the field with this number, counted from 0; 0 if there is none."""
        return np.where(self.fields[rows] > field, self.word(rows, VECTOR_HEAD // 2 + 1 + field), 0)

    def typ(self, rows: Ints) -> NDArray[np.uint8]:
        return np.asarray(self.payload.raw[self.at[rows] + 21])

    def field(self, rows: Ints, number: int) -> Ints:
        """Where the field with this number begins, counted from 0: it must be there."""
        at = self.first[rows].copy()
        for before in range(number):
            at += self.size(rows, before) + 3 & ~3
        return at


def walk_vectors(payload: Payload, records: Records) -> Iterator[Step | Damage]:
    """Step by step the vectors of all records that have any."""
    start = records.at + np.where(records.vld & VLD_LWN, LWN_HEAD, RECORD_HEAD)
    end = records.at + (records.size + 3 & ~3)
    record = np.flatnonzero((records.vld & VLD_VECTORS != 0) & (start < end))
    at, end = start.take(record), end.take(record)
    kept: Ints | None = None
    while len(record):
        step = _step(payload, record, kept, at, end)
        yield step
        if isinstance(step, Damage):
            return
        at, kept = step.stop, None
        more = np.flatnonzero(at < end)
        if len(more) < len(at):
            kept = more
            record, at, end = record.take(kept), at.take(kept), end.take(kept)


def _step(payload: Payload, record: Ints, kept: Ints | None, at: Ints, end: Ints) -> Step | Damage:
    word = (at >> 2) + _LIST
    listed = (payload.twos.take(word) & _LOW).astype(np.int64)
    first = at + (VECTOR_HEAD + 2) + listed & ~3
    words = listed >> 1
    wrong = first > end
    if wrong.any() or listed.min() < 2 or np.bitwise_or.reduce(listed) & 1:
        return _damage(at, wrong | (listed < 2) | (listed & 1 != 0))
    stop = first + _padded(payload, word, words)
    wrong = stop > end
    if wrong.any():
        return _damage(at, wrong)
    return Step(payload, record, kept, at, stop, first, words - 1)


def _damage(at: Ints, wrong: NDArray[np.bool_]) -> Damage:
    return Damage(int(at[np.argmax(wrong)]), "a vector that does not fit its record")


def _padded(payload: Payload, word: Ints, count: Ints) -> Ints:
    """The sizes in these lists, each rounded up to 4 bytes, added up. `count`: with the list's length."""
    total = _added(payload, word, count, _BUT_FIRST)
    rows = np.flatnonzero(count > _SIZES)
    if len(rows):
        word, count = word[rows], count[rows]
    while len(rows):
        word, count = word + _WORDS, count - _SIZES
        total[rows] += _added(payload, word, count, _ALL)
        more = np.flatnonzero(count > _SIZES)
        rows, word, count = rows[more], word[more], count[more]
    return total << 2


def _added(payload: Payload, word: Ints, count: Ints, masks: Twos) -> Ints:
    """In words of 4 bytes, the first `count` of them at most."""
    count = np.minimum(count, _SIZES)
    longest, huge = int(count.max()), 0
    total = np.zeros(len(word), np.uint32)
    for at in range(longest + 1 >> 1):
        two = payload.twos.take(word + at)
        two &= masks[at].take(count)
        huge |= int(np.bitwise_or.reduce(two))
        two += _ROUND
        two >>= _TWO
        two &= _QUARTER
        total += two
    if huge & _HUGE:
        return _added_slowly(payload, word, count, masks)
    return ((total & _LOW) + (total >> _HALF)).astype(np.int64)


def _added_slowly(payload: Payload, word: Ints, count: Ints, masks: Twos) -> Ints:
    total = np.zeros(len(word), np.int64)
    for at in range(_WORDS):
        two = (payload.twos.take(word + at) & masks[at].take(count)).astype(np.int64)
        total += (two & 0xFFFF) + 3 >> 2
        total += (two >> 16) + 3 >> 2
    return total
