"""From pgoutput's messages to whole committed transactions. Does no I/O but for large transactions, on disk.

A transaction comes whole at its commit; or, if it is large, in blocks while it is still running, mixed with others.
Of such a one the messages are kept as they came, and decoded once it has committed: what is rolled back costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from lowwater.errors import LogCorruptError
from lowwater.positions import Order
from lowwater_extractor.source import Frame, SourceTransaction
from lowwater_extractor.sources.postgres import messages
from lowwater_extractor.sources.postgres.lsn import format_lsn
from lowwater_extractor.sources.postgres.messages import RelationMessage, StreamCommit
from lowwater_extractor.sources.postgres.relations import Relation
from lowwater_extractor.spill import Segment, SpillFile, SpillSpace

THREAD = 1
#: a message of the stream has 25 bytes of the replication protocol in front
BODY = 25

MakeRelation = Callable[[RelationMessage], Relation]


class _Rows:
    """Rows in memory up to a limit, then on disk; in the order in which they came."""

    def __init__(self, space: SpillSpace, bytes_max: int) -> None:
        self._space = space
        self._bytes_max = bytes_max
        self._rows: list[bytes] = []
        self._numbers: list[int] = []
        self._held = 0
        self._file: SpillFile | None = None
        self.bytes = 0

    def add(self, row: bytes, number: int) -> None:
        self._rows.append(row)
        self._numbers.append(number)
        self._held += len(row)
        self.bytes += len(row)
        if self._held > self._bytes_max:
            if self._file is None:
                self._file = self._space.file()
            self._file.append((self._rows, self._numbers))
            self._rows, self._numbers, self._held = [], [], 0

    def __iter__(self) -> Iterator[Segment]:
        if self._file is not None:
            yield from self._file
        if self._rows:
            yield self._rows, self._numbers


@dataclass
class _Streamed:
    """A transaction that is still running."""

    rows: _Rows
    #: by its number, which stands beside each row; a shape that is not committed yet counts in here only
    relations: list[Relation] = field(default_factory=list)
    by_oid: dict[bytes, int] = field(default_factory=dict)
    #: subtransaction → its changes
    counts: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)


class _StreamedChanges:
    """Decoded at each iteration: a large transaction is never in memory as a whole."""

    def __init__(self, streamed: _Streamed, ts_us: int, tick: Callable[[], None]) -> None:
        self._streamed = streamed
        self._ts_us = ts_us
        self._tick = tick

    def __iter__(self) -> Iterator[Frame]:
        aborted, relations = self._streamed.aborted, self._streamed.relations
        for rows, numbers in self._streamed.rows:
            # it may take minutes to publish: the server must hear of us meanwhile
            self._tick()
            for row, number in zip(rows, numbers, strict=True):
                if number >> 32 not in aborted:
                    yield _frame(relations[number & 0xFFFFFFFF], row, self._ts_us)


def _frame(relation: Relation, m: bytes, ts_us: int) -> Frame:
    """`m`: a change from its letter on, without the subtransaction's id."""
    match m[0]:
        case 0x49:
            return relation.insert(m, 5, ts_us)
        case 0x55:
            return relation.update(m, 5, ts_us)
        case 0x44:
            return relation.delete(m, 5, ts_us)
        case _:
            return relation.truncate(ts_us)


class Assembler:
    """Fed with one message after the other; what has committed is taken out."""

    def __init__(
        self, source: str, make: MakeRelation, space: SpillSpace, bytes_max: int, tick: Callable[[], None]
    ) -> None:
        self._source = source
        self._make = make
        self._space = space
        self._bytes_max = bytes_max
        self._tick = tick
        self._relations: dict[bytes, Relation] = {}
        #: the one transaction that comes whole
        self._xid = 0
        self._ts_us = 0
        self._frames: list[Frame] | None = None
        self._frames_bytes = 0
        self._large: _Rows | None = None
        #: those that come in blocks
        self._open: dict[int, _Streamed] = {}
        self._block: _Streamed | None = None
        self.committed: list[SourceTransaction] = []
        #: behind the last commit
        self.end_lsn = 0

    @property
    def is_inside(self) -> bool:
        """In the middle of a transaction that comes whole, or of a block."""
        return self._frames is not None or self._block is not None

    def feed(self, m: bytes) -> None:
        """One XLogData message. Rows of a transaction that has committed are what nearly all of them are."""
        kind = m[BODY]
        if self._block is not None:
            self._feed_block(self._block, m, kind)
        elif kind == 0x49:  # I
            self._add(self._relation(m).insert(m, BODY + 5, self._ts_us))
        elif kind == 0x55:  # U
            self._add(self._relation(m).update(m, BODY + 5, self._ts_us))
        elif kind == 0x44:  # D
            self._add(self._relation(m).delete(m, BODY + 5, self._ts_us))
        else:
            self._feed_rare(m, kind)

    def _add(self, frame: Frame) -> None:
        if self._frames is None:
            raise self._wrong("a change outside of a transaction")
        self._frames.append(frame)
        self._frames_bytes += len(frame[1])
        if self._frames_bytes > self._bytes_max:
            self._spill()

    def _spill(self) -> None:
        """It came whole, and is large all the same: the server could not stream it."""
        if self._large is None:
            self._large = _Rows(self._space, self._bytes_max // 2)
        for header, body in self._frames or ():
            self._large.add(header + body, 0)
        self._frames, self._frames_bytes = [], 0

    def _relation(self, m: bytes) -> Relation:
        relation = self._relations.get(m[BODY + 1 : BODY + 5])
        if relation is None:
            raise self._wrong(f"a change of relation {int.from_bytes(m[BODY + 1 : BODY + 5])}, which was not named")
        return relation

    def _feed_rare(self, m: bytes, kind: int) -> None:
        at = BODY + 1
        match chr(kind):
            case "B":
                begin = messages.begin(m, at)
                self._xid, self._ts_us = begin.xid, begin.commit_ts_us
                self._frames, self._frames_bytes, self._large = [], 0, None
            case "C":
                self._commit(messages.commit(m, at))
            case "R":
                message = messages.relation(m, at)
                self._relations[message.oid.to_bytes(4)] = self._make(message)
            case "T":
                for oid in messages.truncated(m, at):
                    if oid in self._relations:
                        self._add(self._relations[oid].truncate(self._ts_us))
            case "S":
                start = messages.stream_start(m, at)
                if start.is_first or start.xid not in self._open:
                    self._open[start.xid] = _Streamed(_Rows(self._space, self._bytes_max))
                self._block = self._open[start.xid]
            case "c":
                self._stream_commit(messages.stream_commit(m, at))
            case "A":
                self._stream_abort(messages.stream_abort(m, at))
            # a type's name (the catalogue tells more), where a change came from, a message: ours are heartbeats
            case "Y" | "O" | "M":
                pass
            case _:
                raise messages.unknown(self._source, m[BODY:], format_lsn(int.from_bytes(m[1:9])))

    # -- whole ones --------------------------------------------------------------------------------------

    def _commit(self, commit: messages.CommitMessage) -> None:
        frames = self._frames
        if frames is None:
            raise self._wrong("a commit outside of a transaction")
        changes: Iterable[Frame] = frames
        size, count = self._frames_bytes + 5 * len(frames), len(frames)
        if self._large is not None:
            self._spill()
            changes = _SpilledFrames(self._large, self._tick)
            size, count = self._large.bytes, changes.count
        self._frames = None
        self._done(self._xid, commit.end_lsn, commit.commit_ts_us, changes, size, count)

    def _done(self, xid: int, end_lsn: int, ts_us: int, changes: Iterable[Frame], size: int, count: int) -> None:
        self.end_lsn = end_lsn
        if count:
            order = Order(end_lsn, 1)
            self.committed.append(SourceTransaction(THREAD, str(xid), order, ts_us, changes, size, count))

    # -- those that come in blocks -----------------------------------------------------------------------

    def _feed_block(self, block: _Streamed, m: bytes, kind: int) -> None:
        at = BODY + 5  # every message has the id of its subtransaction
        match chr(kind):
            case "I" | "U" | "D":
                oid = m[at : at + 4]
                row = m[BODY : BODY + 1] + m[at:]
                self._keep(block, m, block.by_oid.get(oid), oid, row)
            case "T":
                for oid in messages.truncated(m, at):
                    if oid in block.by_oid or oid in self._relations:
                        self._keep(block, m, block.by_oid.get(oid), oid, b"T")
            case "R":
                message = messages.relation(m, at)
                self._name(block, message.oid.to_bytes(4), self._make(message))
            case "E":
                self._block = None
            case "Y" | "O" | "M":
                pass
            case _:
                raise messages.unknown(self._source, m[BODY:], format_lsn(int.from_bytes(m[1:9])))

    def _name(self, block: _Streamed, oid: bytes, relation: Relation) -> int:
        block.relations.append(relation)
        block.by_oid[oid] = len(block.relations) - 1
        return block.by_oid[oid]

    def _keep(self, block: _Streamed, m: bytes, number: int | None, oid: bytes, row: bytes) -> None:
        if number is None:
            if oid not in self._relations:
                raise self._wrong(f"a change of relation {int.from_bytes(oid)}, which was not named")
            number = self._name(block, oid, self._relations[oid])
        subxid = int.from_bytes(m[BODY + 1 : BODY + 5])
        block.counts[subxid] = block.counts.get(subxid, 0) + 1
        block.rows.add(row, subxid << 32 | number)

    def _stream_commit(self, commit: StreamCommit) -> None:
        block = self._open.pop(commit.xid, None)
        if block is None:
            raise self._wrong(f"the commit of {commit.xid}, of which nothing has come")
        # the server does not name these again: what the transaction has changed counts for all now
        self._relations |= {oid: block.relations[number] for oid, number in block.by_oid.items()}
        count = sum(n for subxid, n in block.counts.items() if subxid not in block.aborted)
        changes = _StreamedChanges(block, commit.commit_ts_us, self._tick)
        self._done(commit.xid, commit.end_lsn, commit.commit_ts_us, changes, block.rows.bytes, count)

    def _stream_abort(self, abort: messages.StreamAbort) -> None:
        if abort.subxid == abort.xid:
            self._open.pop(abort.xid, None)
        elif abort.xid in self._open:
            self._open[abort.xid].aborted.add(abort.subxid)

    def _wrong(self, what: str) -> LogCorruptError:
        return LogCorruptError(
            what, source=self._source, thread=THREAD, position=format_lsn(self.end_lsn),
            hint="the stream contradicts itself: restart the source; if it comes again, report it",
        )  # fmt: skip


class _SpilledFrames:
    def __init__(self, rows: _Rows, tick: Callable[[], None]) -> None:
        self._rows = rows
        self._tick = tick
        self.count = sum(len(segment) for segment, _ in rows)

    def __iter__(self) -> Iterator[Frame]:
        for rows, _ in self._rows:
            self._tick()
            for row in rows:
                yield row[:5], row[5:]
