"""The rows of a committed transaction, as the log has them: undecoded, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater_extractor.spill import SpillFile


class Rows:
    """First what was spilled, then what is in memory. Can be iterated more than once."""

    __slots__ = ("rows", "spilled")

    def __init__(self, rows: list[bytes], spilled: SpillFile | None) -> None:
        self.rows = rows
        self.spilled = spilled

    def __iter__(self) -> Iterator[bytes]:
        if self.spilled is not None:
            for rows, _ in self.spilled:
                yield from rows
        yield from self.rows
