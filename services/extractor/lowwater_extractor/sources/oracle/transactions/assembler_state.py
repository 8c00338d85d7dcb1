"""What the assembler keeps: the rows of an open transaction, and a thread's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.sources.oracle.redo.events import Event, Lwn
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.rows.row_changes import changes_max
from lowwater_extractor.sources.oracle.transactions.rollback import Undone, undo_of
from lowwater_extractor.sources.oracle.transactions.transaction_buffer import OpenRows
from lowwater_extractor.spill import SpillSpace

_T = TypeVar("_T")
_NOWHERE = Place(0, 0)


class Branch(OpenRows):
    """The rows of one open transaction. `append` is the list's own method: it is called for each."""

    __slots__ = ("append", "ddl", "place", "spilled_changes")

    def __init__(self, place: Place, scn: int) -> None:
        super().__init__(scn)
        #: of its first record
        self.place = place
        self.append: Callable[[bytes], None] = self.rows.append
        #: records of DDL that are followed once it has committed
        self.ddl: list[bytes] = []
        #: how many changes those rows can become
        self.spilled_changes = 0

    def undo(self, undone: Undone) -> bytes | None:
        """Take the newest row back that fits. None: there is none."""
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
        """No less than there will be: a row in several pieces is counted by its pieces."""
        return self.spilled_changes + sum(map(changes_max, self.rows))


@dataclass(slots=True)
class ThreadAssembly:
    """How far one thread is read, and what is open in it."""

    number: int
    #: what lies before this place was read and handed over before the restart
    read_until: Place
    #: commits at or below this SCN lie before the start of capture
    since: int
    #: what began below this SCN was over at the start of capture
    low: int = 0
    #: the mark that `read_until` stands for
    mark_then: int = 0
    #: what was open in this thread then: of all that is read again, only this counts
    open_then: set[int] = field(default_factory=set)
    #: every record of this thread at or below this SCN has been processed in this run
    mark: int = 0
    #: above every SCN of this thread that was processed in this run
    upper: int = 0
    caught_up: bool = False
    #: by xid, in the order of their first records here
    branches: dict[int, Branch] = field(default_factory=dict)
    #: undo segment and slot (an xid without its sequence) → the transaction that began there last
    slots: dict[int, int] = field(default_factory=dict)
    #: transactions of other threads that have undo records here → the first of them
    touched: dict[int, Place] = field(default_factory=dict)
    #: suspended at a record of this SCN, which waits for another thread
    waiting: int | None = None
    awaited: frozenset[int] = frozenset()
    lwn: Lwn | None = None
    lwn_place: Place = _NOWHERE
    events: Iterator[Event] = field(default_factory=lambda: iter(()))
    #: where in the LWN the event is that is being processed
    at: int = 0
    last_order: Order = ORDER_MIN

    def here(self) -> Place:
        return self.lwn_place._replace(record=self.at)

    def open_now(self) -> list[int]:
        """The transactions that have records here and are not closed."""
        return list({**self.branches, **self.touched, **dict.fromkeys(self.open_then)})

    def first_open(self) -> list[Place]:
        """The first records of the oldest transactions that are open here."""
        places = [branch.place for branch in _first(self.branches)]
        return places + list(_first(self.touched))

    def open_in_slot(self, slot: int, scn: int) -> int | None:
        """The transaction of this slot that was open at `scn`: the slot may have been taken again since."""
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
