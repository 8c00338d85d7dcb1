"""The stream of a database that is read with LogMiner: windows of SCNs over all threads, marks, discovery of threads.

One poll fetches one batch of the open window, or opens the next. When a window is mined to its end E, every thread's
mark is E (see `session.py`). Between two windows a snapshot of the threads is taken:

- A new thread is registered, with the mark of all threads, before its redo is mined. Until then every mark is at or
  below the SCN of the previous snapshot, and the thread's first SCN is above that.
- A closed thread stays in the marks. No window goes above the SCN that was current before the snapshot that found it
  closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from lowwater.codec.table import TableSchema
from lowwater.errors import IncarnationError, LogCorruptError, LogGapError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import Encoders, Polled, SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.oracle.config import LogMinerConfig, OracleConfig
from lowwater_extractor.sources.oracle.connect import Database
from lowwater_extractor.sources.oracle.discovery import Discovery
from lowwater_extractor.sources.oracle.logminer.changes import ChangeMaker, Tables
from lowwater_extractor.sources.oracle.logminer.contents import Joiner, rows_of
from lowwater_extractor.sources.oracle.logminer.position import Resume, fresh, resumed
from lowwater_extractor.sources.oracle.logminer.session import MiningSession, oldest_scn
from lowwater_extractor.sources.oracle.logminer.transactions import Assembler
from lowwater_extractor.sources.oracle.rows.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import ThreadSnapshot, txid_text, without_container
from lowwater_extractor.spill import SpillSpace


class _Window:
    """An SCN range that is being mined."""

    def __init__(self, high: int, batches: Iterator[list[tuple[Any, ...]]], *, is_last: bool) -> None:
        self.high = high
        self.batches = batches
        #: it ends at the highest SCN that can be mined now
        self.is_last = is_last
        self.rows = 0

    def close(self) -> None:
        if isinstance(self.batches, Generator):
            self.batches.close()


class LogMinerStream:
    def __init__(
        self,
        source: str,
        discovery: Discovery,
        session: MiningSession,
        assembler: Assembler,
        space: SpillSpace,
        resume: Resume,
        marks: Mapping[int, Order],
        *,
        settings: LogMinerConfig,
        seen: dict[str, TableSchema],
        left_out: list[tuple[int, str, str]],
        known: set[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seen = seen
        #: the thread that holds back the marks; None: no thread does
        self.holder: int | None = None
        self._source = source
        self._discovery = discovery
        self._session = session
        self._assembler = assembler
        self._space = space
        self._since = resume.since
        self._incarnation = resume.incarnation
        self._settings = settings
        self._left_out = left_out
        self._clock = clock
        #: mined up to this SCN; it becomes the mark when it is above the mark published before the restart
        self._mined = resume.start - 1
        self._read = resume.read
        self._marks = dict(marks)
        assembler.read = resume.read
        assembler.left_out.update(map(without_container, resume.left_out))
        assembler.expected.update(resume.open)
        self._resume = resume.pack()
        look = discovery.look()
        #: each thread's last state
        self._states: dict[int, ThreadState] = dict.fromkeys(known, ThreadState.OPEN)
        #: closed threads → the SCN of the snapshot that found them closed
        self._closed: dict[int, int] = dict.fromkeys(resume.finished, 0)
        self._states |= dict.fromkeys(resume.finished, ThreadState.CLOSED)
        self._check_threads(look)
        self._announce = self._note(look)
        self._looked: float | None = None
        self._at_end = False
        self._size = settings.window_scns_min
        self._window: _Window | None = None
        self._joiner = Joiner()

    # --- the interface

    def poll(self, held: frozenset[int]) -> Polled:
        """`held` is ignored: all threads are mined together, so no thread is ahead of another."""
        out: list[SourceTransaction] = []
        if self._announce:
            # Capture begins here, or a thread is new. The resumes and marks are returned before any transaction:
            # without a saved resume a restart would begin later and skip transactions.
            self._announce = False
        else:
            if self._window is None and self._is_time():
                self._open()
            if self._window is not None:
                self._fetch(self._window, out)
        left_out, self._left_out = self._left_out, []
        stale = self._assembler.stale
        return Polled(out, self._thread_marks(), left_out, stale.notes(), stale.found)

    def _is_time(self) -> bool:
        waited = self._looked is None or self._clock() - self._looked >= self._settings.look_seconds
        return waited or not self._at_end

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """No operation: the database's own policy decides how long archived logs are retained."""

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None
        self._session.close()
        self._space.close()

    # --- windows

    def _open(self) -> None:
        """Take a snapshot of the threads, register new ones, and open the next window if there is redo to mine."""
        self._check_incarnation()
        self._looked = self._clock()
        look = self._discovery.look()
        self._check_threads(look)
        if self._note(look):
            # the new thread is added to the marks first, and mined with the next poll
            self._at_end = False
            return
        reach = self._session.reach(look)
        self.holder = reach.holder
        high = min(reach.scn, self._mined + self._size)
        self._at_end = high <= self._mined
        if not self._at_end:
            mined = {number: thread for number, thread in look.threads.items() if number in self._states}
            batches = self._session.mine(ThreadSnapshot(look.scn, mined), Scn(self._mined), Scn(high))
            self._window = _Window(high, batches, is_last=high == reach.scn)

    def _fetch(self, window: _Window, out: list[SourceTransaction]) -> None:
        batch = next(window.batches, None)
        if batch is not None:
            window.rows += len(batch)
            self._assembler.feed(self._joiner.whole(rows_of(batch)), Scn(self._mined), Scn(window.high), out)
            return
        if self._joiner.is_inside:
            where = f"SCN {window.high}"
            raise LogCorruptError("the window ends inside a statement", source=self._source, position=where)
        self._window = None
        self._mined = window.high
        self._at_end = window.is_last
        self._grow(window.rows)
        if self._mined >= self._read:
            self._check_found()
            self._read = self._assembler.read = self._mined
        self._resume = self._resume_now().pack()

    def _grow(self, rows: int) -> None:
        """Double the window size after few rows, halve it after many batches."""
        full = self._settings.batch_rows
        if rows < full:
            self._size = min(self._size * 2, self._settings.window_scns_max)
        elif rows > 10 * full:
            self._size = max(self._size // 2, self._settings.window_scns_min)

    # --- checks

    def _check_incarnation(self) -> None:
        now = self._discovery.incarnation()
        if now != self._incarnation:
            raise IncarnationError(
                f"the database was {self._incarnation}, now it is {now}",
                source=self._source,
                hint="logs of two incarnations are never mixed: start capture again",
            )

    def _note(self, look: ThreadSnapshot) -> bool:
        """Record the threads' states. True: there is a new thread."""
        before = set(self._states)
        for number, thread in look.threads.items():
            if not thread.is_enabled and number not in before:
                continue
            self._states[number] = thread.state
            if thread.state is ThreadState.CLOSED:
                self._closed.setdefault(number, look.scn)
            else:
                self._closed.pop(number, None)
        return self._states.keys() != before

    def _check_threads(self, look: ThreadSnapshot) -> None:
        """Raise if a thread is gone that was not closed and mined completely: its redo is lost."""
        missing = self._states.keys() - look.threads.keys()
        gone = sorted(number for number in missing if self._closed.get(number, self._mined + 1) > self._mined)
        if gone:
            raise IncarnationError(
                f"the database no longer has redo threads {gone}, and their redo was not read completely",
                source=self._source,
                hint="start capture again",
            )

    def _check_found(self) -> None:
        """Raise if a transaction that was open before the restart was not found again."""
        if self._assembler.expected:
            names = ", ".join(map(txid_text, sorted(self._assembler.expected)))
            raise LogGapError(
                f"transactions that were open before the restart were not found again: {names}",
                source=self._source,
                position=f"SCN {self._read}",
                hint="LogMiner does not show the same redo as before: start capture again, and report it",
            )

    # --- marks

    def _resume_now(self) -> Resume:
        """The resume between two windows. Inside a window it would be wrong: a transaction that has already ended there
        is not open, but its rows would be mined again.
        """
        first = self._assembler.first_open()
        return Resume(
            incarnation=self._incarnation,
            start=self._mined + 1 if first is None else min(self._mined + 1, first),
            read=self._read,
            since=self._since,
            open=sorted({*self._assembler.open_with_changes(), *self._assembler.expected}),
            left_out=sorted(self._assembler.left_out),
            finished=sorted(number for number, scn in self._closed.items() if scn <= self._mined),
        )

    def _thread_marks(self) -> dict[int, ThreadMark]:
        marks = {}
        for number, state in sorted(self._states.items()):
            order = max(self._marks.get(number, ORDER_MIN), Order.mark(self._read))
            self._marks[number] = order
            marks[number] = ThreadMark(number, order, self._resume, state, self._at_end)
        return marks


def open_stream(
    source: str,
    config: OracleConfig,
    database: Database,
    tables: Tables,
    encoders: Encoders,
    resumes: Mapping[int, bytes],
    marks: Mapping[int, Order],
    *,
    lobs: LobFetch | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> LogMinerStream:
    """Continue from `resumes`; empty: start a new capture. `database` is a connection to the root."""
    discovery = Discovery(database, config, source)
    identity, incarnation = discovery.identity(), discovery.incarnation()
    left_out: list[tuple[int, str, str]] = []
    if resumes:
        resume = resumed(source, incarnation, resumes)
    else:
        start = discovery.start()
        logs = discovery.online_logs() + discovery.archived_logs(
            identity.resetlogs_scn, Scn(start.first_scn - 1), start.since
        )
        resume, left_out = fresh(
            source,
            incarnation,
            start,
            oldest_scn=oldest_scn(discovery.look().threads, logs),
            leave_out=config.open_at_start == "leave_out",
        )
    space = SpillSpace(config.spill_directory)
    maker = ChangeMaker(source, tables, encoders, lobs)
    assembler = Assembler(
        source, maker, tables, space, zone=ZoneInfo(config.zone), spill_bytes_max=config.spill_bytes_max,
        stale=StaleTables(source, encoders.notes),
    )  # fmt: skip
    session = MiningSession(
        source,
        database,
        discovery,
        owners=config.owners,
        pdb=config.pdb,
        resetlogs_scn=identity.resetlogs_scn,
        batch_rows=config.logminer.batch_rows,
    )
    return LogMinerStream(
        source,
        discovery,
        session,
        assembler,
        space,
        resume,
        marks,
        settings=config.logminer,
        seen=maker.seen,
        left_out=left_out,
        known=set(resumes),
        clock=clock,
    )
