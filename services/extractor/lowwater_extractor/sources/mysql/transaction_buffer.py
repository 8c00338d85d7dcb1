"""Buffers the changes of one event group of the log, on disk once it is large."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lowwater_extractor.api import Frame
from lowwater_extractor.sources.mysql.wire.events import Gtid
from lowwater_extractor.spill import Rows, SpilledFrames, SpillSpace


class Group:
    __slots__ = ("frames", "gtid", "is_begun", "is_covered", "is_idle", "is_standalone", "is_xa", "large", "size",
                 "stale", "tables", "ts_us")  # fmt: skip

    def __init__(self, found: Gtid, *, is_covered: bool = False) -> None:
        self.gtid = found.gtid
        self.ts_us = found.commit_ts_us
        self.is_standalone = found.is_standalone
        self.is_begun = found.is_begun
        self.is_xa = found.is_xa
        self.is_idle = found.is_idle
        #: published before; read again only for its XA transactions
        self.is_covered = is_covered
        self.frames: list[Frame] = []
        #: bytes of `frames`
        self.size = 0
        self.large: Rows | None = None
        #: tables that an XA transaction changes
        self.tables: set[str] = set()
        #: table → reason, for tables whose rows change without row events
        self.stale: dict[str, str] = {}

    @property
    def is_kept(self) -> bool:
        return not self.is_covered or self.is_xa

    @property
    def count(self) -> int:
        return len(self.frames) + (self.large.count if self.large else 0)

    @property
    def bytes(self) -> int:
        return self.size + 5 * len(self.frames) + (self.large.bytes if self.large else 0)

    def add(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.size += len(frame[1])

    def spill(self, space: SpillSpace, bytes_max: int) -> None:
        if self.large is None:
            self.large = Rows(space, bytes_max // 2)
        for header, body in self.frames:
            self.large.add(header + body, 0)
        self.frames, self.size = [], 0

    def changes(self, tick: Callable[[], None]) -> Iterable[Frame]:
        if self.large is None:
            return self.frames
        for header, body in self.frames:
            self.large.add(header + body, 0)
        self.frames, self.size = [], 0
        return SpilledFrames(self.large, tick)

    def emptied(self) -> Group:
        """Return this group without its changes, which are held until XA COMMIT."""
        return self._with(None)

    def with_changes(self, held: Group) -> Group:
        """Return this group with the changes of `held`."""
        return self._with(held)

    def _with(self, held: Group | None) -> Group:
        made = Group(Gtid(self.gtid, self.ts_us), is_covered=self.is_covered)
        if held is not None:
            made.frames, made.size, made.large, made.stale = held.frames, held.size, held.large, held.stale
            made.tables = held.tables
        return made
