"""The assembler's state: the rows of open transactions, and the state of each thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.sources.oracle.redo.events import Event, Lwn
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.rows.row_changes import changes_max
from lowwater_extractor.sources.oracle.scn import LOWEST, Scn
from lowwater_extractor.sources.oracle.transactions.rollback import Undone, undo_of
from lowwater_extractor.sources.oracle.transactions.transaction_buffer import OpenRows
from lowwater_extractor.spill import SpillSpace

_T = TypeVar("_T")
_NOWHERE = Place(0, 0)


class Branch(OpenRows):
    """The rows of one open transaction. `append` is the list's bound method, because it is called for each row."""

    __slots__ = ("append", "ddl", "place", "spilled_changes")

    def __init__(self, place: Place, scn: Scn) -> None:
        super().__init__(scn)
        #: position of its first record
        self.place = place
        self.append: Callable[[bytes], None] = self.rows.append
        #: DDL records, which take effect at the commit
        self.ddl: list[bytes] = []
        #: upper bound of the number of changes of the spilled rows
        self.spilled_changes = 0

    def undo(self, undone: Undone) -> bytes | None:
        """Remove and return the newest row that matches. None: there is none."""
        end = len(self.rows)
        while True:
            for at in range(end - 1, -1, -1):
                if undo_of(self.rows[at]) == undone:
                    return self.rows.pop(at)
            if self.spilled is None or not self.spilled.rows:
                return None
            older = self.spilled.take_back()[0]
            self.spilled_changes -= sum(map(changes_max, older))
            self.rows[:0] = older
            end = len(older)

    def spill(self, space: SpillSpace) -> None:
        self.spilled_changes += sum(map(changes_max, self.rows))
        super().spill(space)

    def changes_max(self) -> int:
        """Upper bound of the number of changes: a row in several pieces counts once per piece."""
        return self.spilled_changes + sum(map(changes_max, self.rows))


@dataclass(slots=True)
class ThreadAssembly:
    """How far one thread has been read, and its open transactions."""

    number: int
    #: records before this position were processed before the restart
    read_until: Place
    #: commits at or below this SCN are before the start of capture
    since: Scn
    #: transactions that began below this SCN had ended at the start of capture
    low: Scn = LOWEST
    #: the mark at `read_until`
    mark_then: int = 0
    #: transactions that were open in this thread at `read_until`: only their records are read again
    open_then: set[int] = field(default_factory=set)
    #: every record of this thread at or below this SCN has been processed in this run
    mark: Scn = LOWEST
    #: above every SCN of this thread that was processed in this run
    upper: int = 0
    caught_up: bool = False
    #: open transactions by xid, in the order of their first records in this thread
    branches: dict[int, Branch] = field(default_factory=dict)
    #: undo segment and slot (an xid without its sequence) → the transaction that began in it last
    slots: dict[int, int] = field(default_factory=dict)
    #: transactions of other threads with undo records in this thread → position of the first
    touched: dict[int, Place] = field(default_factory=dict)
    #: suspended at a record of this SCN, which waits for another thread
    waiting: Scn | None = None
    awaited: frozenset[int] = frozenset()
    lwn: Lwn | None = None
    lwn_place: Place = _NOWHERE
    events: Iterator[Event] = field(default_factory=lambda: iter(()))
    #: position in the LWN of the event that is being processed
    at: int = 0
    last_order: Order = ORDER_MIN

    def here(self) -> Place:
        return self.lwn_place._replace(record=self.at)

    def open_now(self) -> list[int]:
        """The open transactions that have records in this thread."""
        return list({**self.branches, **self.touched, **dict.fromkeys(self.open_then)})

    def first_open(self) -> list[Place]:
        """Positions of the first records of the oldest open transactions."""
        places = [branch.place for branch in _first(self.branches)]
        return places + list(_first(self.touched))

    def open_in_slot(self, slot: int, scn: Scn) -> int | None:
        """The transaction of this slot that was open at `scn`: the slot may have been reused since."""
        found = None
        for xid, branch in self.branches.items():
            if slot_of(xid) == slot and branch.scn <= scn:
                found = xid
        return found


def slot_of(xid: int) -> int:
    return xid >> 32 << 32


def _first(values: dict[int, _T]) -> list[_T]:
    for value in values.values():
        return [value]
    return []
