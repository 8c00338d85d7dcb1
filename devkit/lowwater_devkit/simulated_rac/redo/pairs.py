"""A row change and its undo, and the numbers of the operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

CONTAINER = 3
CONTAINER_UID = 1385559638
#: row operations: the codes of layer 11, and the codes that undo them
INSERT, DELETE, LOCK, UPDATE, OVERWRITE, FORWARD = 2, 3, 4, 5, 6, 8
INSERT_MANY, DELETE_MANY, SUPPLEMENT = 11, 12, 16
WAY_BACK = {2: 3, 3: 2, 5: 5, 6: 6, 8: 8, 11: 12, 12: 11}
#: the same for layer 10: an index entry is inserted, deleted
INDEX_INSERT, INDEX_DELETE = 2, 4
INDEX_BACK = {INDEX_INSERT: INDEX_DELETE, INDEX_DELETE: INDEX_INSERT}

#: flags of a KDO: undo; a change, or a rollback
KDO_UNDO, KDO_REDO, KDO_ROLLBACK = 0x20, 1, 2

#: flags of 5.19, 5.20 and 24.4: space management by the database
SESSION_SYSTEM = 2 | 4
#: flag of 5.4
ROLLED_BACK = 0x04

#: records in one undo block; less than the limit of its one-byte count
UNDO_RECORDS_MAX = 96
#: undo segment n: class of its header and of its blocks
UNDO_HEADER_CLASS, UNDO_CLASS = 15, 16


class Segment(NamedTuple):
    """The segment of a table or an index."""

    object_id: int
    data_object_id: int
    tablespace: int
    file: int
    header_dba: int
    #: u16 at 6 of a vector's head: 1 in a smallfile tablespace
    file_kind: int = 1


class Pair(NamedTuple):
    """One change of a row piece, without the fields of its transaction: two KDOs and the fields after them."""

    segment: Segment
    #: of layer 11
    code: int
    dba: int
    redo_sizes: Sequence[int]
    redo: bytes
    undo_sizes: Sequence[int]
    undo: bytes
    #: the supplemental group of 5.1
    more_sizes: Sequence[int] = ()
    more: bytes = b""
    #: number of row changes: pieces of one row count once, a multi-row change counts each row
    changes: int = 1
    #: 11: a table's row, 10: an index entry
    layer: int = 11


class Undo(NamedTuple):
    """The data to undo one change. It is kept for every change of an open transaction, so it is small."""

    segment: Segment
    layer: int
    code: int
    dba: int
    ktb: bytes
    sizes: Sequence[int]
    fields: bytes
    #: it was the first record of its undo block
    first: bool
    changes: int


@dataclass(slots=True, eq=False)
class UndoSegment:
    """A transaction's undo slot: its identity in the log, and the position of its next undo record."""

    usn: int
    slot: int
    wrap: int
    file: int
    header_dba: int
    #: the undo block, its sequence, the last record in it
    dba: int
    sequence: int
    record: int
    xid: bytes
    #: flags of its session
    flags: int = 0
    begin_scn: int = -1
    #: the data block that was changed last, and the address of its undo record
    block: int = -1
    uba: bytes = b""


class Session(NamedTuple):
    serial: int = 0xCC81
    number: int = 56
    audit: int = 30014
    user: str = "BANK"
    machine: str = "simulated"


def undo_of(pair: Pair, ktb: bytes, first: bool) -> Undo:
    if pair.layer == 11:
        return Undo(pair.segment, 11, pair.code, pair.dba, ktb, pair.undo_sizes, pair.undo, first, pair.changes)
    # the undo of an index entry has only its place
    return Undo(pair.segment, pair.layer, pair.code, pair.dba, ktb, (6,), pair.redo[:8], first, pair.changes)
