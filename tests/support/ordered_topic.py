"""Writes an ordered topic as a merger would, one transaction at a time: any tables, any changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import long
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.producer import TransactionalProducer
from lowwater.records.positions import Order
from lowwater.records.schemas import open_store
from lowwater.records.types import Commit, Copied, OrderKey, Skipped
from lowwater.runtime.config import Settings

#: table, op, before, after, columns that the log left out
Change = tuple[Any, ...]
TS_US = 1_763_000_000_000_000


class OrderedTopic:
    """`with topic.released(): topic.transaction(...)`: one Kafka transaction, as a merger releases."""

    def __init__(self, settings: Settings, group: str) -> None:
        self.settings = settings
        self.group = group
        self.source = settings.group(group).sources[0]
        self.name = topics.transactions(group)
        config = settings.group(group)
        wanted = [*topics.shared_topics(), *topics.group_topics(group, config), *topics.lake_topics(group)]
        Admin(settings.kafka).ensure(wanted)
        self.store = open_store(settings)
        self.codec = self.store.record_codec()
        self.gsn = 0
        self._encoders: dict[TableSchema, TableEncoder] = {}
        self._producer = TransactionalProducer(settings.kafka, f"test.{group}")
        self._producer.init()

    def __enter__(self) -> OrderedTopic:
        self._producer.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush()
        self._producer.commit()

    def _encoder(self, table: TableSchema) -> TableEncoder:
        if table not in self._encoders:
            schema_id = self.store.table_id(table, topics.changes(self.source))
            self._encoders[table] = TableEncoder(table, schema_id)
        return self._encoders[table]

    def _values(self, changes: Sequence[Change]) -> list[bytes]:
        values = []
        for seq, (table, op, before, after, *more) in enumerate(changes, 1):
            encoder = self._encoder(table)
            body = encoder.body(op, before, after, TS_US + seq, *more)
            values.append(encoder.header + long(seq) + body)
        return values

    def transaction(self, *changes: Change, thread: int = 1, ts_us: int | None = None) -> int:
        return self.values(self._values(changes), thread, ts_us)

    def copied(self, record: Copied) -> int:
        return self.values([self.codec.encode(record)], 1, None)

    def values(self, values: list[bytes], thread: int = 1, ts_us: int | None = None) -> int:
        """One transaction of these values; its gsn."""
        self.gsn += 1
        at_us = ts_us or time.time_ns() // 1000
        commit = Commit(
            self.source, thread, f"{self.gsn:08x}", Order(1000 + self.gsn, 1), at_us, at_us, len(values),
            sum(map(crc32, values)),
        )  # fmt: skip
        self._send([*values, self.codec.encode(commit)])
        return self.gsn

    def skipped(self, reason: str) -> int:
        self.gsn += 1
        record = Skipped(self.source, 1, f"{self.gsn:08x}", Order(1000 + self.gsn, 1), 0, reason)
        self._send([self.codec.encode(record)])
        return self.gsn

    def raw(self, gsn: int, seq: int, value: bytes) -> None:
        """Anything at all: what a merger would never write."""
        key = self.codec.headers[OrderKey.__name__] + long(gsn) + long(seq)
        self._producer.produce_batch(self.name, [{"key": key, "value": value}], 0)

    def _send(self, values: list[bytes]) -> None:
        head = self.codec.headers[OrderKey.__name__] + long(self.gsn)
        messages = [{"key": head + long(seq), "value": value} for seq, value in enumerate(values, 1)]
        for start in range(0, len(messages), 10_000):
            self._producer.produce_batch(self.name, messages[start : start + 10_000], 0)
