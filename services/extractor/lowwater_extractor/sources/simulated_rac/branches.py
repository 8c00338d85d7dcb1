"""What the assembler keeps: a transaction's part in one thread, and a thread's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

from lowwater.positions import ORDER_MIN, Order
from lowwater_extractor.sources.simulated_rac.changes import Rows
from lowwater_extractor.sources.simulated_rac.log import Lwn, Place
from lowwater_extractor.spill import SpillFile, SpillSpace

SEGMENT_BYTES = 1 << 20

_T = TypeVar("_T")
_NOWHERE = Place(0, 0)

Record = tuple[int, int, int, int]


class Branch:
    """The records of one transaction in one thread that stand so far.

    `append` is the list's own method: the assembler calls it for each row. Of a transaction that is not to be
    published nothing is kept, and `append` is that of a queue of length 0.
    """

    __slots__ = ("append", "kept", "place", "rows", "scns", "spilled")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.kept = True
        self.rows: list[bytes] = []
        self.append: Callable[[bytes], None] = self.rows.append
        #: only where the rows have to be merged with those of other threads
        self.scns: list[int] | None = None
        self.spilled: SpillFile | None = None

    @classmethod
    def special(cls, place: Place, *, kept: bool, xa: bool) -> Branch:
        """One that is not kept, or that is in several threads."""
        branch = cls(place)
        if not kept:
            branch.kept = False
            branch.rows = cast("list[bytes]", deque(maxlen=0))
            branch.append = branch.rows.append
        elif xa:
            branch.scns = []
        return branch

    def undo(self) -> bool:
        """Cancel the newest change. False: there is none."""
        if not self.kept:
            return True
        if not self.rows:
            if self.spilled is None or not self.spilled.rows:
                return False
            rows, scns = self.spilled.take_back()
            self.rows.extend(rows)
            if self.scns is not None:
                self.scns.extend(scns)
        self.rows.pop()
        if self.scns is not None:
            self.scns.pop()
        return True

    def memory(self) -> int:
        return sum(map(len, self.rows))

    def spill(self, space: SpillSpace, size: int) -> None:
        if self.spilled is None:
            self.spilled = space.file()
        step = max(1, len(self.rows) * SEGMENT_BYTES // max(1, size))
        for at in range(0, len(self.rows), step):
            scns = [] if self.scns is None else self.scns[at : at + step]
            self.spilled.append((self.rows[at : at + step], scns))
        # the same list objects: `append` is bound to them
        self.rows.clear()
        if self.scns is not None:
            self.scns.clear()

    @property
    def count(self) -> int:
        return len(self.rows) + (self.spilled.rows if self.spilled is not None else 0)

    @property
    def bytes(self) -> int:
        return self.memory() + (self.spilled.bytes if self.spilled is not None else 0)

    def taken(self) -> Rows:
        return Rows(self.rows, self.scns, self.spilled)


@dataclass(slots=True)
class ThreadAssembly:
    """How far one thread is read, and what is open in it."""

    number: int
    #: what lies before this place was read and handed over before the restart
    read_until: Place
    #: commits at or below this SCN lie before the start of capture
    since: int
    #: the mark that `read_until` stands for
    mark_then: int = 0
    #: what was open in this thread then: of all that is read again, only this counts
    open_then: set[int] = field(default_factory=set)
    #: every record of this thread at or below this SCN has been processed in this run
    mark: int = 0
    caught_up: bool = False
    #: by xid, in the order of their first records here
    branches: dict[int, Branch] = field(default_factory=dict)
    #: transactions of other threads that have undo records here → the first of them
    touched: dict[int, Place] = field(default_factory=dict)
    #: suspended at a record of this SCN, which waits for another thread
    waiting: int | None = None
    awaited: frozenset[int] = frozenset()
    lwn: Lwn | None = None
    lwn_place: Place = _NOWHERE
    records: Iterator[Record] = field(default_factory=lambda: iter(()))
    #: where the data of the next record begins
    at: int = 0
    last_order: Order = ORDER_MIN

    def here(self) -> Place:
        """The record that is being processed."""
        return self.lwn_place._replace(record=self.at)

    def open_now(self) -> list[int]:
        """The transactions that have records here and are not closed."""
        return list({**self.branches, **self.touched, **dict.fromkeys(self.open_then)})

    def first_open(self) -> list[Place]:
        """The first records of the oldest transactions that are open here."""
        places = [branch.place for branch in _first(self.branches)]
        return places + list(_first(self.touched))


def _first(values: dict[int, _T]) -> list[_T]:
    for value in values.values():
        return [value]
    return []
