"""A source of kind postgres on a test's own database, read in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.conformance.kit import SOURCE
from tests.support.postgres import Database
from tests.support.versions import Change, Transactions, Versions

from lowwater.errors import SourceLostError
from lowwater.records.positions import Order
from lowwater_extractor.api import SourceTransaction, Stream, ThreadMark
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.postgres.source import Postgres
from lowwater_extractor.sources.postgres.stream import PostgresStream

MARKER = "public.lowwater_marker"
WAIT_SECONDS = 60.0


class Read:
    """A stream from the moment at which it was opened: `new()` is what has committed since it was asked last."""

    def __init__(
        self, database: Database, resumes: Mapping[int, bytes] | None = None, notes: Mapping[str, bytes] | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.database = database
        self.source: Postgres = source_of(database, **settings)
        self.encoders = Versions()
        self.notes = dict(notes or {})
        self.encoders.notes = dict(self.notes)
        self.stale: dict[str, Order] = {}
        self.stream: Stream = self._opened(resumes or {})
        self.mark: ThreadMark | None = None
        if resumes is None:
            self.poll()

    def _opened(self, resumes: Mapping[int, bytes]) -> Stream:
        """As a service does: the server releases the lock of a connection some time after it was closed."""
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.source.stream(resumes, {}, self.encoders)
            except SourceLostError as error:
                if "lock" not in error.what or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def poll(self) -> list[SourceTransaction]:
        polled = self.stream.poll(frozenset())
        self.mark = polled.marks[1]
        self.notes = {name: value for name, value in (self.notes | polled.notes).items() if value}
        self.stale = {name: stale.order for name, stale in polled.stale.items()}
        return polled.transactions

    def is_stale(self, table: str) -> bool:
        """Whether a copy of it that begins now would be right, and one from before would not."""
        return (
            self.mark is not None
            and f"public.{table}" in self.stale
            and self.stale[f"public.{table}"] <= self.mark.order
        )

    def wait_until_stale(self, *tables: str) -> None:
        """While nothing is written to them: exactly these, since the stream was opened or this was asked last."""
        before = dict(self.stale)

        def are_there() -> bool:
            return all(
                self.is_stale(table) and self.stale[f"public.{table}"] != before.get(f"public.{table}")
                for table in tables
            )

        self.poll_until(f"{tables} to be stale; it is {self.stale}", are_there)
        changed = {name for name, order in self.stale.items() if before.get(name) != order}
        assert changed == {f"public.{table}" for table in tables}

    def wait_for_the_watch(self) -> None:
        """Until the catalogue was looked at, whatever that found."""
        assert isinstance(self.stream, PostgresStream)
        asker = self.stream._watch._asker
        # the answer that is on its way may be of before
        for _ in range(2):
            asker._answered_at = -math.inf
            self.poll_until("the watch", lambda: asker._answered_at > 0)

    @property
    def running(self) -> int:
        """How many transactions have come in part: they are large, and still running."""
        assert isinstance(self.stream, PostgresStream)
        return len(self.stream._assembler._open)

    def poll_until(self, what: str, check: Callable[[], bool]) -> None:
        """While nothing commits."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not check():
            assert time.monotonic() < deadline, f"waited for {what}"
            assert not self.poll(), "nothing has committed"
            time.sleep(0.002)

    def new(self) -> Transactions:
        """Until the marker that is written now has come: everything before it has, too."""
        self.database.execute(f"INSERT INTO {MARKER} DEFAULT VALUES")
        ((last,),) = self.database.execute(f"SELECT max(id) FROM {MARKER}")
        found: Transactions = []
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for transaction in self.poll():
                changes = [self.encoders.change(frame) for frame in transaction.changes]
                assert len(changes) == transaction.count
                if changes[0].table != "lowwater_marker":
                    found.append(changes)
                elif changes[0].after == {"id": last}:
                    return found
            time.sleep(0.002)
        raise AssertionError(f"marker {last} has not come; found {len(found)} transactions")

    def one(self) -> list[Change]:
        """The changes of the one transaction that has committed."""
        (found,) = self.new()
        return found

    def close(self) -> None:
        self.stream.close()


def stream_large_ones(database: Database) -> None:
    """From now on the server sends a transaction of more than this while it is running."""
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")


def source_of(where: Database, **settings: Any) -> Postgres:
    config = {
        "host": "127.0.0.1", "port": where.server.port, "database": where.name, "user": "postgres",
        "tables": ["public.*"], "slot": f"slot_{where.name}", "end_check_seconds": 0, **settings,
    }  # fmt: skip
    source = open_source(SOURCE, "postgres", config)
    assert isinstance(source, Postgres)
    return source


@contextmanager
def reading(
    database: Database, resumes: Mapping[int, bytes] | None = None, notes: Mapping[str, bytes] | None = None,
    **settings: Any,
) -> Iterator[Read]:  # fmt: skip
    database.execute(f"CREATE TABLE IF NOT EXISTS {MARKER} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
    read = Read(database, resumes, notes, **settings)
    try:
        yield read
    finally:
        read.close()
