"""Assembles pgoutput messages into whole committed transactions. Its only I/O is spilling large transactions to disk.

The server sends a transaction whole at its commit, or, if it is large, streams it in blocks while it is still running,
interleaved with others. Messages of streamed transactions are buffered undecoded and decoded after the commit, so
rolled back changes are never decoded. A `Relation` is created at its first committed change: the catalogue does not
show uncommitted DDL, and the server also sends relation messages for tables without changes (the partitions of a table
that is captured through its root).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lowwater.errors import CodecError, LogCorruptError, LogUnknownError
from lowwater.records.positions import Order
from lowwater_extractor.api import ChangeBatch, Frame, SourceTransaction
from lowwater_extractor.sources.postgres.relations import Relation
from lowwater_extractor.sources.postgres.streamed_transaction import Streamed, StreamedChanges
from lowwater_extractor.sources.postgres.wire import messages
from lowwater_extractor.sources.postgres.wire.lsn import format_lsn
from lowwater_extractor.sources.postgres.wire.messages import RelationMessage, StreamCommit
from lowwater_extractor.spill import Rows, SpillSpace
from lowwater_extractor.transaction_buffer import TransactionBuffer

THREAD = 1
#: offset of the pgoutput message: the XLogData header has 25 bytes
BODY = 25

#: message type `w` of the replication protocol
XLOG_DATA = 0x77
_OID_END = BODY + 5
#: offset of an insert's tuple: after the message type, the relation's oid and `N`
_TUPLE = BODY + 6

#: (relation message, id of its transaction) → relation; None: the table is not captured
MakeRelation = Callable[[RelationMessage, int], Relation | None]


class NamedRelation(NamedTuple):
    oid: int
    name: str
    columns: tuple[str, ...]


class Named(NamedTuple):
    """Received relation messages. The server sends one again after every DDL on the relation."""

    #: committed transactions that contained them
    xids: list[int]
    #: relation → end LSN of the last of these transactions that contained it
    places: dict[NamedRelation, int]


class Assembler:
    """Takes messages in order and appends committed transactions to `committed`, which the caller empties."""

    def __init__(
        self, source: str, make: MakeRelation, space: SpillSpace, bytes_max: int, tick: Callable[[], None]
    ) -> None:
        self._source = source
        self._make = make
        self._space = space
        self._bytes_max = bytes_max
        self._tick = tick
        #: the last relation message by oid, and the relations created from them at their first change
        self._named: dict[bytes, RelationMessage] = {}
        self._relations: dict[bytes, Relation] = {}
        self._unwanted: set[bytes] = set()
        #: see `take_named`
        self._named_now = Named([], {})
        self._naming: set[NamedRelation] = set()
        #: the transaction that is being received whole
        self._xid = 0
        self._ts_us = 0
        self._buffer: TransactionBuffer[list[Frame]] | None = None
        #: streamed transactions by xid, and the one whose block is being received
        self._open: dict[int, Streamed] = {}
        self._block: Streamed | None = None
        self.committed: list[SourceTransaction] = []
        #: end LSN of the last commit
        self.end_lsn = 0

    @property
    def is_inside(self) -> bool:
        """Whether a whole transaction or a block of a streamed one has begun and not ended."""
        return self._buffer is not None or self._block is not None

    def take_named(self) -> Named | None:
        """Return the relation messages since the last call, None without any."""
        found = self._named_now
        if not found.xids:
            return None
        self._named_now = Named([], {})
        return found

    def feed(self, m: bytes) -> None:
        """One XLogData message."""
        self.feed_all((m,), self._feed)

    def feed_all(self, found: Iterable[bytes], other: Callable[[bytes], None]) -> None:
        """Process messages in order; `other` is called with those that are not XLogData.

        Inserts of whole transactions are handled inline, because this is the hot path.
        """
        m = b""
        try:
            for m in found:
                if m[0] != XLOG_DATA:
                    other(m)
                    continue
                buffer = self._buffer
                if m[BODY] != 0x49 or buffer is None or self._block is not None:
                    self._feed(m)
                    continue
                relation = self._relations.get(m[BODY + 1 : _OID_END])
                if relation is None:
                    relation = self._make_named(m[BODY + 1 : _OID_END])
                    if relation is None:
                        continue
                body = relation.encode_insert(relation.read_whole(m, _TUPLE, [])[0], self._ts_us)
                buffer.frames.append((relation.header, body))
                buffer.grown(len(body))
        except (struct.error, IndexError, ValueError) as error:
            raise self._wrong(f"a truncated or malformed message: {m[BODY:][:64].hex(' ')}") from error
        except (CodecError, LogUnknownError) as error:
            error.source, error.thread = error.source or self._source, THREAD
            error.position = error.position or format_lsn(int.from_bytes(m[1:9]))
            raise

    def _feed(self, m: bytes) -> None:
        kind = m[BODY]
        if self._block is not None:
            self._feed_block(self._block, m, kind)
        elif kind == 0x49:  # I
            if relation := self._relation(m):
                self._add(relation.insert(m, BODY + 5, self._ts_us))
        elif kind == 0x55:  # U
            if relation := self._relation(m):
                self._add(relation.update(m, BODY + 5, self._ts_us))
        elif kind == 0x44:  # D
            if relation := self._relation(m):
                self._add(relation.delete(m, BODY + 5, self._ts_us))
        else:
            self._feed_rare(m, kind)

    def _add(self, frame: Frame) -> None:
        if self._buffer is None:
            raise self._wrong("a change outside of a transaction")
        self._buffer.add(frame)

    def _relation(self, m: bytes) -> Relation | None:
        oid = m[BODY + 1 : BODY + 5]
        return self._relations.get(oid) or self._make_named(oid)

    def _make_named(self, oid: bytes) -> Relation | None:
        if oid in self._unwanted:
            return None
        relation = self._make(self._named_as(oid), self._xid)
        if relation is None:
            self._unwanted.add(oid)
        else:
            self._relations[oid] = relation
        return relation

    def _named_as(self, oid: bytes) -> RelationMessage:
        if oid not in self._named:
            raise self._wrong(f"a change of relation {int.from_bytes(oid)}, for which no relation message was received")
        return self._named[oid]

    def _name(self, oid: bytes, message: RelationMessage) -> None:
        self._named[oid] = message
        self._relations.pop(oid, None)
        self._unwanted.discard(oid)
        columns = tuple(column.name for column in message.columns)
        self._naming.add(NamedRelation(message.oid, f"{message.namespace}.{message.name}", columns))

    def _has_named(self, xid: int, end_lsn: int) -> None:
        if self._naming:
            self._named_now.xids.append(xid)
            self._named_now.places.update(dict.fromkeys(self._naming, end_lsn))
            self._naming.clear()

    def _feed_rare(self, m: bytes, kind: int) -> None:
        at = BODY + 1
        match chr(kind):
            case "B":
                if self._buffer is not None:
                    raise self._wrong(f"a transaction begins inside of {self._xid}")
                begin = messages.begin(m, at)
                self._xid, self._ts_us = begin.xid, begin.commit_ts_us
                self._buffer = TransactionBuffer(self._space, self._bytes_max, [])
            case "C":
                self._commit(messages.commit(m, at))
            case "R":
                message = messages.relation(m, at)
                self._name(message.oid.to_bytes(4), message)
            case "T":
                for oid in messages.truncated(m, at):
                    if relation := self._relations.get(oid) or self._make_named(oid):
                        self._add(relation.truncate(self._ts_us))
            case "S":
                start = messages.stream_start(m, at)
                if self._buffer is not None:
                    raise self._wrong(f"a block of {start.xid} inside of {self._xid}")
                if start.is_first:
                    self._open[start.xid] = Streamed(Rows(self._space, self._bytes_max))
                elif start.xid not in self._open:
                    raise self._wrong(f"a block of {start.xid}, whose first block was not received")
                self._block = self._open[start.xid]
            case "c":
                self._stream_commit(messages.stream_commit(m, at))
            case "A":
                self._stream_abort(messages.stream_abort(m, at))
            # type (the catalogue has more), origin, and logical messages (lowwater's own heartbeats)
            case "Y" | "O" | "M":
                pass
            case _:
                raise messages.unknown(self._source, m[BODY:], format_lsn(int.from_bytes(m[1:9])))

    # -- whole transactions ------------------------------------------------------------------------------

    def _commit(self, commit: messages.CommitMessage) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            raise self._wrong("a commit outside of a transaction")
        self._has_named(self._xid, commit.end_lsn)
        size, count = buffer.bytes, buffer.count
        self._done(self._xid, commit.end_lsn, commit.commit_ts_us, buffer.changes(self._tick), size, count)

    def _done(self, xid: int, end_lsn: int, ts_us: int, changes: ChangeBatch, size: int, count: int) -> None:
        self.end_lsn = end_lsn
        if count:
            order = Order(end_lsn, 1)
            self.committed.append(SourceTransaction(THREAD, str(xid), order, ts_us, changes, size, count))

    # -- streamed transactions ---------------------------------------------------------------------------

    def _feed_block(self, block: Streamed, m: bytes, kind: int) -> None:
        at = BODY + 5  # every message in a block starts with the xid of its subtransaction
        match chr(kind):
            case "I" | "U" | "D":
                oid = m[at : at + 4]
                row = m[BODY : BODY + 1] + m[at:]
                self._keep(block, m, oid, row)
            case "T":
                for oid in messages.truncated(m, at):
                    self._keep(block, m, oid, b"T")
            case "R":
                message = messages.relation(m, at)
                block.add_shape(message.oid.to_bytes(4), message)
            case "E":
                self._block = None
            case "Y" | "O" | "M":
                pass
            case _:
                raise messages.unknown(self._source, m[BODY:], format_lsn(int.from_bytes(m[1:9])))

    def _keep(self, block: Streamed, m: bytes, oid: bytes, row: bytes) -> None:
        shape = block.by_oid.get(oid)
        if shape is None:
            shape = block.add_shape(oid, self._named_as(oid))
        number = int.from_bytes(m[BODY + 1 : BODY + 5]) << 32 | shape
        block.counts[number] = block.counts.get(number, 0) + 1
        block.rows.add(row, number)

    def _stream_commit(self, commit: StreamCommit) -> None:
        block = self._open.pop(commit.xid, None)
        if block is None:
            raise self._wrong(f"the commit of {commit.xid}, of which no block was received")
        counts = {number: n for number, n in block.counts.items() if number >> 32 not in block.aborted}
        shapes = sorted({number & 0xFFFFFFFF for number in counts})
        made = {shape: self._make(block.shapes[shape], commit.xid) for shape in shapes}
        relations = {shape: relation for shape, relation in made.items() if relation is not None}
        counts = {number: n for number, n in counts.items() if number & 0xFFFFFFFF in relations}
        # the server does not send these relation messages again: from now on they apply to all transactions
        for oid, shape in block.by_oid.items():
            self._name(oid, block.shapes[shape])
        self._has_named(commit.xid, commit.end_lsn)
        changes = StreamedChanges(block, relations, commit.commit_ts_us, format_lsn(commit.end_lsn), self._tick)
        size, count = block.rows.bytes, sum(counts.values())
        self._done(commit.xid, commit.end_lsn, commit.commit_ts_us, changes, size, count)

    def _stream_abort(self, abort: messages.StreamAbort) -> None:
        if abort.subxid == abort.xid:
            self._open.pop(abort.xid, None)
        elif abort.xid in self._open:
            self._open[abort.xid].aborted.add(abort.subxid)

    def _wrong(self, what: str) -> LogCorruptError:
        return LogCorruptError(
            what, source=self._source, thread=THREAD, position=format_lsn(self.end_lsn),
            hint="the stream is inconsistent: restart the source; if the error occurs again, report it",
        )  # fmt: skip
