"""Publishes committed transactions in Kafka transactions: changes, commits, marks to all partitions, then the position.

A source transaction larger than a batch spans several Kafka transactions. The position then contains its id, and the
count and checksum of the published prefix. After a crash the transaction is read again: if its first changes match the
prefix, publishing continues after them; if not, an `Abandon` record drops the prefix and publishing starts over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from zlib import crc32

from lowwater.codec.varint import long
from lowwater.errors import MarkBrokenError
from lowwater.kafka import topics
from lowwater.records.codec import RecordCodec, commit_after_source
from lowwater.records.ids import next_generation, transaction_id
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import (
    Abandon,
    Chunk,
    InProgress,
    Mark,
    MarkedThread,
    Position,
    SourceNote,
    TableCopies,
    TableCopy,
    ThreadPosition,
)
from lowwater.runtime.config import BatchConfig
from lowwater.runtime.failpoints import fail_point
from lowwater.status import tracing
from lowwater_extractor._native.slab import ROWS
from lowwater_extractor.api import SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.encoders import RegisteredEncoders
from lowwater_extractor.publish.outbox import Outbox
from lowwater_extractor.publish.slab_producer import SlabProducer
from lowwater_extractor.session.clock import SourceClock

#: maximum age of a batch while the source lags
FILL_SECONDS_MAX = 1.0


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a transaction's records. The same as librdkafka's `consistent` partitioner."""
    return crc32(key) % partitions


class Publisher:
    """The Kafka transactions of one session; not used any more after its producer is closed."""

    def __init__(
        self, producer: SlabProducer, codec: RecordCodec, encoders: RegisteredEncoders, batch: BatchConfig,
        partitions: int, position: Position, clock: SourceClock,
    ) -> None:  # fmt: skip
        #: copies and notes that have changed since the last position
        self._copies: TableCopies | None = None
        self._notes: dict[str, bytes] = {}
        self._producer = producer
        self._codec = codec
        self._batch = batch
        self._partitions = partitions
        #: maximum number of changes added in one call
        self._step = min(ROWS, batch.count_max)
        self._commit_head = codec.commit_head(position.source)
        self._commit_tail = long(position.generation)
        self._topic = topics.changes(position.source)
        self._position = position
        self._published: dict[int, Order] = {t.thread: t.published for t in position.threads}
        self._marks: dict[int, ThreadMark] = {
            t.thread: ThreadMark(t.thread, t.mark, t.resume, ThreadState(t.state), False) for t in position.threads
        }
        self._clock = clock
        self._outbox = Outbox(producer, position.source, encoders.row_key)
        #: (thread, txid) of the transaction that was abandoned last → its attempt
        self._abandoned: dict[tuple[int, str], int] = {}
        self._is_begun = False
        self._began_at = 0.0
        #: total bytes and records of all earlier batches
        self._before = (0, 0)
        #: transactions and changes that this session published
        self.transactions_total = 0
        self.changes_total = 0

    # -- state -------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        return self._position

    def published(self, thread: int) -> Order:
        return self._published.get(thread, ORDER_MIN)

    @property
    def marks(self) -> dict[int, ThreadMark]:
        return dict(self._marks)

    def mark(self, thread: int) -> Order:
        known = self._marks.get(thread)
        return known.order if known else ORDER_MIN

    @property
    def bytes_total(self) -> int:
        return self._outbox.bytes_total

    @property
    def is_full(self) -> bool:
        size, count = self._outbox.bytes_total - self._before[0], self._outbox.records_total - self._before[1]
        return size >= self._batch.bytes_max or count >= self._batch.count_max

    def is_due(self, caught_up: bool) -> bool:
        """Return whether the batch must be committed: early for low latency if caught up; a lagging source fills it."""
        if not self._is_begun:
            return False
        age_seconds = time.monotonic() - self._began_at
        limit_seconds = self._batch.milliseconds_max / 1000 if caught_up else FILL_SECONDS_MAX
        return self.is_full or age_seconds >= limit_seconds

    @property
    def has_records(self) -> bool:
        return self._outbox.records_total > self._before[1]

    # -- transactions ------------------------------------------------------------------------------------

    def add(self, transaction: SourceTransaction, now_us: int) -> int:
        """Publish one transaction; returns its size in bytes, 0 if it was published before.

        MarkBrokenError: its order is at or below the mark of its thread.
        """
        thread = transaction.thread
        if transaction.order <= self.published(thread):
            return 0
        if transaction.order <= self.mark(thread):
            raise MarkBrokenError(
                f"transaction {transaction.txid} committed at {transaction.order}, the mark is {self.mark(thread)}",
                source=self._position.source,
                thread=transaction.thread,
                position=str(transaction.order),
                hint="the source broke the order of its own log; do not resume it, report this with the log",
            )
        self._begin()
        key = self._key(transaction.thread, transaction.txid)
        partition = partition_of(key, self._partitions)
        before = self.bytes_total
        count, checksum = self._add_changes(transaction, key, partition)
        clock_us = self._clock.of_commit(transaction.commit_ts_us, now_us)
        ends = (transaction.commit_ts_us, clock_us, count, checksum)
        body = commit_after_source(thread, transaction.txid, transaction.order, *ends)
        self._outbox.put(self._commit_head + body + self._commit_tail, key, partition)
        if self._position.in_progress is not None and self._is_in_progress(transaction):
            self._position = replace(self._position, in_progress=None)
        self._published[thread] = transaction.order
        self.transactions_total += 1
        self.changes_total += count
        return self.bytes_total - before

    def _add_changes(self, transaction: SourceTransaction, key: bytes, partition: int) -> tuple[int, int]:
        count = checksum = 0
        if self._position.in_progress is not None and self._is_in_progress(transaction):
            count, checksum = self._behind_prefix(transaction)
        changes = transaction.changes.cursor(count, self._step_of(transaction))
        while not changes.is_at_end:
            taken, summed = self._outbox.put_changes(changes, count + 1, key, partition)
            count += taken
            checksum += summed
            if self.is_full and not changes.is_at_end:
                self._commit_prefix(transaction, count, checksum)
        return count, checksum

    def _step_of(self, transaction: SourceTransaction) -> int:
        """Return the maximum number of changes to add in one call; for large rows about one batch."""
        return min(self._step, 1 + self._batch.bytes_max * transaction.count // max(1, transaction.size_bytes))

    def _key(self, thread: int, txid: str) -> bytes:
        position = self._position
        return self._codec.key(transaction_id(position.source, position.incarnation, position.generation, thread, txid))

    # -- copies ------------------------------------------------------------------------------------------

    def plan_copies(self, chunks: Sequence[Chunk], copies: Iterable[TableCopy]) -> None:
        """Publish chunks, and store the state of copies in the position, in one Kafka transaction."""
        self._begin()
        topic = topics.chunks(self._position.source)
        for chunk in chunks:
            key = self._codec.key(f"{chunk.table}/{chunk.chunk}")
            self._producer.produce(topic, key, self._codec.encode(chunk), 0)
        fail_point("extractor.chunks_produced")
        self.set_copies(copies)

    def set_copies(self, copies: Iterable[TableCopy]) -> None:
        """Set the state of copies, which is written before the next position."""
        self._copies = TableCopies(self._position.source, tuple(copies))

    def note(self, notes: Mapping[str, bytes]) -> None:
        """Add notes, which are written before the next position."""
        self._notes |= notes

    # -- oversized ---------------------------------------------------------------------------------------

    def _is_in_progress(self, transaction: SourceTransaction) -> bool:
        open_ = self._position.in_progress
        return open_ is not None and (open_.thread, open_.txid) == (transaction.thread, transaction.txid)

    def _behind_prefix(self, transaction: SourceTransaction) -> tuple[int, int]:
        """Return count and checksum of the published prefix if the transaction begins with it; else abandon it."""
        open_ = self._position.in_progress
        assert open_ is not None
        count = checksum = 0
        if open_.changes <= transaction.count:
            for count, (header, body) in enumerate(islice(transaction.changes, open_.changes), 1):
                checksum += crc32(header + long(count) + body)
        if (count, checksum) == (open_.changes, open_.checksum):
            return count, checksum
        self.abandon()
        return 0, 0

    def _commit_prefix(self, transaction: SourceTransaction, count: int, checksum: int) -> None:
        open_ = self._position.in_progress
        if open_ is not None and not self._is_in_progress(transaction):
            # a source has only one transaction in progress: the other one is published from its start when it is read
            self.abandon()
            open_ = None
        attempt = open_.attempt if open_ else self._abandoned.get((transaction.thread, transaction.txid), 0) + 1
        progress = InProgress(transaction.thread, transaction.txid, transaction.order, attempt, count, checksum)
        self._position = replace(self._position, in_progress=progress)
        self._commit()
        fail_point("extractor.prefix_committed")
        self._begin()

    def abandon(self) -> None:
        """Drop the published prefix of the transaction in progress."""
        open_ = self._position.in_progress
        if open_ is None:
            return
        self._begin()
        key = self._key(open_.thread, open_.txid)
        record = self._codec.encode(Abandon(open_.txid, open_.attempt))
        self._outbox.put(record, key, partition_of(key, self._partitions))
        self._abandoned = {(open_.thread, open_.txid): open_.attempt}
        self._position = replace(self._position, in_progress=None)
        fail_point("extractor.abandon_produced")

    def reset(self, incarnation: str, now_us: int, notes: Iterable[str] = ()) -> None:
        """Delete the position: the next session captures the source from scratch, under the next generation.

        Durable when it returns. The state of copies is retained: the next session closes those in progress.
        """
        self._begin()
        self.note(dict.fromkeys(notes, b""))
        self.abandon()
        self._marks, self._published = {}, {}
        generation = next_generation(self._position.generation, now_us)
        self._position = replace(
            self._position, incarnation=incarnation, generation=generation, topic_id="", starts=()
        )  # fmt: skip
        self._commit()

    def move(self, places: Mapping[int, tuple[bytes, Order]]) -> None:
        """Set the resumes of threads, each with the mark that belongs to it. Durable when it returns.

        Transactions up to the last published order are not published again. A mark is never lowered.
        """
        self._begin()
        self.abandon()
        for thread, (resume, mark) in places.items():
            known = self._marks[thread]
            self._marks[thread] = known._replace(resume=resume, order=max(known.order, mark))
        self._commit()

    # -- ending a batch ----------------------------------------------------------------------------------

    def commit(self, marks: Mapping[int, ThreadMark], all_at_end: bool, now_us: int) -> None:
        """End the Kafka transaction with marks and the position; durable when it returns."""
        self._begin()
        open_ = self._position.in_progress
        if open_ is not None and open_.thread in marks and marks[open_.thread].order >= open_.order:
            # the log was read past its commit, but the transaction was not returned: it is no longer captured
            self.abandon()
        for mark in marks.values():
            # a mark is never lowered
            self._marks[mark.thread] = mark._replace(order=max(mark.order, self.mark(mark.thread)))
        self._outbox.hand_all_over()
        fail_point("extractor.batch_produced")
        threads = tuple(MarkedThread(t, m.order, m.state.value) for t, m in sorted(self._marks.items()))
        clock_us = self._clock.of_mark(all_at_end, now_us)
        record = self._codec.encode(Mark(self._position.epoch, clock_us, threads, self._position.generation))
        key = self._codec.key(self._position.source)
        for partition in range(self._partitions):
            self._producer.produce(self._topic, key, record, partition)
        fail_point("extractor.marks_produced")
        with tracing.span("publish", source=self._position.source):
            self._commit()

    def _commit(self) -> None:
        self._outbox.hand_all_over()
        self._producer.flush()
        threads = tuple(
            ThreadPosition(t, m.resume, self.published(t), m.order, m.state.value)
            for t, m in sorted(self._marks.items())
        )
        self._position = replace(self._position, clock_us=self._clock.last_us, threads=threads)
        source = self._position.source
        topic = topics.positions(source)
        if self._copies is not None:
            key = self._codec.key(f"{source}/copies")
            self._producer.produce(topic, key, self._codec.encode(self._copies), 0)
            self._copies = None
        for name, value in self._notes.items():
            key = self._codec.key(f"{source}/notes/{name}")
            self._producer.produce(topic, key, self._codec.encode(SourceNote(source, name, value)), 0)
        self._notes = {}
        self._producer.produce(topic, self._codec.key(source), self._codec.encode(self._position), 0)
        fail_point("extractor.position_produced")
        self._producer.commit()
        fail_point("extractor.committed")
        self._is_begun = False
        self._before = (self._outbox.bytes_total, self._outbox.records_total)

    def _begin(self) -> None:
        if not self._is_begun:
            self._producer.begin()
            self._is_begun = True
            self._began_at = time.monotonic()
