"""The vectors that may matter, side by side, with what is read of their headers and fields."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo._native import record_scan as walk
from lowwater_extractor.sources.oracle.redo.layout import VECTOR_HEAD
from lowwater_extractor.sources.oracle.redo.scan import Damage, Ints, Payload, Records


class Wanted(NamedTuple):
    """What is picked: by the vector's opcode its kind (0: never), and of 5.1 by the number of its object."""

    kinds: NDArray[np.uint8]
    #: by the last 16 bits: may it be a captured one?
    objects: NDArray[np.uint8]
    #: those above may be, too
    newest: int


class Picks(NamedTuple):
    """Vectors in the order of the payload; they are its own, until it is loaded anew."""

    payload: Payload
    #: which record it is in
    record: Ints
    at: Ints
    stop: Ints
    #: where its first field begins, and how many there are
    first: Ints
    fields: Ints
    #: layer << 8 | code
    opcode: Ints
    container: Ints
    #: of `opcodes.Kind`
    kind: NDArray[np.uint8]
    #: of a row: which of the picks is the 5.1 before it. Of a 5.1: where its second field begins, which names its
    #: object. Of a 5.6 or 5.11: where the rows before it begin that have no 5.1. -1: there is none, or it is hidden
    before: Ints

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


def pick_vectors(payload: Payload, records: Records, wanted: Wanted) -> Picks | Damage:
    room = payload.pick_room
    opened, wrong = np.full(walk.OPEN, -1, np.int64), np.zeros(1, np.int64)
    count = walk.pick_vectors(
        payload.view,
        payload.words.data,
        payload.longs.data,
        records.at.data,
        records.cuts.data,
        records.ordered.data,
        wanted.kinds.data,
        wanted.objects.data,
        wanted.newest,
        room.record.data,
        room.at.data,
        room.stop.data,
        room.first.data,
        room.fields.data,
        room.opcode.data,
        room.container.data,
        room.kind.data,
        room.before.data,
        opened.data,
        wrong.data,
    )
    if count < 0:
        return Damage(int(wrong[0]), walk.DAMAGE[count])
    return Picks(payload, *(column[:count] for column in room))  # type: ignore[arg-type]  # each keeps its own type
