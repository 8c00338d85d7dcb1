"""A change of a row before a transaction writes it, and what it leaves behind; the numbers of the operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

CONTAINER = 3
CONTAINER_UID = 1385559638
#: row operations: the code of layer 11, and what undoes it
INSERT, DELETE, LOCK, UPDATE, OVERWRITE, FORWARD = 2, 3, 4, 5, 6, 8
INSERT_MANY, DELETE_MANY, SUPPLEMENT = 11, 12, 16
WAY_BACK = {2: 3, 3: 2, 5: 5, 6: 6, 8: 8, 11: 12, 12: 11}
#: the same of layer 10: an index entry is inserted, deleted
INDEX_INSERT, INDEX_DELETE = 2, 4
INDEX_BACK = {INDEX_INSERT: INDEX_DELETE, INDEX_DELETE: INDEX_INSERT}

#: of a KDO: undo, and whether it is a change or a way back
KDO_UNDO, KDO_REDO, KDO_ROLLBACK = 0x20, 1, 2

#: flags of 5.19, 5.20 and 24.4: space management, by the database itself
SESSION_SYSTEM = 2 | 4
#: flag of 5.4
ROLLED_BACK = 0x04

#: records in one undo block, less than what its one byte could count
UNDO_RECORDS_MAX = 96
#: undo segment n: class of its header and of its blocks
UNDO_HEADER_CLASS, UNDO_CLASS = 15, 16


class Segment(NamedTuple):
    """Where a table or an index lies."""

    object_id: int
    data_object_id: int
    tablespace: int
    file: int
    header_dba: int
    #: u16 at 6 of a vector's head: 1 in a smallfile tablespace
    file_kind: int = 1


class Pair(NamedTuple):
    """One change of a row piece, without what its transaction adds: two KDOs and the fields behind them."""

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
    #: row changes that this one completes: pieces of one row count once, rows of a multi-row change each
    changes: int = 1
    #: 11: a table's row, 10: an index entry
    layer: int = 11


class Undo(NamedTuple):
    """What a transaction needs to take one change back: kept for as long as it is open, so not more than that."""

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
    """A transaction's slot: who it is in the log, and where its next undo record goes."""

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
    #: the data block that was changed last, and the undo record of that
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
    # of an index entry the way back only names its place
    return Undo(pair.segment, pair.layer, pair.code, pair.dba, ktb, (6,), pair.redo[:8], first, pair.changes)
