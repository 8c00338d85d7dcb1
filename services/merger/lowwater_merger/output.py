"""Writes released transactions and progress in one Kafka transaction."""

from __future__ import annotations

import time
from typing import Any
from zlib import crc32

from lowwater.codec.varint import SMALL, long
from lowwater.errors import DiskError, TransactionTooLargeError
from lowwater.kafka import topics
from lowwater.kafka.producer import TransactionalProducer
from lowwater.records.codec import RecordCodec, decode_commit
from lowwater.records.types import Progress, Skipped
from lowwater.runtime.failpoints import fail_point
from lowwater_merger.core.merger import Released

#: seq 1 … 8191 as varints
_SEQS = SMALL[0::2]
SLAB = 5_000
#: the time counted for one slab is capped at this
_SLAB_SECONDS_MAX = 60.0


class Output:
    """The ordered topic and the progress topic of one group."""

    def __init__(self, producer: TransactionalProducer, codec: RecordCodec, group: str, seconds_max: float) -> None:
        #: the longest time that one Kafka transaction may take
        self._seconds_max = seconds_max
        self._producer = producer
        self._codec = codec
        self._group = group
        self._topic = topics.transactions(group)
        self._key_header = codec.headers["OrderKey"]
        self._messages: list[dict[str, Any]] = []
        self._busy_seconds = 0.0
        self._is_begun = False

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    def begin(self) -> None:
        if not self._is_begun:
            self._producer.begin()
            self._is_begun = True
            self._busy_seconds = 0.0

    def put(self, released: Released) -> int:
        """Write one whole transaction. Returns its approximate size in bytes."""
        self.begin()
        prefix = self._key_header + long(released.gsn)
        entry = released.transaction
        if entry.skip is not None:
            self._put_skipped(prefix, released)
        elif entry.buffer.spooled is None and entry.count <= SLAB:
            self._add(prefix, 1, entry.buffer.values)
            self._add(prefix, entry.count + 1, [entry.commit])
        else:
            self._put_large(prefix, released)
        if len(self._messages) >= SLAB:
            self._hand_over()
        return entry.size_bytes

    def _put_skipped(self, prefix: bytes, released: Released) -> None:
        entry = released.transaction
        generation, order, thread, txid = entry.key
        reason = entry.skip or ""
        skipped = Skipped(released.source, thread, txid, order, released.clock_us, reason, generation)
        self._add(prefix, 1, [self._codec.encode(skipped)])

    def _put_large(self, prefix: bytes, released: Released) -> None:
        """Write in slabs, so that values handed to the client are not held in memory twice."""
        entry = released.transaction
        is_from_disk = entry.buffer.spooled is not None
        seq, checksum = 1, 0
        for block in entry.buffer.blocks():
            for start in range(0, len(block), SLAB):
                slab = block[start : start + SLAB]
                if is_from_disk:
                    checksum += sum(map(crc32, slab))
                self._add(prefix, seq, slab)
                seq += len(slab)
                self._hand_over()
            self._check_time(released)
        if is_from_disk:
            self._check_again(released, seq - 1, checksum)
        self._add(prefix, seq, [entry.commit])
        entry.buffer.drop()

    def _check_again(self, released: Released, count: int, checksum: int) -> None:
        """Check count and checksum again: the values were on disk since they were compared with their Commit.

        The Kafka transaction is still open, so an error here releases nothing.
        """
        commit = decode_commit(released.transaction.commit)
        if (count, checksum) != (commit.changes, commit.checksum):
            raise DiskError(
                f"transaction {commit.txid}: {count} changes read from the spool do not match the count "
                f"({commit.changes}) or the checksum of the commit",
                source=released.source,
                thread=commit.thread,
                position=str(commit.order),
                hint="nothing of it was released, and it is read again from Kafka; check the disk of the spool",
            )

    def _add(self, prefix: bytes, seq: int, values: list[bytes]) -> None:
        end = seq + len(values)
        seqs = _SEQS[seq:end] if end <= len(_SEQS) else map(long, range(seq, end))
        self._messages += [{"key": prefix + s, "value": value} for s, value in zip(seqs, values, strict=True)]

    def _hand_over(self) -> None:
        if self._messages:
            started = time.monotonic()
            self._producer.produce_batch(self._topic, self._messages, 0)
            self._messages = []
            # capped: a produce that hangs ends the session anyway, and time in which the process was suspended must
            # not count
            self._busy_seconds += min(time.monotonic() - started, _SLAB_SECONDS_MAX)

    def _check_time(self, released: Released) -> None:
        """Raises TransactionTooLargeError if a source transaction takes too long to produce.

        A source transaction is never split, so it must be delivered within the broker's transaction timeout. Only time
        spent in produce calls counts, not the time since the Kafka transaction began.
        """
        if self._busy_seconds > self._seconds_max * 0.8:
            key = released.transaction.key
            raise TransactionTooLargeError(
                f"transaction {key.txid} with {released.transaction.count} changes does not fit one Kafka transaction",
                source=released.source,
                thread=key.thread,
                position=str(key.order),
                hint="raise the broker's transaction.max.timeout.ms and transaction.timeout.ms of kafka.client; skip "
                "this transaction only if its changes may be lost",
            )

    def commit(self, progress: Progress, offsets: dict[tuple[str, int], int], group_metadata: Any) -> None:
        """Commit the released transactions together with `progress`; both are durable when it returns."""
        self.begin()
        self._hand_over()
        fail_point("merger.released")
        key = self._codec.key(self._group)
        self._producer.produce(topics.progress(self._group), key, self._codec.encode(progress), 0)
        fail_point("merger.progress_produced")
        # once the records are delivered, the broker has completed the previous transaction; before that, it rejects
        # the offsets, and the client retries only after its backoff of a quarter of a second
        self._producer.flush()
        # only for lag monitoring tools: committed offsets can expire, the progress record cannot
        self._producer.send_offsets(offsets, group_metadata)
        self._producer.commit()
        self._is_begun = False
        fail_point("merger.committed")
