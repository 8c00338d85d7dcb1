"""The vectors that may be relevant, as columns, with access to their headers and fields."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo._native import record_scan as walk
from lowwater_extractor.sources.oracle.redo.layout import VECTOR_HEAD
from lowwater_extractor.sources.oracle.redo.scan import Damage, Ints, Payload, Records


class Wanted(NamedTuple):
    """Which vectors are picked: by opcode the kind (0: not picked), and for a 5.1 by the number of its object."""

    kinds: NDArray[np.uint8]
    #: by the last 16 bits of the object's number: not 0 if it may be captured
    objects: NDArray[np.uint8]
    #: objects above this number may be captured, too
    newest: int


class VectorColumns(NamedTuple):
    """Vectors in payload order. The columns are the payload's memory: they are valid until the payload is reloaded."""

    payload: Payload
    #: index of the record that contains the vector
    record: Ints
    at: Ints
    stop: Ints
    #: position of the first field, and number of fields
    first: Ints
    fields: Ints
    #: layer << 8 | code
    opcode: Ints
    container: Ints
    #: an `opcodes.VectorKind`
    kind: NDArray[np.uint8]
    #: of a row: index of the 5.1 before it. Of a 5.1: position of its second field, which has the object. Of a 5.6 or
    #: 5.11: position of the first of the rows before it that have no 5.1. -1: there is none, or it cannot be read
    before: Ints

    def word(self, rows: Ints, number: int) -> Ints:
        """A 16-bit word of the vector's header."""
        found: Ints = self.payload.u16[(self.at[rows] >> 1) + number].astype(np.int64)
        return found

    def size(self, rows: Ints, field: int) -> Ints:
        """The size of this field, counted from 0; 0 if there is none."""
        return np.where(self.fields[rows] > field, self.word(rows, VECTOR_HEAD // 2 + 1 + field), 0)

    def typ(self, rows: Ints) -> NDArray[np.uint8]:
        return np.asarray(self.payload.raw[self.at[rows] + 21])

    def field(self, rows: Ints, number: int) -> Ints:
        """The position of field `number`, counted from 0; the field must exist."""
        at = self.first[rows].copy()
        for before in range(number):
            at += self.size(rows, before) + 3 & ~3
        return at


def pick_vectors(payload: Payload, records: Records, wanted: Wanted) -> VectorColumns | Damage:
    room = payload.pick_room
    opened, wrong = np.full(walk.OPEN, -1, np.int64), np.zeros(1, np.int64)
    count = walk.pick_vectors(payload, records, wanted, room, opened.data, wrong.data)
    if count < 0:
        return Damage(int(wrong[0]), walk.DAMAGE[count])
    return VectorColumns(payload, *(column[:count] for column in room))  # type: ignore[arg-type]  # types are kept
