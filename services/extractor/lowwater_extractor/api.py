"""What a source kind supplies. One folder under `sources/`, one line in `sources/__init__.py`.

A kind reads its log, drops what was rolled back, and hands over whole committed transactions, each thread's
in its commit order, with marks. Everything behind that (Kafka, positions, clocks, limits) is the runtime's.
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

#: one change, ready but for its `seq`: (wire header of its schema, Avro body behind `seq`)
Frame = tuple[bytes, bytes]


class ThreadState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class ThreadMark(NamedTuple):
    """Where a thread stands: no transaction of it at or below `order` is still to come."""

    thread: int
    order: Order
    #: what this source needs to read this thread on from here; opaque to all others
    resume: bytes
    state: ThreadState
    #: everything that the log holds now has been read
    at_end: bool
    #: right behind it, so many orders can be none of a commit: (major + 1, 0), (major + 1, 1), …. They are for copies,
    #: which become readable also while nothing commits
    free_orders: int = 1


class SeenVersions(dict[str, TableSchema]):
    """Each table's last version in the stream; and all since `take`, in order: one poll may meet several of a table."""

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
        """Since `take`."""
        return bool(self._new)

    def take(self) -> list[tuple[str, TableSchema]]:
        found, self._new = self._new, []
        return found


@dataclass(slots=True)
class SourceTransaction:
    """A committed transaction, with its changes in order."""

    thread: int
    txid: str
    order: Order
    commit_ts_us: int
    #: can be iterated more than once; large ones come from disk
    changes: Iterable[Frame]
    #: bytes of all frames, near enough for limits
    size_bytes: int
    count: int


class StaleTable(NamedTuple):
    """Where a log falls silent about a table: a copy whose `low` is below `order` is no longer right."""

    order: Order
    #: for people: what was done to it
    reason: str


@dataclass(slots=True)
class Polled:
    """What one poll found: transactions in commit order within each thread, then where the threads stand.

    A mark stands behind all transactions of this and earlier polls: it covers them. `marks` names every
    thread that the source knows, also closed ones and ones that have nothing new. The first poll of a fresh stream,
    or of one with a new thread, returns only marks and resumes: the thread is registered before it is read, and a
    crash after that begins at the same place.
    """

    transactions: list[SourceTransaction]
    marks: dict[int, ThreadMark]
    #: transactions that were left out because the operator asked for it: (thread, txid, why)
    left_out: list[tuple[int, str, str]] = field(default_factory=list)
    #: what to remember, by name, from these marks on: durable with them. Empty: no more
    notes: dict[str, bytes] = field(default_factory=dict)
    #: tables whose rows came, went or were rewritten without changes in the log. Named by every poll, for as long as
    #: the source remembers it
    stale: Mapping[str, StaleTable] = field(default_factory=dict)


class Check(NamedTuple):
    """One thing that a database must have before capture can begin, and the words that mend it."""

    name: str
    is_good: bool
    what: str
    fix: str = ""


class PlannedTable(NamedTuple):
    """A table's chunks, as a view of the database shows it."""

    table: TableSchema
    #: the snapshot's place in the log. None: there is no snapshot, and a chunk holds what is there when it is read;
    #: then the stream is a `WindowStream`, and its changes carry whole rows
    at: Order | None
    #: what to read (opaque to all but the kind), and about how many rows that is; none: there is no such table any more
    chunks: list[tuple[bytes, int]]


class TableView(Protocol):
    """A view of the database that chunks are planned and read under. It lives until it is closed, or lost."""

    def plan(self, tables_max: int) -> list[PlannedTable]:
        """The next tables; none if the view is not ready yet. Never waits."""
        ...

    def keep(self, tables: Sequence[str]) -> list[str]:
        """Those of `tables` of which what was planned can no longer be read; SourceLostError if the view is gone."""
        ...

    def close(self) -> None: ...


class Encoders(Protocol):
    """Given by the runtime: column rules are applied and the schema is registered behind this call."""

    @property
    def notes(self) -> Mapping[str, bytes]:
        """What the source's polls asked to remember, before this stream began."""
        ...

    @property
    def rules(self) -> ColumnRules:
        """Applied behind `encoder`; for kinds that put values of several columns into one."""
        ...

    def encoder(self, table: TableSchema) -> TableEncoder: ...

    def known(self) -> Iterable[str]:
        """The full names of all tables of this source that have a version: also of those that are gone by now."""
        ...

    def last_header(self, table: str) -> bytes | None:
        """The wire header of the last version of a table, by its full name; None: nothing of it was ever published."""
        ...

    def versioned(self, table: TableSchema) -> TableSchema:
        """The table under the number of the version with the same columns and key, or the next number.

        For kinds whose log does not number its versions; `version` of what is given does not count.
        """
        ...


class Stream(Protocol):
    #: each table's last version that a change came for, where the log tells versions
    seen: dict[str, TableSchema]

    def poll(self, held: frozenset[int]) -> Polled:
        """Read what is there, a bounded amount, fairly over the threads; never wait for a thread.

        `held` threads are not read now: they are too far ahead of the others.
        """
        ...

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """All up to these resumes is durable in Kafka: the database may let go of it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class WindowStream(Stream, Protocol):
    """The stream of a database without a snapshot that several sessions can share."""

    def end_of_log(self) -> Callable[[], Order | None]:
        """Asks the database how far its log goes now. The answer is a question to this stream: which mark covers that?

        None until there is one. What a read that has ended could see lies at or below that mark.
        """
        ...


class Source(Protocol):
    """One configured source of some kind."""

    kind: ClassVar[str]
    config_model: ClassVar[type[BaseModel]]

    def incarnation(self) -> str:
        """The database's identity now; a change of it is never passed over."""
        ...

    def discover(self) -> list[TableSchema]: ...

    def check(self) -> list[Check]:
        """What capture needs, asked of the live database; one that fails does not hide the next."""
        ...

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        """Read on from `resumes`; empty means from the start of capture.

        `marks` are the last published ones: a record at or below its thread's mark was read before.
        """
        ...

    def tables_to_copy(self) -> list[TableSchema]:
        """Those whose rows may be older than the log; none if the config does not want them."""
        ...

    def filled_columns(self, table: str) -> set[str]:
        """Columns that also have a value in rows which are older than they are: by a default, say."""
        ...

    def begin_view(self, tables: Sequence[str]) -> TableView: ...

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        """Arrow record batches of the chunk's rows, with the rules applied, as `lake_table(avro).copy_schema` has them.

        In one of Spark's tasks, on any machine. SnapshotGoneError: it can no longer be read; a new plan will come.
        """
        ...
