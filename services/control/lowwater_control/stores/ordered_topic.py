"""Reads the ordered topic: its last transactions, and a single transaction with its changes."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from lowwater.codec.json_values import plain
from lowwater.codec.varint import read_long
from lowwater.errors import TopicMissingError
from lowwater.kafka import topics
from lowwater.kafka.client import as_bus_error
from lowwater.kafka.consumer import STATE_SETTINGS, consumer_settings, read_to_end, topic_ends
from lowwater.records.codec import RecordCodec, decode_commit
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import Commit, Copied, Progress, Skipped
from lowwater.records.wire import HEADER_SIZE, schema_id_of
from lowwater.runtime.config import KafkaConfig
from lowwater_control.models import Change, Transaction, TransactionHead
from lowwater_control.problems import SlowError, UnknownError

READ_SECONDS_MAX = 20.0
#: records read first to find the newest transactions; more are read if transactions are large
WINDOW = 500
WINDOW_MAX = 200_000


def applied_commands(kafka: KafkaConfig, codec: RecordCodec, group: str) -> list[dict[str, Any]]:
    """The operator commands that a group's merger has applied, newest first."""
    try:
        messages, _ = read_to_end(kafka, topics.progress(group))
    except TopicMissingError:
        return []
    if not messages:
        return []
    progress = codec.decode(messages[-1].value() or b"", Progress)
    return [
        {
            "gsn": one.gsn, "command": one.word, "source": one.source, "thread": one.thread, "txid": one.txid,
            "reason": one.reason, "at_us": one.at_us,
        }
        for one in reversed(progress.words)
    ]  # fmt: skip


class OrderedReader:
    """A reader of one group's ordered topic for one request. A context manager."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, store: SchemaStore, group: str) -> None:
        self._codec = codec
        self._store = store
        self._group = group
        self._topic = topics.transactions(group)
        try:
            self._low, self._high = topic_ends(kafka, self._topic, 0, "read_committed")
        except TopicMissingError:
            self._low = self._high = 0
        self._deadline = time.monotonic() + READ_SECONDS_MAX
        self._consumer = Consumer(consumer_settings(kafka, "lowwater.look", **STATE_SETTINGS))
        self._schemas: dict[int, tuple[str, Any]] = {}

    def __enter__(self) -> OrderedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    # -- finding -----------------------------------------------------------------------------------------

    def _read(self, start: int, end: int, at_once: int = 500) -> Iterator[Message]:
        """Records from `start` to before `end`; offsets have gaps. Raises SlowError after READ_SECONDS_MAX."""
        self._consumer.assign([TopicPartition(self._topic, 0, start)])
        while True:
            for message in self._consumer.consume(at_once, 0.05):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise as_bus_error(error, f"read {self._topic}")
                if (message.offset() or 0) >= end or error is not None:
                    return
                yield message
            if time.monotonic() > self._deadline:
                raise SlowError(f"{self._topic} was not read in {READ_SECONDS_MAX:.0f} s", hint="retry")

    def _gsn_at(self, offset: int) -> int | None:
        """The gsn of the first record at or after the offset; None at the end of the topic."""
        message = next(self._read(offset, self._high, 1), None)
        return None if message is None else _place(message)[0]

    def _offset_of(self, gsn: int) -> int:
        """The offset of the first record with this gsn or a higher one. Binary search: gsns rise with offsets."""
        low, high = self._low, self._high
        while low < high:
            middle = (low + high) // 2
            found = self._gsn_at(middle)
            if found is None or found >= gsn:
                high = middle
            else:
                low = middle + 1
        return low

    # -- answers -----------------------------------------------------------------------------------------

    def last(self, limit: int, before: int | None) -> list[TransactionHead]:
        end = self._high if before is None else self._offset_of(before)
        window = WINDOW
        while True:
            start = max(self._low, end - window)
            heads = [h for m in self._read(start, end) if (h := self._head(m)) is not None] if start < end else []
            if len(heads) >= limit or start == self._low or window >= WINDOW_MAX:
                return heads[::-1][:limit]
            window *= 8

    def _head(self, message: Message) -> TransactionHead | None:
        """The head of the transaction that this record ends; None for a change."""
        gsn, _ = _place(message)
        value = message.value() or b""
        kind = self._codec.record_type(value)
        if kind is Commit:
            commit = decode_commit(value)
            return TransactionHead(
                gsn=gsn, source=commit.source, thread=commit.thread, txid=commit.txid, order=str(commit.order),
                commit_ts_us=commit.commit_ts_us, changes=commit.changes,
            )  # fmt: skip
        if kind is Skipped:
            skipped = self._codec.decode(value, Skipped)
            return TransactionHead(
                gsn=gsn, source=skipped.source, thread=skipped.thread, txid=skipped.txid, order=str(skipped.order),
                commit_ts_us=None, changes=0, skipped=skipped.reason,
            )  # fmt: skip
        return None

    def open(self, gsn: int, limit: int, after_seq: int) -> Transaction:
        rows: list[Change] = []
        tables: dict[str, dict[str, int]] = {}
        is_cut = False
        for message in self._read(self._offset_of(gsn), self._high):
            found, seq = _place(message)
            if found != gsn:
                break
            head = self._head(message)
            if head is not None:
                return Transaction(**head.model_dump(), tables=tables, masked=[], rows=rows, is_cut=is_cut)
            change = self._change(seq, message.value() or b"")
            counts = tables.setdefault(change.table, {})
            counts[change.op] = counts.get(change.op, 0) + 1
            if seq > after_seq and len(rows) < limit:
                rows.append(change)
            elif seq > after_seq:
                is_cut = True
        raise UnknownError(
            f"gsn {gsn} is not in {self._topic}",
            hint="it is not released yet, or is older than the topic's retention; see the lake",
        )

    def _change(self, seq: int, value: bytes) -> Change:
        if self._codec.record_type(value) is Copied:
            copied = self._codec.decode(value, Copied)
            after = {"copy": copied.copy, "tables": list(copied.tables)}
            return Change(seq=seq, op="copied", table=", ".join(copied.tables), before=None, after=after)
        schema_id = schema_id_of(value)
        if schema_id not in self._schemas:
            entry = self._store.entry(schema_id)
            self._schemas[schema_id] = (entry.table, fastavro.parse_schema(json.loads(entry.schema)))
        table, schema = self._schemas[schema_id]
        record: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_SIZE:]), schema, None)
        return Change(
            seq=seq, op=record["op"], table=table, before=plain(record["before"]), after=plain(record["after"]),
            unchanged=record["unchanged"] or [],
        )  # fmt: skip


def _place(message: Message) -> tuple[int, int]:
    key = message.key() or b""
    gsn, at = read_long(key, HEADER_SIZE)
    return gsn, read_long(key, at)[0]
