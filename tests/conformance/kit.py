"""What a source kind brings along to be held to the promises of `lowwater_extractor.api`.

A new kind writes a `Kit` in a module of its own and adds one line to `KITS` in `kits.py`. The tests know nothing of
any kind: they make a database, let it work, and compare what a stream hands over with the database's own history.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import fastavro

from lowwater.codec.avro import change_schema
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import long
from lowwater.records.ids import SchemaId
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.wire import HEADER_SIZE, schema_id_of
from lowwater_extractor.api import Frame, Polled, Source, SourceTransaction, Stream
from lowwater_extractor.sources import open_source

SOURCE = "conformance"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class PastChange(NamedTuple):
    """One change as the database itself remembers it; instants are microseconds since 1970."""

    op: str
    table: str
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


class PastTransaction(NamedTuple):
    thread: int
    txid: str
    changes: tuple[PastChange, ...]


class Database(Protocol):
    """One database that a kit has made. All threads are there from the beginning."""

    def work(self, transactions: int) -> None:
        """Commit this many, over all threads, some with several changes; afterwards the log can be read to there."""
        ...

    def history(self) -> list[PastTransaction]:
        """All that was committed, in commit order; what was rolled back is not in it."""
        ...

    def version(self) -> str:
        """As the server says it."""
        ...

    def close(self) -> None: ...


class Kit(Protocol):
    kind: str
    #: how many threads its databases have
    threads: int
    #: a fresh capture begins with what commits from now on, not with the oldest log that is there
    begins_now: bool

    def create(self, directory: Path) -> Database: ...

    def config(self, directory: Path) -> dict[str, Any]:
        """Settings with which the database is read, in small pieces so that one work takes many polls."""
        ...

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        """Settings that are refused, each under the name of the field that is wrong."""
        ...

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Full name → columns, key."""
        ...

    def stop(self) -> None:
        """After the last test: whatever all of its databases share."""
        ...


class Encoders:
    """In the place of the runtime's: compiled as there, and each schema is kept so that frames can be decoded."""

    def __init__(self) -> None:
        self.notes: dict[str, bytes] = {}
        self.rules = ColumnRules()
        self._encoders: dict[TableSchema, TableEncoder] = {}
        self._schemas: dict[SchemaId, tuple[str, Any]] = {}

    def encoder(self, table: TableSchema) -> TableEncoder:
        if table not in self._encoders:
            schema_id = SchemaId(1000 + len(self._encoders))
            schema = fastavro.parse_schema(json.loads(json.dumps(change_schema(table))))
            self._schemas[schema_id] = (table.full_name, schema)
            self._encoders[table] = TableEncoder(table, schema_id)
        return self._encoders[table]

    def known(self) -> set[str]:
        return {table.full_name for table in self._encoders}

    def last_header(self, table: str) -> bytes | None:
        headers = [encoder.header for known, encoder in self._encoders.items() if known.full_name == table]
        return headers[-1] if headers else None

    def versioned(self, table: TableSchema) -> TableSchema:
        known = [t for t in self._encoders if t.full_name == table.full_name]
        same = [t for t in known if (t.columns, t.key) == (table.columns, table.key)]
        return same[0] if same else replace(table, version=len(known) + 1)

    def decode(self, frame: Frame, seq: int) -> PastChange:
        """With fastavro, under the schema that the frame's header names."""
        header, body = frame
        assert len(header) == HEADER_SIZE
        table, schema = self._schemas[schema_id_of(header)]
        data = io.BytesIO(long(seq) + body)
        change: Any = fastavro.schemaless_reader(data, schema, None)
        assert data.read() == b"", "bytes behind the record"
        assert change["seq"] == seq
        return PastChange(change["op"], table, _row(change["before"]), _row(change["after"]))


def _row(row: dict[str, Any] | None) -> tuple[Any, ...] | None:
    return None if row is None else tuple(map(_plain, row.values()))


def _plain(value: Any) -> Any:
    if not isinstance(value, dt.datetime):
        return value
    # a local time has no zone
    at = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (at - _EPOCH) // dt.timedelta(microseconds=1)


@dataclass
class Setup:
    """A database of some kind and how it is read."""

    kit: Kit
    directory: Path
    database: Database
    encoders: Encoders

    def open(self) -> Source:
        return open_source(SOURCE, self.kit.kind, self.kit.config(self.directory))

    def stream(self, resumes: Mapping[int, bytes] | None = None, marks: Mapping[int, Order] | None = None) -> Stream:
        return self.open().stream(resumes or {}, marks or {}, self.encoders)


class Reading:
    """A stream that is read, with everything that it has handed over so far."""

    def __init__(self, setup: Setup, stream: Stream) -> None:
        self.setup = setup
        self.stream = stream
        self.polls: list[Polled] = []
        #: what the transactions of each poll held: they are read before the next poll, as the runtime does
        self.read: list[list[PastTransaction]] = []

    def poll(self, held: frozenset[int] = frozenset()) -> Polled:
        polled = self.stream.poll(held)
        self.polls.append(polled)
        self.read.append([read(t, self.setup.encoders) for t in polled.transactions])
        return polled

    def drain(self) -> Reading:
        """Until several polls in a row find every thread at its end and nothing new."""
        quiet, before = 0, None
        while quiet < 3:
            polled = self.poll()
            orders = {thread: mark.order for thread, mark in polled.marks.items()}
            ended = all(mark.at_end for mark in polled.marks.values())
            quiet = quiet + 1 if ended and not polled.transactions and orders == before else 0
            before = orders
            assert len(self.polls) < 20_000, "it never comes to its end"
        return self

    @property
    def transactions(self) -> list[SourceTransaction]:
        return [t for polled in self.polls for t in polled.transactions]

    def contents(self) -> list[PastTransaction]:
        return [transaction for found in self.read for transaction in found]


def read(transaction: SourceTransaction, encoders: Encoders) -> PastTransaction:
    changes = tuple(encoders.decode(frame, seq) for seq, frame in enumerate(transaction.changes, 1))
    return PastTransaction(transaction.thread, transaction.txid, changes)


def by_thread(transactions: Sequence[PastTransaction]) -> dict[int, list[PastTransaction]]:
    """Each thread's, in the order in which they are given: between threads a stream promises none."""
    found: dict[int, list[PastTransaction]] = {}
    for transaction in transactions:
        found.setdefault(transaction.thread, []).append(transaction)
    return found


def published(polls: Sequence[Polled]) -> dict[int, Order]:
    """The last order of each thread that these polls handed over."""
    orders: dict[int, Order] = {}
    for polled in polls:
        for transaction in polled.transactions:
            orders[transaction.thread] = max(transaction.order, orders.get(transaction.thread, ORDER_MIN))
    return orders
