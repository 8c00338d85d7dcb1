"""A spool that keeps in memory what it is given, and knows what has not been given back."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater_merger.core.lanes import Waiting


class MemorySpool:
    def __init__(self) -> None:
        self.live: set[MemoryValues | MemoryLane] = set()

    def values(self) -> MemoryValues:
        return MemoryValues(self)

    def lane(self) -> MemoryLane:
        return MemoryLane(self)


class MemoryValues:
    def __init__(self, spool: MemorySpool) -> None:
        self._spool = spool
        self._blocks: list[list[bytes]] = []
        self.size_bytes = 0
        spool.live.add(self)

    def append(self, values: list[bytes]) -> None:
        self._blocks.append(list(values))
        self.size_bytes += sum(map(len, values))

    def blocks(self) -> Iterator[list[bytes]]:
        assert self in self._spool.live, "read after it was dropped"
        yield from self._blocks

    def drop(self) -> None:
        self._spool.live.discard(self)


class MemoryLane:
    def __init__(self, spool: MemorySpool) -> None:
        self._spool = spool
        self._entries: list[Waiting] = []
        self.count = 0

    def append(self, entries: list[Waiting]) -> None:
        self._entries += entries
        self._note()

    def take(self) -> list[Waiting]:
        taken, self._entries = self._entries[:2], self._entries[2:]
        self._note()
        return taken

    def scan(self) -> Iterator[Waiting]:
        yield from self._entries

    def drop(self) -> None:
        for entry in self._entries:
            entry.buffer.drop()
        self._entries = []
        self._note()

    def _note(self) -> None:
        self.count = len(self._entries)
        if self._entries:
            self._spool.live.add(self)
        else:
            self._spool.live.discard(self)
