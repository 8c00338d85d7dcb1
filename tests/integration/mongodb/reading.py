"""A source of kind mongodb on a test's own database, read in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from tests.conformance.kit import SOURCE
from tests.support.mongodb import MongoDatabase, source_config
from tests.support.versions import Change, Versions

from lowwater.codec.avro import change_schema
from lowwater.codec.rules import ColumnRules, published
from lowwater.records.positions import ORDER_MAX, Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import SourceTransaction, StaleTable, ThreadMark
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.mongodb.catalogue import log_end
from lowwater_extractor.sources.mongodb.source import MongoDB
from lowwater_extractor.sources.mongodb.stream import MongoStream

WAIT_SECONDS = 60.0
Transactions = list[list[Change]]


class Read:
    """A stream from the moment at which it was opened: `new()` is what has committed since it was asked last."""

    def __init__(
        self, database: MongoDatabase, resume: bytes | None = None, encoders: Versions | None = None, **settings: Any
    ) -> None:
        self.database = database
        self.source = source_of(database, **settings)
        self.encoders = encoders or Versions()
        stream = self.source.stream({1: resume} if resume else {}, {}, self.encoders)
        assert isinstance(stream, MongoStream)
        self.stream = stream
        self.mark: ThreadMark
        self.stale: Mapping[str, StaleTable] = {}
        self._first: list[SourceTransaction] = []
        self._first = self.poll()

    def poll(self) -> list[SourceTransaction]:
        if self._first:
            found, self._first = self._first, []
            return found
        polled = self.stream.poll(frozenset())
        self.mark = polled.marks[1]
        self.stale = polled.stale
        kept = {**self.encoders.notes, **polled.notes}
        self.encoders.notes = {name: note for name, note in kept.items() if note}
        return polled.transactions

    @property
    def end(self) -> Order:
        """The mark that covers the log as it is now."""
        return Order.mark(log_end(self.database.client, SOURCE).time)

    def transactions(self) -> list[SourceTransaction]:
        """Until the marks have passed the end of the log as it is now."""
        end = self.end
        found, self._first = self._first, []
        deadline = time.monotonic() + WAIT_SECONDS
        while self.mark.order < end:
            assert time.monotonic() < deadline, f"the end has not come; found {len(found)} transactions"
            found += self.poll()
        return found

    def new(self) -> Transactions:
        return [[self.encoders.change(frame) for frame in t.changes] for t in self.transactions()]

    def one(self) -> list[Change]:
        """The changes of the one transaction that has committed."""
        (found,) = self.new()
        return found

    def close(self) -> None:
        self.stream.close()


@contextmanager
def reading(database: MongoDatabase, **settings: Any) -> Iterator[Read]:
    read = Read(database, **settings)
    try:
        yield read
    finally:
        read.close()


def source_of(database: MongoDatabase, **settings: Any) -> MongoDB:
    source = open_source(SOURCE, "mongodb", source_config(database, **settings))
    assert isinstance(source, MongoDB)
    return source


def copied(read: Read, name: str, rules: ColumnRules | None = None) -> pa.Table:
    """A collection as Spark's tasks would read it, chunk after chunk."""
    view = read.source.begin_view([name])
    try:
        ((table, at, chunks),) = view.plan(1)
    finally:
        view.close()
    assert at is None
    shown, _ = published(table, rules or ColumnRules())
    avro = json.dumps(change_schema(shown))
    low = read.mark.order
    batches = [
        batch
        for number, (bounds, rows) in enumerate(chunks, 1)
        for batch in read.source.read_chunk(
            Chunk(SOURCE, "c", name, number, len(chunks), 1, bounds, low, ORDER_MAX, rows),
            avro,
            rules or ColumnRules(),
        )
    ]
    return pa.Table.from_batches(batches) if batches else pa.table({})
