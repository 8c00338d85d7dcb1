"""What the cluster remembers of its transactions: those that are open, and the history that a checker compares with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lowwater_extractor.sources.oracle.thread_snapshot import txid_text
from lowwater_extractor.sources.simulated_rac.pairs import Undo, UndoSegment

#: an end that is in a buffer: (thread, SCN, time in µs, committed)
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
    """A transaction in one thread: for the log it is one of its own."""

    xid: int
    thread: int
    segment: UndoSegment
    owner: Transaction
    #: the changes in the log and in the buffer that stand
    undo: list[Undo] = field(default_factory=list)
    closing: Closing | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    xid: int
    home: int
    #: of the database itself: it changes no table that is captured
    system: bool
    xa: bool
    #: threads that hold records of it, in the order in which they came
    threads: list[int] = field(default_factory=list)
    branches: dict[int, Branch] = field(default_factory=dict)
    #: each with the thread that wrote it
    changes: list[tuple[int, LoggedChange]] = field(default_factory=list)
    last_thread: int = 0
    prepared: bool = False
    #: threads whose instance stopped and took a part of it along: it can only be rolled back
    doomed_by: set[int] = field(default_factory=set)
    closing: Closing | None = None

    @property
    def txid(self) -> str:
        """Of its branch in its own thread."""
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
