"""V$LOGMNR_CONTENTS: the query, the meaning of each operation code, and the joining of statements in several rows.

An operation code that is not listed here stops the source, if it is on a captured table.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import xid_of


class Row(NamedTuple):
    """One row of the view, in the order of `COLUMNS`."""

    scn: Scn
    thread: int
    operation: int
    usn: int
    slot: int
    sequence: int
    parent_usn: int | None
    parent_slot: int | None
    parent_sequence: int | None
    rollback: int
    rs_id: str
    ssn: int
    csf: int
    status: int
    info: str | None
    owner: str | None
    table: str | None
    object: int | None
    row_id: str | None
    time: dt.datetime
    sql: str | None
    container: int

    @property
    def xid(self) -> int:
        return xid_of(self.container, self.usn, self.slot, self.sequence)

    def position(self) -> str:
        return f"SCN {self.scn}, {self.rs_id.strip()}.{self.ssn}"


COLUMNS = (
    "SCN, THREAD#, OPERATION_CODE, XIDUSN, XIDSLT, XIDSQN, PXIDUSN, PXIDSLT, PXIDSQN, ROLLBACK, RS_ID, SSN, CSF, "
    "STATUS, INFO, SEG_OWNER, TABLE_NAME, DATA_OBJ#, ROW_ID, TIMESTAMP, SQL_REDO, NVL(SRC_CON_ID, 0)"
)

#: the sequence in a row that undoes a change of a transaction which began before the session's first SCN
SEQUENCE_UNKNOWN = 0xFFFF_FFFF
#: LogMiner's owner for objects that are not in its dictionary
OWNER_UNKNOWN = "UNKNOWN"


class Action(Enum):
    #: a row of a table
    CHANGE = auto()
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    DDL = auto()
    #: identifies the row and the column of the following pieces of a LOB or an XML document
    LOCATOR = auto()
    #: a piece of a LOB or an XML document, after its LOCATOR
    PIECE = auto()
    #: not relevant
    PASS = auto()
    #: redo is missing
    GAP = auto()
    #: LogMiner cannot decode the change
    UNSUPPORTED = auto()


#: OPERATION_CODE → the action, and the name or reason
OPERATIONS: dict[int, tuple[Action, str]] = {
    0: (Action.PASS, "INTERNAL: internal maintenance (space, indexes, cleanout); row changes have their own rows"),
    1: (Action.CHANGE, "INSERT"),
    2: (Action.CHANGE, "DELETE"),
    3: (Action.CHANGE, "UPDATE"),
    5: (Action.DDL, "DDL"),
    6: (Action.BEGIN, "START"),
    7: (Action.COMMIT, "COMMIT"),
    9: (Action.LOCATOR, "SELECT_LOB_LOCATOR"),
    10: (Action.PIECE, "LOB_WRITE"),
    11: (Action.PIECE, "LOB_TRIM"),
    25: (Action.PASS, "SELECT_FOR_UPDATE: a lock, no change"),
    28: (Action.PIECE, "LOB_ERASE, the code in the manual"),
    29: (Action.PIECE, "LOB_ERASE, the code in real logs"),
    34: (Action.GAP, "MISSING_SCN"),
    36: (Action.ROLLBACK, "ROLLBACK"),
    68: (Action.LOCATOR, "XML DOC BEGIN"),
    70: (Action.PIECE, "XML DOC WRITE"),
    71: (Action.PIECE, "XML DOC END"),
    255: (Action.UNSUPPORTED, "UNSUPPORTED"),
}
#: read for every transaction, whatever it changes
_ENDS = sorted(n for n, (a, _) in OPERATIONS.items() if a in (Action.BEGIN, Action.COMMIT, Action.ROLLBACK, Action.GAP))
_PASSED = sorted(n for n, (a, _) in OPERATIONS.items() if a is Action.PASS)

OPS = {1: "c", 2: "d", 3: "u"}
#: what a row with ROLLBACK = 1 cancels
UNDONE = {"c": "d", "d": "c", "u": "u"}

_RS_ID = re.compile(r"\s*0x([0-9a-fA-F]+)\.([0-9a-fA-F]+)\.([0-9a-fA-F]+)\s*")
#: a log of 2**28 blocks, a block of 2**12 bytes: the maximum sizes in Oracle
_BLOCK_BITS, _BYTE_BITS = 28, 12


def query(owners: Sequence[str], *, container: bool) -> tuple[str, dict[str, str]]:
    """The query for relevant rows, and its binds apart from `low` and `high`.

    No ORDER BY: the view returns rows in redo order, and the pieces of a statement one after the other. Rows of tables
    that are not in LogMiner's dictionary are included: they may be captured tables, by object number.
    """
    binds = {f"owner{at}": owner for at, owner in enumerate(owners)}
    names = ", ".join(f":{name}" for name in binds)
    ends, passed = ", ".join(map(str, _ENDS)), ", ".join(map(str, _PASSED))
    of_container = " AND SRC_CON_NAME = :container" if container else ""
    sql = (
        f"SELECT {COLUMNS} FROM V$LOGMNR_CONTENTS WHERE SCN > :low AND SCN <= :high{of_container} AND "
        f"(OPERATION_CODE IN ({ends}) OR OPERATION_CODE NOT IN ({passed}) AND "
        f"(SEG_OWNER IN ({names}) OR SEG_OWNER = '{OWNER_UNKNOWN}' OR SEG_OWNER IS NULL))"
    )
    return sql, binds


def rows_of(raw: Iterable[tuple[Any, ...]]) -> list[Row]:
    return list(map(Row._make, raw))


def place_of(row: Row) -> int:
    """The position in the thread's redo: log, block and byte as one number that orders rows; never 0.

    RS_ID is the address of the redo record; every commit has its own record, so positions of commits are unique.
    """
    found = _RS_ID.fullmatch(row.rs_id)
    if found is None:
        raise LogUnknownError(f"RS_ID {row.rs_id!r} is not log.block.byte", thread=row.thread, position=row.position())
    log, block, byte = (int(part, 16) for part in found.groups())
    if block >> _BLOCK_BITS or byte >> _BYTE_BITS or log >> 24:
        raise LogUnknownError(f"RS_ID {row.rs_id!r} does not fit", thread=row.thread, position=row.position())
    return log << (_BLOCK_BITS + _BYTE_BITS) | block << _BYTE_BITS | byte + 1


def action_of(row: Row) -> Action:
    """The action for a row of a captured table, or of no table. Raises if it cannot be processed."""
    known = OPERATIONS.get(row.operation)
    if known is None:
        raise LogUnknownError(
            f"LogMiner's operation {row.operation} on {row.owner}.{row.table} is unknown",
            thread=row.thread,
            position=row.position(),
            hint="report it with the database's version; the transaction can be skipped by name",
        )
    action, name = known
    if action is Action.GAP:
        raise LogGapError(
            f"LogMiner reports missing redo ({name}): {row.info or 'no reason given'}",
            thread=row.thread,
            position=row.position(),
            hint="a log is damaged or gone: restore it, and resume the source",
        )
    if action is Action.UNSUPPORTED or (row.status and action is Action.CHANGE):
        raise LogUnknownError(
            f"LogMiner cannot decode a change of {row.owner}.{row.table} "
            f"({name}, STATUS {row.status}): {row.info or 'no reason given'}",
            thread=row.thread,
            position=row.position(),
            hint="capture the source by redo files; a table that was altered since is read again after a restart",
        )
    return action


class Joiner:
    """Joins rows whose SQL continues in the next row (CSF = 1). A batch may end between any two rows."""

    def __init__(self) -> None:
        self._first: Row | None = None
        self._pieces: list[str] = []

    @property
    def is_inside(self) -> bool:
        return self._first is not None

    def whole(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            first = self._first
            if first is None:
                if not row.csf:
                    yield row
                else:
                    self._first, self._pieces = row, [row.sql or ""]
                continue
            if (row.rs_id, row.ssn, row.thread, row.scn) != (first.rs_id, first.ssn, first.thread, first.scn):
                raise LogCorruptError(
                    "a statement continues (CSF = 1), but the next row belongs to another statement",
                    thread=first.thread,
                    position=first.position(),
                )
            self._pieces.append(row.sql or "")
            if not row.csf:
                self._first = None
                yield first._replace(sql="".join(self._pieces), csf=0)
