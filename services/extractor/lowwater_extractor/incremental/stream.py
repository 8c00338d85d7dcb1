"""The stream of a source that is read by cursors instead of a log, for every source kind; a kind supplies a `Reader`.

A sync is one transaction over all tables, read under one view of the database. Its steps, each in one or more polls:
query the upper bound of each table; store the bounds in the position as `next`, durably; read the rows, spilled to disk
if there are many; return them as a transaction, with `committed` advanced in the position. After a crash, the rows up
to the same `next` are read again. If the sync was published, its order is at or below the published one and it is
skipped, as with every kind. If a part of it was published, the publisher continues after that part, or abandons it if
the rows have changed.

The source's clock advances while a sync is read, because a sync has the time of its publication: a long sync does not
delay the group.
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


class UpperBounds(NamedTuple):
    """Upper bounds for the next sync: of tables with rows above `committed`, and of tables that were never read."""

    #: transactions committed before this time are visible
    at_us: int
    #: bounds of cursors that are times: no transaction can still commit below them
    settled: dict[str, Bound]
    #: bounds of other cursors: a running transaction may still commit below them
    unsettled: dict[str, Bound]


class Reader(Protocol):
    """Implemented by a source kind. Nothing here blocks: long work is split into several steps."""

    #: each table's last version
    seen: dict[str, TableSchema]

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, UpperBounds]:
        """Begin a view of the database and return the upper bounds; yields after each step."""
        ...

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        """Yield the rows of all tables as concatenated frames, always in the same order; a bounded number at a time.

        They are read under the view that `look` began, or under a new one after a restart. An empty list: no rows yet.
        """
        ...

    def end(self) -> None:
        """Close the view."""
        ...

    def close(self) -> None: ...


class Pace(NamedTuple):
    poll_seconds: float
    settle_seconds: float
    spill_bytes_max: int
    spill_directory: Path | None


class IncrementalStream:
    """`wanted`: the cursor columns of each table. `resume`: None if capture begins."""

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
            _log.warning("open sync discarded: the configured cursors have changed", source=source, txid=before.txid)
        self._resume = self._cursors.pack()
        self._announce = resume is None
        #: the position with the bounds of the open sync is durable
        self._is_prepared = self._cursors.is_open
        self._looking: Generator[None, None, UpperBounds] | None = None
        self._reading: Iterator[list[bytes]] | None = None
        self._rows = self._no_rows()
        self._is_moving = False
        self._look_at = 0.0

    def poll(self, held: frozenset[int]) -> Polled:
        found: list[SourceTransaction] = []
        if self._announce:
            # the position at which capture begins must be durable before anything is read
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

    def _open(self, look: UpperBounds) -> None:
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
        """End the sync. It may have no rows: they were deleted, or updated to cursors above the bounds."""
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
    """Tables are not copied in this mode, because their first sync reads all rows. Copy requests remain pending."""

    def __init__(self, source: str, tables: Sequence[str]) -> None:
        hint = "`lowwater source reset` reads all its tables from the start"
        _log.warning("no copies in the mode incremental", source=source, tables=list(tables)[:10], hint=hint)

    def plan(self, tables_max: int) -> list[PlannedTable]:
        return []

    def keep(self, tables: Sequence[str]) -> list[str]:
        return []

    def close(self) -> None:
        return None
