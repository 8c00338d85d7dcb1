"""What the cluster remembers of its transactions: the history that a checker compares with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class LoggedChange(NamedTuple):
    op: str
    table: str
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


@dataclass(slots=True)
class Committed:
    """One line of the history: what a checker compares with."""

    xid: int
    thread: int
    scn: int
    time_us: int
    system: bool
    changes: list[LoggedChange]

    @property
    def txid(self) -> str:
        return f"{self.xid:016x}"


@dataclass(slots=True)
class Transaction:
    xid: int
    home: int
    system: bool
    xa: bool
    #: threads that hold records of it, in the order in which they came
    threads: list[int]
    #: each with the thread that wrote it
    changes: list[tuple[int, LoggedChange]] = field(default_factory=list)
    last_thread: int = 0
    prepared: bool = False
    #: threads whose instance stopped and took a part of it along: it can only be rolled back
    doomed_by: set[int] = field(default_factory=set)
    #: set once the closing record is in a buffer: (thread, SCN, time, committed)
    closing: tuple[int, int, int, bool] | None = None


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
