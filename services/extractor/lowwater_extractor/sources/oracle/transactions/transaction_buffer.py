"""The rows of a transaction as bytes of the log, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.spill import SpillFile, SpillSpace

_SEGMENT_BYTES = 1 << 20


class Rows:
    """The rows of a committed transaction, first the spilled ones. Can be iterated more than once."""

    __slots__ = ("rows", "spilled")

    def __init__(self, rows: list[bytes], spilled: SpillFile | None) -> None:
        self.rows = rows
        self.spilled = spilled

    def __iter__(self) -> Iterator[bytes]:
        if self.spilled is not None:
            for rows, _ in self.spilled:
                yield from rows
        yield from self.rows


class OpenRows:
    """The rows of an open transaction that have not been undone."""

    __slots__ = ("rows", "scn", "spilled")

    def __init__(self, scn: Scn) -> None:
        #: SCN of its begin
        self.scn = scn
        self.rows: list[bytes] = []
        self.spilled: SpillFile | None = None

    @property
    def count(self) -> int:
        return len(self.rows) + (self.spilled.rows if self.spilled is not None else 0)

    @property
    def bytes(self) -> int:
        return self.memory() + (self.spilled.bytes if self.spilled is not None else 0)

    def memory(self) -> int:
        return sum(map(len, self.rows))

    def spill(self, space: SpillSpace) -> None:
        if self.spilled is None:
            self.spilled = space.file()
        step = max(1, len(self.rows) * _SEGMENT_BYTES // max(1, self.memory()))
        for at in range(0, len(self.rows), step):
            self.spilled.append((self.rows[at : at + step], []))
        # the list object must stay the same: `Branch` holds its `append`
        self.rows.clear()

    def taken(self) -> Rows:
        return Rows(self.rows, self.spilled)


def spill_largest(opened: Iterable[OpenRows], space: SpillSpace, bytes_max: int) -> int:
    """Spill the largest transactions first, down to half of the limit. Return the bytes that are still in memory."""
    sizes = sorted(((each.memory(), at, each) for at, each in enumerate(opened)), reverse=True)
    held = sum(size for size, _, _ in sizes)
    for size, _, each in sizes:
        if held <= bytes_max // 2 or not size:
            break
        each.spill(space)
        held -= size
    return held
