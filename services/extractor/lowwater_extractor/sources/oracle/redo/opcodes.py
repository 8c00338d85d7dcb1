"""Which opcodes matter, and the explicit list of those that cannot, each with the reason.

What is on neither side is unknown: on a captured object, or among the transaction opcodes, it stops the source.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """What the scan does with a vector. PASSED has to be 0: it is what costs nothing."""

    PASSED = 0
    #: 5.1: names the object that the vector behind it changes
    UNDO = 1
    #: 11.x: belongs to the 5.1 before it, or to the 5.6 or 5.11 behind it
    ROW = 2
    BEGIN = 3
    COMMIT = 4
    #: 5.6, 5.11: the vector before it took back one change
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
#: blocks that were loaded whole; ranges of blocks that were loaded without logging
DIRECT_LOAD, INVALIDATION, UNLOGGED_LOAD = 0x1301, 0x1302, 0x1304

#: the undo of a table row, as `opc` of a 5.1 has it
ROW_UNDO = 0x0B01

INSERT, DELETE, LOCK, UPDATE, OVERWRITE, FORWARD = 0x0B02, 0x0B03, 0x0B04, 0x0B05, 0x0B06, 0x0B08
DROP_COLUMN = 0x0B0E
INSERT_MANY, DELETE_MANY, SUPPLEMENT, LOB_SUPPLEMENT, COMPRESSED = 0x0B0B, 0x0B0C, 0x0B10, 0x0B11, 0x0B16

#: the row opcodes that are handed on; what they mean for a row is decided where rows are made. Locks and
#: supplements too: their undo is written like that of any other change, and would else cancel the wrong one.
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
    UNDO: Kind.UNDO,
    BEGIN: Kind.BEGIN,
    COMMIT: Kind.COMMIT,
    UNDONE_RECORD: Kind.UNDONE,
    UNDONE_BLOCK: Kind.UNDONE,
    STATE: Kind.STATE,
    SESSION_START: Kind.SESSION,
    SESSION_ON: Kind.SESSION,
    DDL: Kind.DDL,
    DIRECT_LOAD: Kind.LOAD,
    INVALIDATION: Kind.LOAD,
    UNLOGGED_LOAD: Kind.LOAD,
}

#: layer → why nothing of it can change a row of a captured table
PASSED_LAYERS = {
    4: "cleanout and formatting of blocks: the rows in them stay what they are",
    6: "control file",
    10: "index entries follow their rows; index-organised tables are refused by the dictionary",
    12: "cluster blocks: their rows come as layer 11",
    13: "space inside a segment: free lists, bitmaps, new blocks",
    14: "extents of a segment; TRUNCATE is announced by its DDL",
    15: "rollback that was put off for an offline tablespace: the undo itself comes as 5.6 or 5.11",
    16: "row cache",
    17: "recovery markers: hot backup, files, threads",
    18: "images of whole blocks for backup and recovery, with no change in them",
    20: "compatibility segment",
    21: "local LOB blocks of old databases: LOBs out of line are not taken from redo",
    22: "space inside a tablespace",
    23: "blocks that were written to their file, or read from it",
    26: "LOBs out of line: they are marked as unchanged, with the reason",
}

#: opcodes of layers that do matter → why these do not
PASSED = {
    0x0503: "roll-out of a begin: from the time before undo segments were made by the database",
    0x0505: "format of a new undo segment",
    0x0507: "the begin in a transaction table: it is announced by its 5.2",
    0x0508: "a transaction marked as dead: its rollback comes as 5.6, 5.11 and 5.4",
    0x0509: "extension of an undo segment, rolled back",
    0x050A: "extension of an undo segment, rolled back in its header",
    0x050D: "conversion of an undo segment to another version",
    0x050E: "storage parameters of an undo segment",
    0x0518: "an undo block written anew: the same records",
    0x1802: "companion of a direct load: the load is judged by its layer 19",
    0x1804: "LogMiner's companion of a commit, which is announced by its 5.4",
    0x1806: "companion of a direct load: the load is judged by its layer 19",
    0x180A: "LogMiner's own note on a session",
}


def kinds() -> NDArray[np.uint8]:
    """For each of the 65536 opcodes (layer << 8 | code) its kind."""
    table = np.full(1 << 16, Kind.UNKNOWN, np.uint8)
    for layer in PASSED_LAYERS:
        table[layer << 8 : layer + 1 << 8] = Kind.PASSED
    table[list(PASSED)] = Kind.PASSED
    table[0x0B00:0x0C00] = Kind.ROW
    for opcode, kind in _KINDS.items():
        table[opcode] = kind
    return table


#: what `opc` of a captured object's 5.1 may say besides a row's undo
PASSED_UNDO = {
    0x0507: "a begin without a change",
    **{layer << 8: why for layer, why in PASSED_LAYERS.items()},
}


def undo_passed(opc: int) -> bool:
    """Can a 5.1 of a captured object with this operation be passed over?"""
    return opc in PASSED_UNDO or opc & 0xFF00 in PASSED_UNDO
