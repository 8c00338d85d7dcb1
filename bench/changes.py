"""Writes a changes topic directly, as an extractor would: fast, and with any shape of transactions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from zlib import crc32

from bench.encoder import NOW_US, TABLE, row
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.varint import long
from lowwater.kafka import topics
from lowwater.kafka.producer import TransactionalProducer
from lowwater.records.codec import RecordCodec
from lowwater.records.positions import Order
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import Commit, Mark, MarkedThread
from lowwater.runtime.config import Settings


@dataclass
class ChangesWriter:
    """One source's changes topic."""

    settings: Settings
    store: SchemaStore
    codec: RecordCodec
    source: str
    threads: int = 1

    def __post_init__(self) -> None:
        self._partitions = self.settings.source(self.source).partitions
        self._topic = topics.changes(self.source)
        self._producer = TransactionalProducer(self.settings.kafka, f"bench.{self.source}")
        self._producer.init()
        encoder = TableEncoder(TABLE, self.store.table_id(TABLE, self._topic))
        self._header = encoder.header
        # not all alike: a hundred bodies, so that compression has something to do
        self._bodies = [encoder.body("u", row(n), row(n + 1), NOW_US + n) for n in range(100)]
        self._scn = 1
        self._clock_us = time.time_ns() // 1000
        self._marks = dict.fromkeys(range(1, self.threads + 1), 0)

    def mark(self, *threads: int) -> None:
        """These threads have been read to the present SCN; a Kafka transaction of its own."""
        self._producer.begin()
        self._put_mark(threads)
        self._producer.flush()
        self._producer.commit()

    def _put_mark(self, threads: tuple[int, ...]) -> None:
        self._clock_us += 1
        self._marks.update(dict.fromkeys(threads, self._scn))
        named = tuple(MarkedThread(t, Order.mark(scn), "open") for t, scn in self._marks.items())
        value = self.codec.encode(Mark(1, self._clock_us, named))
        for partition in range(self._partitions):
            self._producer.produce(self._topic, self.codec.key(self.source), value, partition)

    def write(self, transactions: int, changes: int, marked: tuple[int, ...], per_batch: int = 30_000) -> None:
        """Transactions of thread 1, with marks of `marked` threads at the end of each batch."""
        per_transaction = max(1, per_batch // (changes + 1))
        for start in range(0, transactions, per_transaction):
            self._producer.begin()
            for number in range(start, min(start + per_transaction, transactions)):
                self._transaction(number, changes)
            self._put_mark(marked)
            self._producer.flush()
            self._producer.commit()

    def _transaction(self, number: int, changes: int) -> None:
        self._scn += 1
        self._clock_us += 1
        txid = f"{number:016x}"
        key = self.codec.key(f"{self.source}/1/1/{txid}")
        partition = crc32(key) % self._partitions
        checksum = 0
        for start in range(1, changes + 1, 10_000):
            seqs = range(start, min(start + 10_000, changes + 1))
            values = [self._header + long(seq) + self._bodies[seq % 100] for seq in seqs]
            checksum += sum(map(crc32, values))
            messages = [{"key": key, "value": value, "partition": partition} for value in values]
            self._producer.produce_batch(self._topic, messages)
        commit = Commit(self.source, 1, txid, Order(self._scn, 1), NOW_US, self._clock_us, changes, checksum)
        self._producer.produce(self._topic, key, self.codec.encode(commit), partition)
