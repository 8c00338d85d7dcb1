"""A table in memory that is read by its cursor, and sessions that publish it to a broker that only remembers."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from tests.unit.extractor.test_publisher import CODEC, Broker, FakeEncoders, FakeProducer

from lowwater.codec.table import TableSchema
from lowwater.codec.varint import read_long
from lowwater.records.codec import decode_commit
from lowwater.records.types import Abandon, Commit, Position
from lowwater.records.wire import HEADER_SIZE
from lowwater.runtime.config import BatchConfig
from lowwater_extractor.api import ThreadMark
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Cursors, Range, TableCursor
from lowwater_extractor.incremental.stream import IncrementalStream, Pace, UpperBounds
from lowwater_extractor.publish.publisher import Publisher
from lowwater_extractor.session.clock import SourceClock

TABLE = "s.t"
HEADER = b"\x00\x00\x00\x27\x10"
COLUMNS = ("stamp", "id")
#: stamp (None: null), id, version
Row = tuple[int | None, int, int]


class Table:
    """Several rows may have one stamp: the id tells them apart, and rises within it."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._ticks = 0
        self._last = -1
        self._versions = 0

    def put(self, key: int, *, ticks: bool = True) -> None:
        self._ticks += ticks or key <= self._last
        self._last = key
        self._versions += 1
        self.rows[key] = (self._ticks, key, self._versions)

    def put_null(self, key: int) -> None:
        self._versions += 1
        self.rows[key] = (None, key, self._versions)


class TableReader:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._view: dict[int, Row] | None = None
        self.reads = 0
        self.seen: dict[str, TableSchema] = {}

    def _rows(self, after: Bound | None) -> list[Row]:
        if self._view is None:
            self._view = dict(self._table.rows)
        known = [row for row in self._view.values() if row[0] is not None]
        if after:
            known = [row for row in known if (row[0], row[1]) > tuple(int(v or 0) for v in after)]
        return sorted(known)

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, UpperBounds]:
        yield
        rows, look = self._rows(committed[TABLE]), UpperBounds(1_000_000, {}, {})
        if rows:
            look.settled[TABLE] = (str(rows[-1][0]), str(rows[-1][1]))
        elif committed[TABLE] is None:
            look.settled[TABLE] = LOWEST
        return look

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        self.reads += 1
        yield []
        after, to = ranges[TABLE]
        limit = tuple(int(v or 0) for v in to)
        found = [row for row in self._rows(after) if to and (row[0], row[1]) <= limit]
        if after is None:
            found += sorted(row for row in (self._view or {}).values() if row[0] is None)
        for start in range(0, len(found), 2):
            yield [HEADER + f"{at_us}:{row!r}".encode() for row in found[start : start + 2]]

    def end(self) -> None:
        self._view = None

    def close(self) -> None:
        return None


class Killed(Exception):
    """Instead of SIGKILL."""


class DyingProducer(FakeProducer):
    def __init__(self, broker: Broker, calls: int | None) -> None:
        super().__init__(broker)
        self._calls = calls

    def _live(self) -> None:
        if self._calls is not None:
            self._calls -= 1
            if self._calls < 0:
                raise Killed

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        self._live()
        super().produce(topic, key, value, partition)

    def commit(self) -> None:
        self._live()
        super().commit()
        self._live()


class Session:
    """As the runtime's, without a clock."""

    def __init__(
        self, broker: Broker, table: Table, directory: Path | None = None, *, calls: int | None = None,
        columns: tuple[str, ...] = COLUMNS, count_max: int = 3,
    ) -> None:  # fmt: skip
        last = broker.position if broker.transactions else Position("rac", "i", 0, 0, None, ())
        position = Position(
            last.source, last.incarnation, last.epoch + 1, last.clock_us, last.in_progress, last.threads
        )
        self.publisher = Publisher(
            cast(Any, DyingProducer(broker, calls)), CODEC, cast(Any, FakeEncoders()), BatchConfig(count_max=count_max),
            1, position, SourceClock(position.clock_us, 5_000_000),
        )  # fmt: skip
        self.reader = TableReader(table)
        resume = position.threads[0].resume if position.threads else None
        pace = Pace(poll_seconds=1e-9, settle_seconds=0, spill_bytes_max=40, spill_directory=directory)
        self.stream = IncrementalStream("rac", self.reader, {TABLE: columns}, resume, pace)
        self._marks: dict[int, ThreadMark] = self.publisher.marks

    @property
    def cursors(self) -> Cursors:
        return Cursors.unpack(self._marks[1].resume)

    def poll(self) -> None:
        polled = self.stream.poll(frozenset())
        for transaction in polled.transactions:
            self.publisher.add(transaction, 0)
            if self.publisher.is_full:
                self.commit()
        self._marks = dict(polled.marks)

    def commit(self) -> None:
        self.publisher.commit(self._marks, True, 0)
        self.stream.acknowledge({t: m.resume for t, m in self._marks.items()})

    def poll_until(self, is_open: bool) -> None:
        for _ in range(500):
            self.poll()
            if self.cursors.is_open == is_open:
                return
        raise AssertionError(f"no sync became {'open' if is_open else 'closed'}")

    def sync(self) -> None:
        """One whole sync, durable."""
        self.poll_until(is_open=True)
        self.commit()
        self.poll_until(is_open=False)
        self.commit()

    def close(self) -> None:
        self.stream.close()


def begun(broker: Broker, table: Table, **options: Any) -> Session:
    session = Session(broker, table, **options)
    session.poll()
    session.commit()
    return session


def syncs(broker: Broker) -> list[list[Row]]:
    """What a merger would make of it: the rows of each transaction."""
    found: list[list[Row]] = []
    rows: list[Row] = []
    for value in broker.changes:
        kind = CODEC.record_type(value)
        if value[:HEADER_SIZE] == HEADER:
            seq, at = read_long(value, HEADER_SIZE)
            rows.append(ast.literal_eval(value[at:].partition(b":")[2].decode()))
            assert seq == len(rows), "a gap, or a part that is there twice"
        elif kind is Commit:
            assert decode_commit(value).changes == len(rows)
            found.append(rows)
            rows = []
        elif kind is Abandon:
            rows = []
    return found


def state(broker: Broker) -> dict[int, Row]:
    return {row[1]: row for rows in syncs(broker) for row in rows}


def assert_same(broker: Broker, table: Table) -> None:
    published = [row for rows in syncs(broker) for row in rows]
    assert len(published) == len(set(published)), "a row came twice"
    assert state(broker) == table.rows


def prepared(broker: Broker, table: Table, **options: Any) -> Session:
    """The first phase of a sync is durable: `next` is in the position, no row is read."""
    session = begun(broker, table, **options)
    session.poll_until(is_open=True)
    session.commit()
    return session


def saved(broker: Broker) -> TableCursor:
    return Cursors.unpack(broker.position.threads[0].resume).tables[TABLE]


def table_of(rows: int) -> Table:
    table = Table()
    for key in range(rows):
        table.put(key, ticks=key % 2 == 0)
    return table
