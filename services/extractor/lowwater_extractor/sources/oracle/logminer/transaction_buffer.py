"""An open transaction: its changes that have not been undone, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable

from lowwater_extractor.sources.oracle.ddl import Ddl
from lowwater_extractor.sources.oracle.logminer.changes import Kept, unpack
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.transactions.transaction_buffer import OpenRows


class Open(OpenRows):
    __slots__ = ("ddl", "has_locator")

    def __init__(self, scn: Scn) -> None:
        super().__init__(scn)
        #: pieces of a LOB may follow
        self.has_locator = False
        #: statements that take effect at the commit, and the tables that they affect
        self.ddl: list[tuple[Ddl, set[str]]] = []

    def cancel(self, is_it: Callable[[Kept], bool]) -> bool:
        """Remove the newest change that matches. False: there is none."""
        end = len(self.rows)
        while True:
            for at in range(end - 1, -1, -1):
                if is_it(unpack(self.rows[at])):
                    del self.rows[at]
                    return True
            if self.spilled is None or not self.spilled.rows:
                return False
            older, _ = self.spilled.take_back()
            self.rows[:0] = older
            end = len(older)
