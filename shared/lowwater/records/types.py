"""The records that travel between the services, as Python sees them. `schemas.py` has their Avro.

`seq` counts a transaction's changes from 1. Key and order of the ordered topic: (gsn, seq); the `Commit`
that closes a transaction of n changes has seq n + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from lowwater.records.positions import Order


@dataclass(frozen=True, slots=True)
class OrderKey:
    gsn: int
    seq: int


@dataclass(slots=True)  # one is made for every transaction: freezing it would cost a microsecond
class Commit:
    source: str
    thread: int
    txid: str
    order: Order
    commit_ts_us: int
    clock_us: int
    changes: int
    #: sum of crc32 over the values of all changes, so that nobody needs to decode them to check it
    checksum: int
    #: of the source's capture. It leads the order: what one generation publishes comes after all of the one before
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Abandon:
    """Drop what is buffered under this id: it starts anew behind this record."""

    txid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """In the place of a transaction that an operator skipped."""

    source: str
    thread: int
    txid: str
    order: Order
    clock_us: int
    reason: str
    #: as of a `Commit`
    generation: int = 0


@dataclass(frozen=True, slots=True)
class CopiedChunk:
    table: str
    chunk: int
    low: Order
    high: Order


@dataclass(frozen=True, slots=True)
class Copied:
    """The one change of a transaction of its own: from its gsn on the copied tables can be read."""

    seq: int
    copy: str
    tables: tuple[str, ...]
    chunks: tuple[CopiedChunk, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """A change of a transaction: from its gsn on, the state of these tables is not known.

    Rows came, went or were rewritten without changes in the log, or have not been copied yet. A `Copied` of the table
    with a higher gsn ends it.
    """

    seq: int
    #: `namespace.table`
    tables: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a table, to be copied as a unit by one of Spark's tasks. A copy is of one table."""

    source: str
    copy: str
    #: `namespace.table`
    table: str
    #: from 1; the copy is whole when chunks 1 … `chunks` have landed. With none it is only there to replace another
    chunk: int
    chunks: int
    #: of the table version that its rows have
    schema_id: int
    #: what to read, and under which snapshot: opaque to all but the source's kind
    bounds: bytes
    #: positions before and after the read; equal under a snapshot
    low: Order
    high: Order
    rows_estimate: int
    #: the copy of the same table that this one replaces, if any: nothing of that lands any more
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """How far a table's copy is: whose chunks are out, and whether it has become readable."""

    table: str
    copy: str
    chunks: int
    #: of the version that its rows have
    schema_id: int
    low: Order
    high: Order
    is_copied: bool
    #: the operator's request that it answers, if any
    request: str = ""
    #: an operator's word: nothing more of it is read, and it does not begin anew by itself
    is_cancelled: bool = False
    #: of the capture that it belongs to: `low` and `high` mean nothing in another
    generation: int = 0
    #: the last table version that the log has shown; 0: none but the copy's own
    seen_schema_id: int = 0

    @property
    def is_over(self) -> bool:
        """Nothing more comes of it."""
        return self.is_copied or self.is_cancelled


@dataclass(frozen=True, slots=True)
class TableCopies:
    """Beside the position, in the same topic under a key of its own: it may be long, and changes rarely."""

    source: str
    #: of each table the last copy, planned or done
    copies: tuple[TableCopy, ...]


@dataclass(frozen=True, slots=True)
class SourceNote:
    """Beside the position, too: what a source kind must remember to read its log again, Oracle's dictionary say."""

    source: str
    name: str
    #: opaque to all but the kind; empty: forgotten
    value: bytes


@dataclass(frozen=True, slots=True)
class MarkedThread:
    thread: int
    order: Order
    state: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A source's word about its threads; the same record goes to every partition."""

    epoch: int
    clock_us: int
    threads: tuple[MarkedThread, ...]
    #: as in `Commit`. Marks of a higher one are not compared with those before
    generation: int = 0


@dataclass(frozen=True, slots=True)
class InProgress:
    """The published prefix of the one transaction that is larger than a batch."""

    thread: int
    txid: str
    order: Order
    attempt: int
    changes: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    thread: int
    resume: bytes
    published: Order
    mark: Order
    state: str


@dataclass(frozen=True, slots=True)
class Position:
    source: str
    incarnation: str
    epoch: int
    clock_us: int
    in_progress: InProgress | None
    threads: tuple[ThreadPosition, ...]
    #: how capture of this source is numbered: one more each time that it starts from scratch, see `next_generation`
    generation: int = 0
    #: the changes topic that this generation is published to; empty before its first session
    topic_id: str = ""
    #: of each partition of it, the offset from which on this generation lies there
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleasedThread:
    """The last transaction of this thread that was released; of one that was only named, the lowest order."""

    thread: int
    order: Order
    txid: str
    generation: int = 0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    partition: int
    #: the oldest offset still needed by anything unreleased; never goes back
    offset: int
    #: the last mark before `offset`, never the newest one seen
    mark: Mark | None
    #: behind the last commit or mark that was read, released or not
    heard: int = 0


@dataclass(frozen=True, slots=True)
class SourceProgress:
    source: str
    clock_us: int
    #: the highest (generation, order, thread, txid) released
    order: Order
    thread: int
    txid: str
    joined_gsn: int
    threads: tuple[ReleasedThread, ...]
    partitions: tuple[PartitionProgress, ...]
    excluded: tuple[int, ...]
    #: the identity of the changes topic that the offsets belong to
    topic_id: str = ""
    #: of the highest that was released
    generation: int = 0


class WordKind(StrEnum):
    JOIN = "join"
    LEAVE = "leave"
    EXCLUDE = "exclude"
    INCLUDE = "include"
    SKIP = "skip"
    #: of the group: its progress was lost, and rebuilt from what it had released
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class Word:
    """An operator's word, with the gsn at which it took effect: the next one released was this."""

    gsn: int
    word: str
    source: str
    thread: int
    txid: str
    reason: str
    at_us: int
    #: of a skip: the operator's request that it answers. A request is used up by one transaction
    request: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    group: str
    next_gsn: int
    #: the clock of the last released transaction of any source
    clock_us: int
    #: how far the control topic's words have been obeyed
    control_version: int
    sources: tuple[SourceProgress, ...]
    words: tuple[Word, ...] = ()
    #: sources that have left, as they were then: one that comes back goes on behind what it has released
    left: tuple[SourceProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class Exclusion:
    source: str
    thread: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skip:
    source: str
    thread: int
    txid: str
    reason: str
    #: tells this request from an earlier one for the same id: ids come again in a database
    request: str = ""
    #: where it committed, as errors show it; empty: the next one with this id
    order: str = ""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """An operator wants this table copied anew, whatever was copied before; or its copy cancelled."""

    table: str
    request: str
    reason: str
    is_cancel: bool = False


class Wanted(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    #: as if it had never been there, but for what it left in its topics
    REMOVED = "removed"

    @property
    def is_at_rest(self) -> bool:
        """Nothing is to run for it."""
        return self in (Wanted.STOPPED, Wanted.REMOVED)


@dataclass(frozen=True, slots=True)
class Control:
    """The wanted state of a source or a group. `changes_version` names the version that it changes."""

    name: str
    kind: str
    changes_version: int
    wanted: Wanted
    config: str
    exclusions: tuple[Exclusion, ...] = ()
    skips: tuple[Skip, ...] = ()
    reason: str = ""
    at_us: int = 0
    copies: tuple[CopyRequest, ...] = ()
    #: another one than before: its session is to begin anew
    restart: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What a service shows of itself, about once a second; one that is silent is down."""

    #: extractor, merger, spark, runner
    service: str
    #: the source or the group that it serves
    name: str
    state: str
    at_us: int
    #: JSON: what its `/status` shows
    shown: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """An attempt at a landing has begun. What it writes counts only once a manifest names it."""

    kind: str
    attempt: str
    #: the number that it will try first
    n: int
    from_offset: int
    #: at most this far
    to_offset: int
    at_us: int


@dataclass(frozen=True, slots=True)
class LandedChunk:
    table: str
    copy: str
    chunk: int


@dataclass(frozen=True, slots=True)
class Landed:
    """What a manifest says, for those that read Kafka and not the lake."""

    kind: str
    attempt: str
    n: int
    offset: int
    gsn: int
    transactions: int
    rows: int
    files: int
    bytes: int
    chunks: tuple[LandedChunk, ...]
    at_us: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """An attempt that no manifest names, nor ever will: another one has landed what it was to."""

    attempt: str
    n: int
    reason: str
    at_us: int


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One schema, in the topic that keeps them all."""

    schema: str
    subject: str
    table: str = ""
    version: int = 0
    key: tuple[str, ...] = field(default=())


Record = (
    Commit | Abandon | Skipped | Copied | Stale | Chunk | TableCopies | SourceNote | Mark | Position | Progress
    | Control | SchemaEntry | OrderKey | Prepared | Landed | Aborted | Status
)  # fmt: skip
