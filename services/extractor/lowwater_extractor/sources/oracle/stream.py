"""The stream of one database's redo: round-robin over the threads, marks, discovery of threads.

**Marks.** A thread's mark is proved by its log: the SCN of the LWN that is being read − 1, or a log's next SCN − 1.
The reported mark is the minimum of that and the SCN of the last thread snapshot (`ThreadSnapshot`):

- Each poll reads the logs first and takes the snapshot last; a snapshot queries the current SCN before the threads. A
  thread that is not in the snapshot is opened (or added) after its SCN, and opening allocates a new SCN; so the
  thread's first SCN F is above the snapshot's SCN C. All marks reported with this snapshot are at or below C ≤ F − 1.
- The thread is added to the marks at F − 1 with the first snapshot that contains it. Until then the marks of all other
  threads are at or below the C of the previous snapshot, which is at or below F − 1: they have not passed it.

**A closed thread** stays in the marks. It has been read completely if a read that began after a snapshot found it
closed reaches the end of its log; any later record is above every SCN that was current at that snapshot, because
opening allocates a new SCN. Its mark is the SCN of the snapshot that found it closed, which was queried before its
state. That SCN itself is covered (1 is not subtracted), because opening allocates an SCN strictly above it.

**A thread that is open and writes nothing** keeps its mark: it holds back the watermark, and is reported as the thread
that does. There is no timeout. (The log writer of a running instance writes an LWN every few seconds.)

**Added tables.** The set of captured objects is queried after each part of a log is read and before it is processed. If
a table is added to the set before its first row is written, no row of it is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Protocol

from lowwater.errors import IncarnationError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import Polled, SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.sources.oracle.position import LeftOut, Resume, added_thread
from lowwater_extractor.sources.oracle.redo.events import Captured
from lowwater_extractor.sources.oracle.redo.files import LogFiles
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.redo.reader import LogEnd, ThreadReader
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import ThreadSnapshot
from lowwater_extractor.sources.oracle.transactions.assembler import Assembler
from lowwater_extractor.sources.oracle.transactions.assembler_state import ThreadAssembly
from lowwater_extractor.spill import MEMORY_BYTES_MAX


class Looked(Protocol):
    """The part of the database view that the stream polls."""

    files: LogFiles

    def incarnation(self) -> str: ...

    def look(self) -> ThreadSnapshot: ...


#: (thread, start position, captured objects) → its reader
NewReader = Callable[[int, Place, Captured], ThreadReader]
#: the least number of bytes that one poll reads of a thread
_BUDGET_MIN = 4096


@dataclass(slots=True)
class _Thread:
    reader: ThreadReader
    #: the captured objects that the reader was given last
    captured: Captured
    assembly: ThreadAssembly
    #: the mark reported last; it never decreases
    mark: Order
    at_end: bool = False
    state: ThreadState = ThreadState.OPEN

    @property
    def read(self) -> Place:
        """All records before this position have been processed."""
        return self.assembly.here() if self.assembly.lwn is not None else self.reader.place


@dataclass(frozen=True)
class RedoOptions:
    #: leave out transactions that are open at the start of capture and whose first log is gone; False: refuse to start
    leave_out: bool = False
    #: bytes of rows of open transactions in memory; above this limit rows are spilled to disk
    spill_bytes_max: int = MEMORY_BYTES_MAX
    spill_directory: Path | None = None
    #: bytes of log that one poll reads, over all threads
    read_bytes: int = 4 << 20
    #: interval between queries for the database's threads
    look_seconds: float = 0.0
    #: time zone of the database's hosts: times in the log have no zone
    zone: tzinfo = UTC


@dataclass(frozen=True)
class Start:
    """Where the stream begins."""

    look: ThreadSnapshot
    resumes: dict[int, Resume]
    #: the last published ones
    marks: Mapping[int, Order]
    #: transactions that are not captured, because their begin is gone
    left_out: list[LeftOut]
    #: capture begins, or a thread is new: see `poll`
    is_new: bool


@dataclass(frozen=True)
class Hooks:
    """What the stream calls."""

    #: returns the captured objects; the same object as long as they are unchanged
    captured: Callable[[], Captured]
    #: returns the notes to store with the position
    notes: Callable[[], dict[str, bytes]] = dict
    #: called with the sequence of each thread's first log that is still needed
    acknowledged: Callable[[dict[int, int]], None] | None = None


class RedoStream:
    def __init__(
        self,
        source: str,
        database: Looked,
        start: Start,
        assembler: Assembler,
        new_reader: NewReader,
        hooks: Hooks,
        options: RedoOptions,
    ) -> None:
        self._source = source
        self.seen = assembler.seen
        self._database = database
        self._incarnation = database.incarnation()
        self._assembler = assembler
        self._new_reader = new_reader
        self._hooks = hooks
        self._options = options
        self._left_out = start.left_out
        self._is_new = start.is_new
        self._look = start.look
        self._looked_at = time.monotonic()
        self._since = max((resume.since for resume in start.resumes.values()), default=0)
        self._threads: dict[int, _Thread] = {}
        self._turn = 0
        for number, resume in sorted(start.resumes.items()):
            self._enter(number, resume, start.marks.get(number, ORDER_MIN))

    # --- the interface

    def poll(self, held: frozenset[int]) -> Polled:
        out: list[SourceTransaction] = []
        if self._is_new:
            # Capture begins here, or a thread is new. The resumes and marks are returned before any transaction:
            # without a saved resume a restart would begin later and skip transactions, and a thread must be known
            # before its first commit.
            self._is_new = False
            return self._polled(out)
        # A suspended thread may be the one with the lowest mark, and wait for a thread that is held back because it is
        # ahead of it. That thread is read nevertheless, else both would wait forever.
        awaited = {number for thread in self._threads.values() for number in thread.assembly.awaited}
        numbers = list(self._threads)
        self._turn = (self._turn + 1) % len(numbers)
        budget = max(_BUDGET_MIN, self._options.read_bytes // len(numbers))
        for number in numbers[self._turn :] + numbers[: self._turn]:
            thread = self._threads[number]
            thread.at_end = False
            if number not in held or number in awaited:
                self._read(thread, budget, out)
        while self._wake(out):
            pass
        self._mark_closed()
        self._look_again()
        return self._polled(out)

    def _polled(self, out: list[SourceTransaction]) -> Polled:
        left_out, self._left_out = self._left_out, []
        marks, stale = self._marks(), self._assembler.stale
        if all(thread.assembly.caught_up for thread in self._threads.values()):
            self._assembler.verify(Scn(min(mark.order.major for mark in marks.values())))
        return Polled(out, marks, left_out, {**self._hooks.notes(), **stale.notes()}, stale.found)

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """Logs before these positions are no longer needed."""
        if self._hooks.acknowledged is not None:
            self._hooks.acknowledged({number: Resume.unpack(data).start.sequence for number, data in resumes.items()})

    def close(self) -> None:
        for thread in self._threads.values():
            thread.reader.close()
        self._assembler.close()

    # --- reading

    def _read(self, thread: _Thread, budget: int, out: list[SourceTransaction]) -> None:
        """Read about `budget` bytes, to the end of the LWN in which they end, or to the end of the available log."""
        assembly, reader, assembler = thread.assembly, thread.reader, self._assembler
        if assembly.lwn is not None and not assembler.go_on(assembly, out):
            return
        while budget > 0:
            before = reader.place
            assembler.reached(assembly, before)
            found = reader.next()
            if found is None:
                thread.at_end = True
                return
            if isinstance(found, LogEnd):
                assembly.mark = Scn(max(assembly.mark, found.next_scn - 1))
                continue
            if (captured := self._hooks.captured()) is not thread.captured:
                thread.captured = captured
                reader.capture(captured, before.offset)
                continue
            budget -= found.end - (before.offset if before.sequence == found.sequence else 0)
            if not assembler.feed(assembly, found, out):
                return
        assembler.reached(assembly, reader.place)

    def _wake(self, out: list[SourceTransaction]) -> bool:
        """Continue suspended threads for which the other threads have now been read far enough."""
        woken = False
        for thread in self._threads.values():
            assembly = thread.assembly
            if assembly.lwn is not None:
                before = assembly.at
                woken |= self._assembler.go_on(assembly, out) or assembly.at != before
        return woken

    # --- marks and threads

    def _mark_closed(self) -> None:
        for number, thread in self._threads.items():
            closed = self._look.threads[number].state is ThreadState.CLOSED
            thread.state = ThreadState.CLOSED if closed and thread.at_end else ThreadState.OPEN
            if thread.state is ThreadState.CLOSED and thread.assembly.caught_up:
                thread.assembly.mark = max(thread.assembly.mark, self._look.scn)

    def _look_again(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < self._options.look_seconds:
            return
        self._looked_at = now
        look, incarnation = self._database.look(), self._database.incarnation()
        if incarnation != self._incarnation or not self._threads.keys() <= look.threads.keys():
            raise IncarnationError(
                f"the database was {self._incarnation} with threads {sorted(self._threads)}, "
                f"now it is {incarnation} with threads {sorted(look.threads)}",
                source=self._source,
                hint="logs of two incarnations are never mixed: start capture again",
            )
        self._look = look
        for number in look.threads.keys() - self._threads.keys():
            resume = added_thread(self._source, incarnation, look, number, Scn(self._since), self._database.files)
            self._enter(number, resume, Order.mark(resume.mark))

    def _enter(self, number: int, resume: Resume, mark: Order) -> None:
        assembly = ThreadAssembly(number, resume.read, resume.since, resume.low, resume.mark, set(resume.open))
        captured = self._hooks.captured()
        reader = self._new_reader(number, resume.start, captured)
        # no transaction that committed at or below `since` is captured
        self._threads[number] = _Thread(reader, captured, assembly, max(mark, Order.mark(resume.since)))
        self._assembler.threads[number] = assembly
        self._assembler.left_out.update(resume.left_out)
        self._assembler.reached(assembly, reader.place)

    def _marks(self) -> dict[int, ThreadMark]:
        for thread in self._threads.values():
            self._assembler.reached(thread.assembly, thread.read)
        left_out = sorted(self._assembler.left_out)
        marks = {}
        for number, thread in self._threads.items():
            assembly = thread.assembly
            thread.mark = max(thread.mark, Order.mark(min(assembly.mark, self._look.scn)))
            if assembly.caught_up:
                read, proved = thread.read, assembly.mark
            else:
                read, proved = assembly.read_until, Scn(assembly.mark_then)
            resume = Resume(
                incarnation=self._incarnation,
                start=self._assembler.start(assembly, thread.read),
                read=read,
                mark=proved,
                since=assembly.since,
                low=assembly.low,
                open=assembly.open_now(),
                left_out=left_out,
            )
            marks[number] = ThreadMark(number, thread.mark, resume.pack(), thread.state, thread.at_end)
        return marks
