"""The records that services exchange through Kafka. Their Avro schemas are derived from these classes.

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


@dataclass(slots=True)  # created for every transaction: frozen would cost a microsecond each
class Commit:
    source: str
    thread: int
    txid: str
    order: Order
    commit_ts_us: int
    clock_us: int
    changes: int
    #: sum of crc32 over the values of all changes: it can be checked without decoding them
    checksum: int
    #: generation of the source. It precedes `order` in comparisons: transactions of a generation come after all of
    #: the previous one
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Abandon:
    """Discard the buffered changes of this transaction: it is published again from the start after this record."""

    txid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Replaces a transaction that an operator skipped."""

    source: str
    thread: int
    txid: str
    order: Order
    clock_us: int
    reason: str
    #: as in `Commit`
    generation: int = 0


@dataclass(frozen=True, slots=True)
class CopiedChunk:
    table: str
    chunk: int
    low: Order
    high: Order


@dataclass(frozen=True, slots=True)
class Copied:
    """The only change of its transaction: from its gsn on the copied tables are readable."""

    seq: int
    copy: str
    tables: tuple[str, ...]
    chunks: tuple[CopiedChunk, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """A change of a transaction: from its gsn on, the state of these tables is unknown.

    Rows were inserted, deleted or rewritten without changes in the log, or have not been copied yet. A `Copied` of the
    table with a higher gsn ends it.
    """

    seq: int
    #: `namespace.table`
    tables: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a table that one Spark task copies. A copy is of one table."""

    source: str
    copy: str
    #: `namespace.table`
    table: str
    #: from 1; the copy is complete when chunks 1 … `chunks` have landed. If `chunks` is 0, the record only closes the
    #: copy in `replaces`
    chunk: int
    chunks: int
    #: of the table version of its rows
    schema_id: int
    #: which rows to read, and the snapshot to use: only the source kind can decode it
    bounds: bytes
    #: positions before and after the read; equal under a snapshot
    low: Order
    high: Order
    rows_estimate: int
    #: the copy of the same table that this one replaces, if any: its remaining chunks do not land
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """The state of a table's copy: its chunks, and whether it has become readable."""

    table: str
    copy: str
    chunks: int
    #: of the table version of its rows
    schema_id: int
    low: Order
    high: Order
    is_copied: bool
    #: the operator's request that it answers, if any
    request: str = ""
    #: cancelled by an operator: no more chunks are read, and no new copy is planned automatically
    is_cancelled: bool = False
    #: generation of the source; `low` and `high` are valid only within it
    generation: int = 0
    #: the last table version in the log; 0: only the copy's own version
    seen_schema_id: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the copy is readable or cancelled: no more chunks follow."""
        return self.is_copied or self.is_cancelled


@dataclass(frozen=True, slots=True)
class TableCopies:
    """Stored in the positions topic under a key of its own, because it may be long and changes rarely."""

    source: str
    #: the last copy of each table, planned or done
    copies: tuple[TableCopy, ...]


@dataclass(frozen=True, slots=True)
class SourceNote:
    """Also in the positions topic: state that a source kind needs to decode its log, such as Oracle's dictionary."""

    source: str
    name: str
    #: only the source kind can decode it; empty: deleted
    value: bytes


@dataclass(frozen=True, slots=True)
class MarkedThread:
    thread: int
    order: Order
    state: str


@dataclass(frozen=True, slots=True)
class Mark:
    """The watermarks of a source's threads; the same record is written to every partition."""

    epoch: int
    clock_us: int
    threads: tuple[MarkedThread, ...]
    #: as in `Commit`. Marks of different generations are not compared
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
    #: number of the capture of this source, increased each time that it starts from scratch; see `next_generation`
    generation: int = 0
    #: topic id of the changes topic of this generation; empty before its first session
    topic_id: str = ""
    #: for each of its partitions, the offset at which this generation begins
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleasedThread:
    """The last released transaction of this thread; the lowest order if none was released."""

    thread: int
    order: Order
    txid: str
    generation: int = 0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    partition: int
    #: the lowest offset that an unreleased transaction still needs; never decreases
    offset: int
    #: the last mark before `offset`, not the newest one that was read
    mark: Mark | None
    #: the offset after the last commit or mark that was read, released or not
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
    #: topic id of the changes topic that the offsets belong to
    topic_id: str = ""
    #: of the highest released transaction
    generation: int = 0


class WordKind(StrEnum):
    JOIN = "join"
    LEAVE = "leave"
    EXCLUDE = "exclude"
    INCLUDE = "include"
    SKIP = "skip"
    #: of the group: its progress was lost, and rebuilt from the ordered topic
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class Word:
    """A command of an operator, with the gsn at which it took effect: that of the next released transaction."""

    gsn: int
    word: str
    source: str
    thread: int
    txid: str
    reason: str
    at_us: int
    #: of a skip: the id of the operator's request. A request applies to one transaction only
    request: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    group: str
    next_gsn: int
    #: the clock of the last released transaction of any source
    clock_us: int
    #: the last version of the control state that has been applied
    control_version: int
    sources: tuple[SourceProgress, ...]
    words: tuple[Word, ...] = ()
    #: sources that have left the group, with their progress: one that joins again continues after its last release
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
    #: id of this request: databases reuse transaction ids, so an earlier request may name the same one
    request: str = ""
    #: order of the commit, as shown in errors; empty: the next transaction with this id
    order: str = ""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """An operator's request to copy this table again, or to cancel its copy."""

    table: str
    request: str
    reason: str
    is_cancel: bool = False


class Wanted(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    #: treated as not configured; its topics stay
    REMOVED = "removed"

    @property
    def is_at_rest(self) -> bool:
        """Whether no service is to run for it."""
        return self in (Wanted.STOPPED, Wanted.REMOVED)


@dataclass(frozen=True, slots=True)
class Control:
    """The desired state of a source or a group. `changes_version` is the version that it replaces."""

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
    #: a token: when it changes, the service begins a new session
    restart: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a service, published about once a second; a service without recent status is down."""

    #: extractor, merger, spark, runner
    service: str
    #: the source or the group that it serves
    name: str
    state: str
    at_us: int
    #: the content of its `/status`, as JSON
    shown: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """An attempt at a landing has begun. Its files become visible once a manifest lists them."""

    kind: str
    attempt: str
    #: the manifest number that it will try first
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
    """Summary of a manifest, for services that read Kafka and not the lake."""

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
    """An attempt that no manifest will ever list: another attempt has landed the same records."""

    attempt: str
    n: int
    reason: str
    at_us: int


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One schema, in the schemas topic."""

    schema: str
    subject: str
    table: str = ""
    version: int = 0
    key: tuple[str, ...] = field(default=())


Record = (
    Commit | Abandon | Skipped | Copied | Stale | Chunk | TableCopies | SourceNote | Mark | Position | Progress
    | Control | SchemaEntry | OrderKey | Prepared | Landed | Aborted | Status
)  # fmt: skip
