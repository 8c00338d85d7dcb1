"""Writes an ordered topic directly, as a merger would: fast, and with any shape of transactions and tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

from bench.encoder import NOW_US, TABLE, row
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.varint import long
from lowwater.kafka import topics
from lowwater.kafka.producer import TransactionalProducer
from lowwater.records.codec import RecordCodec
from lowwater.records.positions import Order
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import Commit, OrderKey
from lowwater.runtime.config import Settings

#: of ten changes: four rows are new, four are updated and one is deleted by a log that has only the key of what was
#: before (PostgreSQL's default), one is updated by a log that has all of it
MIX = "cucucucuUd"
#: the heaviest: every change is an update with both rows
BOTH_ROWS = "U"


def _change(encoder: TableEncoder, op: str, n: int) -> bytes:
    key = (n, *(None,) * (len(row(n)) - 1))
    match op:
        case "c":
            return encoder.body("c", None, row(n), NOW_US + n)
        case "u":
            return encoder.body("u", None, row(n), NOW_US + n)
        case "d":
            return encoder.body("d", key, None, NOW_US + n)
        case _:
            return encoder.body("u", row(n), row(n + 1), NOW_US + n)


class OrderedWriter:
    """One group's ordered topic, of one source with some tables alike."""

    def __init__(
        self,
        settings: Settings,
        store: SchemaStore,
        codec: RecordCodec,
        group: str,
        source: str,
        tables: int = 1,
        mix: str = MIX,
    ) -> None:
        self._codec = codec
        self._source = source
        self._topic = topics.transactions(group)
        self._producer = TransactionalProducer(settings.kafka, f"bench.{group}")
        self._producer.init()
        self.gsn = 0
        self._key_header = codec.headers[OrderKey.__name__]
        # not all alike: a hundred bodies a table, so that compression has something to do
        self._tables: list[tuple[bytes, list[bytes]]] = []
        made = [replace(TABLE, source=source, table=f"{TABLE.table}_{number}") for number in range(tables)]
        store.announce(made, topics.changes(source))
        for table in made:
            encoder = TableEncoder(table, store.table_id(table, topics.changes(source)))
            bodies = [_change(encoder, mix[n % len(mix)], n) for n in range(100)]
            self._tables.append((encoder.header, bodies))
            #: of the last one: they are alike
            self.avro = store.schema_text(int.from_bytes(encoder.header[1:5], "big"))
        #: the first of them that changes go to
        self.tables_used = tables

    def write(self, transactions: int, changes: int, per_batch: int = 30_000, commit_ts_us: int = 0) -> None:
        """Transactions of `changes` changes each, spread over the tables; several to a Kafka transaction."""
        per_transaction = max(1, per_batch // (changes + 1))
        for start in range(0, transactions, per_transaction):
            self._producer.begin()
            for _ in range(min(per_transaction, transactions - start)):
                self._transaction(changes, commit_ts_us or time.time_ns() // 1000)
            self._producer.flush()
            self._producer.commit()

    def _transaction(self, changes: int, ts_us: int) -> None:
        self.gsn += 1
        key = self._key_header + long(self.gsn)
        checksum = 0
        for start in range(1, changes + 1, 10_000):
            seqs = range(start, min(start + 10_000, changes + 1))
            values = [self._value(seq) for seq in seqs]
            checksum += sum(map(crc32, values))
            self._send([key + long(seq) for seq in seqs], values)
        commit = Commit(self._source, 1, f"{self.gsn:016x}", Order(self.gsn, 1), ts_us, ts_us, changes, checksum)
        self._send([key + long(changes + 1)], [self._codec.encode(commit)])

    def _value(self, seq: int) -> bytes:
        header, bodies = self._tables[(self.gsn + seq) % self.tables_used]
        return header + long(seq) + bodies[seq % 100]

    def _send(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        messages = [{"key": k, "value": v, "partition": 0} for k, v in zip(keys, values, strict=True)]
        self._producer.produce_batch(self._topic, messages)
