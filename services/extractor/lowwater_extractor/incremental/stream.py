"""The stream of a source that is read by cursors instead of a log. For every kind: what a kind brings is a `Reader`.

A sync is one transaction over all tables, read under one view of the database. Its steps, each a poll or more: look how
far each table goes; have that in the position, durable, as `next`; read the rows, to disk where they are many; hand
them over, with `committed` moved on in the position. After a crash in between, the rows up to the same `next` are read
again. Was the sync published, it lies at or below the published order and is passed over, as with every kind; was a
part of it, the publisher goes on behind that, or abandons it if the rows have changed.

The source's clock goes on while a sync is read, for a sync has the time at which it is published: so a long one does
not hold the group.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from lowwater.codec.table import TableSchema
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater_extractor.api import PlannedTable, Polled, SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.incremental.cursors import Bound, Cursors, Range, Settling
from lowwater_extractor.spill import Rows, SpilledFrames, SpillSpace

THREAD = 1

_log = structlog.get_logger()


class Look(NamedTuple):
    """How far the tables go that have rows above what is committed; all of them that were never read."""

    #: everything that was committed before this is seen
    at_us: int
    #: bounds that no transaction can come below any more, by the time that they tell
    settled: dict[str, Bound]
    #: bounds that say nothing about time
    unsettled: dict[str, Bound]


class Reader(Protocol):
    """What a kind supplies. Nothing here waits: a step that takes long is many."""

    #: each table's last version
    seen: dict[str, TableSchema]

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, Look]:
        """Begins a view of the database; every step of it."""
        ...

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        """The rows of all tables, as frames in one piece, always in the same order; a bounded number at a time.

        Under the view of the look before it, or, after a restart, under a new one. An empty list: none yet.
        """
        ...

    def end(self) -> None:
        """Lets go of the view."""
        ...

    def close(self) -> None: ...


class Pace(NamedTuple):
    poll_seconds: float
    settle_seconds: float
    spill_bytes_max: int
    spill_directory: Path | None


class IncrementalStream:
    """`wanted`: the cursor's columns of each table. `resume` is None where capture begins."""

    def __init__(
        self, source: str, reader: Reader, wanted: Mapping[str, tuple[str, ...]], resume: bytes | None, pace: Pace
    ) -> None:
        self._source = source
        self._reader = reader
        self._pace = pace
        self._space = SpillSpace(pace.spill_directory)
        self._settling = Settling(pace.settle_seconds)
        self.seen = reader.seen
        before = Cursors(now_us()) if resume is None else Cursors.unpack(resume)
        self._cursors = before.fitted(wanted)
        if before.is_open and not self._cursors.is_open:
            _log.warning("a sync is given up: it was for other cursors", source=source, txid=before.txid)
        self._resume = self._cursors.pack()
        self._announce = resume is None
        #: that what the position has to say of the open sync is durable
        self._is_prepared = self._cursors.is_open
        self._looking: Generator[None, None, Look] | None = None
        self._reading: Iterator[list[bytes]] | None = None
        self._rows = self._no_rows()
        self._is_moving = False
        self._look_at = 0.0

    def poll(self, held: frozenset[int]) -> Polled:
        found: list[SourceTransaction] = []
        if self._announce:
            # the position that capture begins at is durable before anything is read
            self._announce = False
        elif THREAD not in held:
            found = self._step()
        mark = ThreadMark(THREAD, self._cursors.mark, self._resume, ThreadState.OPEN, at_end=True)
        return Polled(found, {THREAD: mark})

    def _step(self) -> list[SourceTransaction]:
        if self._reading is not None:
            return self._read(self._reading)
        if not self._cursors.is_open:
            self._look()
        elif self._is_prepared:
            fail_point("incremental.prepared")
            self._reading = self._reader.rows(self._cursors.ranges, self._cursors.at_us)
        return []

    def _set(self, cursors: Cursors) -> None:
        self._cursors, self._resume = cursors, cursors.pack()

    # -- the first phase ---------------------------------------------------------------------------------

    def _look(self) -> None:
        now = time.monotonic()
        if self._looking is None:
            if now < self._look_at:
                return
            self._look_at = now + self._pace.poll_seconds
            self._looking = self._reader.look({n: t.committed for n, t in self._cursors.tables.items()})
        try:
            next(self._looking)
        except StopIteration as ended:
            self._looking = None
            self._open(ended.value)

    def _open(self, look: Look) -> None:
        bounds = {**look.settled, **self._settling.ready(look.unsettled, look.at_us)}
        if not bounds:
            self._reader.end()
            return
        self._set(self._cursors.opened(bounds, look.at_us))
        self._is_prepared = False
        fail_point("incremental.looked")

    # -- the second phase --------------------------------------------------------------------------------

    def _no_rows(self) -> Rows:
        return Rows(self._space, self._pace.spill_bytes_max)

    def _read(self, reading: Iterator[list[bytes]]) -> list[SourceTransaction]:
        piece = next(reading, None)
        if piece is None:
            return self._close_sync()
        for row in piece:
            self._rows.add(row, 0)
        if piece:
            fail_point("incremental.some_rows")
        return []

    def _close_sync(self) -> list[SourceTransaction]:
        """Rows may be none: since the look they were deleted, or moved on above the bounds."""
        self._reader.end()
        open_, rows = self._cursors, self._rows
        self._reading, self._rows = None, self._no_rows()
        self._set(open_.closed())
        self._is_moving = True
        fail_point("incremental.rows_read")
        _log.info("sync", source=self._source, txid=open_.txid, tables=len(open_.ranges), rows=rows.count)
        if not rows.count:
            return []
        changes = SpilledFrames(rows, lambda: None)
        return [SourceTransaction(THREAD, open_.txid, open_.order, open_.at_us, changes, rows.bytes, rows.count)]

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        if resumes[THREAD] != self._resume:
            return
        self._is_prepared = self._cursors.is_open
        if self._is_moving:
            self._is_moving = False
            fail_point("incremental.moved")

    def close(self) -> None:
        self._reader.close()
        self._space.close()


class NoView:
    """Tables are not copied in this mode: their first sync has all rows. An operator's word for it is left waiting."""

    def __init__(self, source: str, tables: Sequence[str]) -> None:
        hint = "`lowwater source reset` reads all its tables anew"
        _log.warning("a source without a log copies nothing", source=source, tables=list(tables)[:10], hint=hint)

    def plan(self, tables_max: int) -> list[PlannedTable]:
        return []

    def keep(self, tables: Sequence[str]) -> list[str]:
        return []

    def close(self) -> None:
        return None
