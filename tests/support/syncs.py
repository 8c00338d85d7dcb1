"""A source in the mode `incremental` on a test's own database, read in this process."""

from __future__ import annotations

import time
from typing import Any

from lowwater_extractor.api import Source, SourceTransaction, ThreadMark
from lowwater_extractor.incremental.cursors import Cursors
from lowwater_extractor.incremental.stream import IncrementalStream, UpperBounds
from tests.support.versions import Change, Versions

WAIT_SECONDS = 30.0


def settings_of(cursors: dict[str, Any]) -> dict[str, Any]:
    """Syncs come as quickly as they can."""
    return {
        "mode": "incremental", "tables": list(cursors), "cursors": cursors, "poll_seconds": 0.001, "settle_seconds": 0,
    }  # fmt: skip


class Syncs:
    """A stream whose every mark is durable at once."""

    def __init__(self, source: Source, resume: bytes | None) -> None:
        self.encoders = Versions()
        stream = source.stream({} if resume is None else {1: resume}, {}, self.encoders)
        assert isinstance(stream, IncrementalStream)
        self.stream = stream
        self._open = stream._open
        stream._open = self._looked  # type: ignore[method-assign]
        self._idle_looks = 0
        self.mark: ThreadMark
        self.poll()

    @property
    def cursors(self) -> Cursors:
        return Cursors.unpack(self.mark.resume)

    def _looked(self, look: UpperBounds) -> None:
        self._open(look)
        self._idle_looks = 0 if self.stream._cursors.is_open else self._idle_looks + 1

    def poll(self) -> list[SourceTransaction]:
        polled = self.stream.poll(frozenset())
        self.mark = polled.marks[1]
        self.stream.acknowledge({1: self.mark.resume})
        return polled.transactions

    def transactions(self) -> list[SourceTransaction]:
        """Until two looks have found nothing new."""
        found: list[SourceTransaction] = []
        self._idle_looks = 0
        deadline = time.monotonic() + WAIT_SECONDS
        while self._idle_looks < 2:
            assert time.monotonic() < deadline, "it never comes to its end"
            found += self.poll()
        return found

    def new(self) -> list[list[Change]]:
        found = []
        for transaction in self.transactions():
            changes = [self.encoders.change(frame) for frame in transaction.changes]
            assert len(changes) == transaction.count
            found.append(changes)
        return found

    def rows_of_next_sync(self) -> list[dict[str, Any]]:
        """However many looks that takes."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := self.poll()):
            assert time.monotonic() < deadline, "no sync has come"
        return [self.encoders.change(frame).after or {} for frame in found[0].changes]

    def rows(self) -> list[dict[str, Any]]:
        """Of all syncs since the last time."""
        changes = [change for sync in self.new() for change in sync]
        assert {(change.op, change.before) for change in changes} <= {("r", None)}
        return [change.after or {} for change in changes]

    def close(self) -> None:
        self.stream.close()
