"""The interface that a source kind implements. One folder under `sources/`, one line in `sources/__init__.py`.

A kind reads its log, discards transactions that were rolled back, and returns whole committed transactions with marks,
in commit order per thread. The runtime does the rest: Kafka, positions, clocks, limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor._native.slab import Slab

#: one encoded change without its `seq`: (wire header of its schema, Avro body after `seq`)
Frame = tuple[bytes, bytes]


class ThreadState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class ThreadMark(NamedTuple):
    """The watermark of a thread: no later transaction of the thread has an order at or below `order`."""

    thread: int
    order: Order
    #: from where the source kind continues to read this thread; opaque to other code
    resume: bytes
    state: ThreadState
    #: the log has been read to its current end
    at_end: bool
    #: number of orders directly after `order` that no commit can have: (major + 1, 0), (major + 1, 1), …. They are
    #: reserved for copies, which can become readable while the source has no commits
    free_orders: int = 1


class SeenVersions(dict[str, TableSchema]):
    """The last version of each table in the stream, and all versions since the last `take`, in order.

    One poll may read several versions of a table.
    """

    def __init__(self) -> None:
        super().__init__()
        self._new: list[tuple[str, TableSchema]] = []

    def __setitem__(self, name: str, version: TableSchema) -> None:
        if self.get(name) is version:
            return
        super().__setitem__(name, version)
        self._new.append((name, version))

    @property
    def is_changed(self) -> bool:
        """Whether there are new versions since the last `take`."""
        return bool(self._new)

    def take(self) -> list[tuple[str, TableSchema]]:
        found, self._new = self._new, []
        return found


class ChangeCursor(Protocol):
    """A place in a batch of changes."""

    #: there are no more changes
    is_at_end: bool

    def add_to(self, slab: Slab, key: bytes, seq: int) -> int:
        """Add changes to the slab, numbered from `seq`, as many as there is room for, and move after them.

        Returns how many, at most as many as the cursor was opened with; 0: there is no room for the next one.
        """
        ...

    def take(self) -> Frame:
        """Return the next change, which is larger than a slab, and move after it."""
        ...


class ChangeBatch(Protocol):
    """The encoded changes of one transaction, in order.

    They can be read more than once, with the same result. Reading may decode rows, read spilled ones from disk,
    register a new table version, and query the database (Oracle's LOBs). The publisher reads inside an open Kafka
    transaction: if reading fails, that transaction is aborted, and no consumer sees any of its records.
    """

    def __iter__(self) -> Iterator[Frame]: ...

    def cursor(self, start: int, most: int) -> ChangeCursor:
        """Open a cursor after the first `start` changes; each `add_to` adds at most `most`."""
        ...


@dataclass(slots=True)
class SourceTransaction:
    """A committed transaction and its changes, in order."""

    thread: int
    txid: str
    order: Order
    commit_ts_us: int
    changes: ChangeBatch
    #: approximate size of all frames, for limits
    size_bytes: int
    count: int


class StaleTable(NamedTuple):
    """A table whose rows changed without changes in the log: a copy whose `low` is below `order` is invalid."""

    order: Order
    #: the cause, for the operator
    reason: str


@dataclass(slots=True)
class Polled:
    """The result of one poll: transactions, in commit order within each thread, and the marks of the threads.

    A mark covers all transactions of this poll and of earlier polls. `marks` contains every thread that the source
    knows, including closed threads and threads without new transactions. The first poll of a new stream, or of one
    with a new thread, returns only marks and resumes: the thread is registered before it is read, so that a restart
    after a crash begins at the same position.
    """

    transactions: list[SourceTransaction]
    marks: dict[int, ThreadMark]
    #: transactions that were skipped as configured: (thread, txid, reason)
    left_out: list[tuple[int, str, str]] = field(default_factory=list)
    #: notes to store, by name, in the same Kafka transaction as these marks. An empty value deletes the note
    notes: dict[str, bytes] = field(default_factory=dict)
    #: tables whose rows were added, deleted or rewritten without changes in the log. Every poll returns all that the
    #: source has recorded
    stale: Mapping[str, StaleTable] = field(default_factory=dict)


class Check(NamedTuple):
    """The result of one check of a prerequisite for capture; `fix` says how to fulfil it."""

    name: str
    is_good: bool
    what: str
    fix: str = ""


class PlannedTable(NamedTuple):
    """A table and its chunks, planned under a view of the database."""

    table: TableSchema
    #: the snapshot's position in the log. None: there is no snapshot, and a chunk contains the rows as of the time at
    #: which it is read; the stream must then be a `WindowStream` whose changes contain whole rows
    at: Order | None
    #: (bounds to read, opaque to other code than the kind's; approximate number of rows). Empty: the table is gone
    chunks: list[tuple[bytes, int]]


class TableView(Protocol):
    """A view of the database under which chunks are planned and read. It exists until it is closed or lost."""

    def plan(self, tables_max: int) -> list[PlannedTable]:
        """Return the next planned tables, at most `tables_max`; none if the view is not ready yet. Does not block."""
        ...

    def keep(self, tables: Sequence[str]) -> list[str]:
        """Return those of `tables` whose planned chunks can no longer be read. SourceLostError: the view is gone."""
        ...

    def close(self) -> None: ...


class Encoders(Protocol):
    """Supplied by the runtime. `encoder` applies the column rules and registers the schema."""

    @property
    def notes(self) -> Mapping[str, bytes]:
        """The notes that the source's polls stored before this stream was opened."""
        ...

    @property
    def rules(self) -> ColumnRules:
        """The column rules that `encoder` applies; for kinds that put the values of several columns into one."""
        ...

    def encoder(self, table: TableSchema) -> TableEncoder: ...

    def known(self) -> Iterable[str]:
        """Return the full names of all tables of this source that have a version, including dropped tables."""
        ...

    def last_header(self, table: str) -> bytes | None:
        """Return the wire header of the last version of a table (full name); None if it was never published."""
        ...

    def versioned(self, table: TableSchema) -> TableSchema:
        """Return `table` with the number of the version that has the same columns and key, or with the next number.

        For kinds whose log does not number table versions; `table.version` is ignored.
        """
        ...


class Stream(Protocol):
    #: the last version of each table for which a change was read, if the log contains versions
    seen: dict[str, TableSchema]

    def poll(self, held: frozenset[int]) -> Polled:
        """Read a bounded amount of available records, fairly over the threads; does not wait for a thread.

        Threads in `held` are not read: they are too far ahead of the other threads.
        """
        ...

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """Everything up to these resumes is durable in Kafka: the database may discard its log up to there."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class WindowStream(Stream, Protocol):
    """The stream of a database that has no snapshot which several sessions can share."""

    def end_of_log(self) -> Callable[[], Order | None]:
        """Ask the database for the current end of its log. Returns a function that returns the mark that covers it.

        The function returns None until the stream has that mark. All data that a read before this call has seen was
        committed at or below that mark.
        """
        ...


class Source(Protocol):
    """One configured source."""

    kind: ClassVar[str]
    config_model: ClassVar[type[BaseModel]]

    def incarnation(self) -> str:
        """Return the current identity of the database; the extractor refuses to continue if it has changed."""
        ...

    def discover(self) -> list[TableSchema]: ...

    def check(self) -> list[Check]:
        """Check the prerequisites for capture on the live database. A failed check does not hide the next ones."""
        ...

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        """Open a stream that continues from `resumes`; empty: capture begins.

        `marks` are the last published ones: a record at or below its thread's mark was read before.
        """
        ...

    def tables_to_copy(self) -> list[TableSchema]:
        """Return the tables that may have rows older than the log; none if copies are not configured."""
        ...

    def filled_columns(self, table: str) -> set[str]:
        """Return the columns that have a value also in rows older than the column, for example a default."""
        ...

    def begin_view(self, tables: Sequence[str]) -> TableView: ...

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        """Yield the chunk's rows as Arrow record batches of `lake_table(avro).copy_schema`, with the rules applied.

        Runs in a Spark task, on any machine. SnapshotGoneError: the chunk can no longer be read and is planned again.
        """
        ...
