"""The cluster's records of its transactions: the open ones, and the history that a checker compares with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lowwater_devkit.simulated_rac.redo.pairs import Undo, UndoSegment
from lowwater_extractor.sources.oracle.thread_snapshot import txid_text

#: an end in a log buffer: (thread, SCN, time in µs, committed)
Closing = tuple[int, int, int, bool]


class LoggedChange(NamedTuple):
    op: str
    table: str
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


@dataclass(slots=True)
class Committed:
    """One line of the history."""

    xid: int
    #: the thread whose log has the commit
    thread: int
    scn: int
    time_us: int
    system: bool
    changes: list[LoggedChange]

    @property
    def txid(self) -> str:
        return txid_text(self.xid)


@dataclass(slots=True, eq=False)
class Branch:
    """The part of a transaction in one thread: in the log it is a transaction of its own."""

    xid: int
    thread: int
    segment: UndoSegment
    owner: Transaction
    #: the changes in the log and in the buffer that have not been undone
    undo: list[Undo] = field(default_factory=list)
    closing: Closing | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    xid: int
    home: int
    #: a system transaction: it changes no captured table
    system: bool
    xa: bool
    #: threads with records of it, in the order of their first records
    threads: list[int] = field(default_factory=list)
    branches: dict[int, Branch] = field(default_factory=dict)
    #: each with the thread that wrote it
    changes: list[tuple[int, LoggedChange]] = field(default_factory=list)
    last_thread: int = 0
    prepared: bool = False
    #: threads whose instance crashed with a part of it: it can only be rolled back
    doomed_by: set[int] = field(default_factory=set)
    closing: Closing | None = None

    @property
    def txid(self) -> str:
        """The txid of its branch in its home thread."""
        return txid_text(self.xid)


def history_line(entry: Committed) -> str:
    changes = [[c.op, c.table, c.before, c.after] for c in entry.changes]
    line = {
        "txid": entry.txid,
        "thread": entry.thread,
        "scn": entry.scn,
        "time_us": entry.time_us,
        "system": entry.system,
        "changes": changes,
    }
    return json.dumps(line, default=str) + "\n"
