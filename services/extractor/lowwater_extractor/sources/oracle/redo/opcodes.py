"""The opcodes that are read, and the explicit list of those that are skipped, each with the reason.

All other opcodes are unknown: on a captured object, or among the transaction opcodes, they stop the source.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class VectorKind(IntEnum):
    """How a vector is processed. PASSED (skipped) has to be 0."""

    PASSED = 0
    #: 5.1: contains the object that the vector after it changes
    UNDO = 1
    #: 11.x: belongs to the 5.1 before it, or to the 5.6 or 5.11 after it
    ROW = 2
    BEGIN = 3
    COMMIT = 4
    #: 5.6, 5.11: the vector before it undid one change
    UNDONE = 5
    STATE = 6
    SESSION = 7
    DDL = 8
    LOAD = 9
    UNKNOWN = 10


BEGIN, COMMIT, UNDO = 0x0502, 0x0504, 0x0501
UNDONE_RECORD, UNDONE_BLOCK = 0x0506, 0x050B
STATE = 0x050C
SESSION_START, SESSION_ON = 0x0513, 0x0514
DDL = 0x1801
#: images of loaded blocks; ranges of blocks that were loaded without logging
DIRECT_LOAD, INVALIDATION, UNLOGGED_LOAD = 0x1301, 0x1302, 0x1304

#: `opc` of a 5.1 with the undo of a table row
ROW_UNDO = 0x0B01

INSERT, DELETE, LOCK, UPDATE, OVERWRITE, FORWARD = 0x0B02, 0x0B03, 0x0B04, 0x0B05, 0x0B06, 0x0B08
DROP_COLUMN = 0x0B0E
INSERT_MANY, DELETE_MANY, SUPPLEMENT, LOB_SUPPLEMENT, COMPRESSED = 0x0B0B, 0x0B0C, 0x0B10, 0x0B11, 0x0B16

#: The row opcodes that become events; they are interpreted when rows are decoded. Locks and supplements are included:
#: their undo is written like that of any other change, and would otherwise cancel the wrong change.
ROWS = frozenset(
    (
        INSERT,
        DELETE,
        LOCK,
        UPDATE,
        OVERWRITE,
        FORWARD,
        INSERT_MANY,
        DELETE_MANY,
        DROP_COLUMN,
        SUPPLEMENT,
        LOB_SUPPLEMENT,
        COMPRESSED,
    )
)

_KINDS = {
    UNDO: VectorKind.UNDO,
    BEGIN: VectorKind.BEGIN,
    COMMIT: VectorKind.COMMIT,
    UNDONE_RECORD: VectorKind.UNDONE,
    UNDONE_BLOCK: VectorKind.UNDONE,
    STATE: VectorKind.STATE,
    SESSION_START: VectorKind.SESSION,
    SESSION_ON: VectorKind.SESSION,
    DDL: VectorKind.DDL,
    DIRECT_LOAD: VectorKind.LOAD,
    INVALIDATION: VectorKind.LOAD,
    UNLOGGED_LOAD: VectorKind.LOAD,
}

#: layer → why it cannot change a row of a captured table
PASSED_LAYERS = {
    4: "cleanout and formatting of blocks: the rows in them are unchanged",
    6: "control file",
    10: "index entries follow their rows; index-organised tables are refused by the dictionary",
    12: "cluster blocks: their rows are in layer 11",
    13: "space inside a segment: free lists, bitmaps, new blocks",
    14: "extents of a segment; TRUNCATE has its own DDL record",
    15: "rollback that was deferred for an offline tablespace: the undo itself is a 5.6 or 5.11",
    16: "row cache",
    17: "recovery markers: hot backup, files, threads",
    18: "images of whole blocks for backup and recovery, with no change in them",
    20: "compatibility segment",
    21: "local LOB blocks of old databases: LOBs out of line are not read from redo",
    22: "space inside a tablespace",
    23: "blocks that were written to their file, or read from it",
    26: "LOBs out of line: they are marked as unchanged, with the reason",
}

#: opcodes of other layers → why they can be skipped
PASSED = {
    0x0503: "roll-out of a begin: from before automatic undo segments",
    0x0505: "format of a new undo segment",
    0x0507: "the begin in a transaction table: it has its own 5.2",
    0x0508: "a transaction marked as dead: its rollback is in 5.6, 5.11 and 5.4",
    0x0509: "extension of an undo segment, rolled back",
    0x050A: "extension of an undo segment, rolled back in its header",
    0x050D: "conversion of an undo segment to another version",
    0x050E: "storage parameters of an undo segment",
    0x0518: "an undo block rewritten: the same records",
    0x1802: "companion of a direct load: the load is read from its layer 19",
    0x1804: "LogMiner's companion of a commit, which has its own 5.4",
    0x1806: "companion of a direct load: the load is read from its layer 19",
    0x180A: "LogMiner's note on a session",
}


def kinds() -> NDArray[np.uint8]:
    """The kind of each of the 65536 opcodes (layer << 8 | code)."""
    table = np.full(1 << 16, VectorKind.UNKNOWN, np.uint8)
    for layer in PASSED_LAYERS:
        table[layer << 8 : layer + 1 << 8] = VectorKind.PASSED
    table[list(PASSED)] = VectorKind.PASSED
    table[0x0B00:0x0C00] = VectorKind.ROW
    for opcode, kind in _KINDS.items():
        table[opcode] = kind
    return table


#: `opc` of a captured object's 5.1, apart from a row's undo, that can be skipped
PASSED_UNDO = {
    0x0507: "a begin without a change",
    **{layer << 8: why for layer, why in PASSED_LAYERS.items()},
}


def undo_passed(opc: int) -> bool:
    """Whether a 5.1 of a captured object with this operation can be skipped."""
    return opc in PASSED_UNDO or opc & 0xFF00 in PASSED_UNDO
