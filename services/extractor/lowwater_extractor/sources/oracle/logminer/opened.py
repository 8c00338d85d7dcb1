"""A transaction that has not ended: its changes that stand so far, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable

from lowwater_extractor.sources.oracle.logminer.changes import Kept, unpack
from lowwater_extractor.spill import SpillFile, SpillSpace

_SEGMENT_BYTES = 1 << 20


class Open:
    __slots__ = ("has_locator", "rows", "scn", "spilled")

    def __init__(self, scn: int) -> None:
        #: of its begin
        self.scn = scn
        self.rows: list[bytes] = []
        self.spilled: SpillFile | None = None
        #: a LOB's pieces may come
        self.has_locator = False

    @property
    def count(self) -> int:
        return len(self.rows) + (self.spilled.rows if self.spilled is not None else 0)

    @property
    def bytes(self) -> int:
        return self.memory() + (self.spilled.bytes if self.spilled is not None else 0)

    def memory(self) -> int:
        return sum(map(len, self.rows))

    def cancel(self, is_it: Callable[[Kept], bool]) -> bool:
        """Take out the newest change that fits. False: there is none."""
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

    def spill(self, space: SpillSpace) -> None:
        if self.spilled is None:
            self.spilled = space.file()
        step = max(1, len(self.rows) * _SEGMENT_BYTES // max(1, self.memory()))
        for at in range(0, len(self.rows), step):
            self.spilled.append((self.rows[at : at + step], []))
        self.rows.clear()
