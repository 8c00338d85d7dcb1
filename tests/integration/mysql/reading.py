"""A source of kind mysql on a test's own database, read in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.conformance.kit import SOURCE
from tests.support.mysql import MysqlDatabase
from tests.support.versions import Change, Transactions, Versions

from lowwater.records.positions import Order
from lowwater_extractor.api import SourceTransaction, Stream, ThreadMark
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.mysql.source import Mysql

MARKER = "lowwater_marker"
WAIT_SECONDS = 60.0


class Read:
    """A stream from the moment at which it was opened: `new()` is what has committed since it was asked last."""

    def __init__(
        self, database: MysqlDatabase, resumes: Mapping[int, bytes] | None = None,
        notes: Mapping[str, bytes] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.database = database
        self.source: Mysql = source_of(database, **settings)
        self.encoders = Versions()
        self.encoders.notes |= notes or {}
        self.stream: Stream = self.source.stream(resumes or {}, {}, self.encoders)
        self.mark: ThreadMark | None = None
        self.left_out: list[tuple[int, str, str]] = []
        self.stale: dict[str, Order] = {}
        self.found: list[SourceTransaction] = []
        if resumes is None:
            self.poll()

    def poll(self) -> list[SourceTransaction]:
        polled = self.stream.poll(frozenset())
        self.encoders.notes |= polled.notes
        self.mark = polled.marks[1]
        self.left_out += polled.left_out
        self.stale = {name: stale.order for name, stale in polled.stale.items()}
        return polled.transactions

    def reason(self, table: str) -> str:
        """Why it is stale."""
        major, minor, reason = json.loads(self.encoders.notes[f"stale/{table}"])
        assert Order(major, minor) == self.stale[table]
        return str(reason)

    @property
    def resumes(self) -> dict[int, bytes]:
        assert self.mark is not None
        return {1: self.mark.resume}

    def new(self) -> Transactions:
        """Until the marker that is written now has come: everything before it has, too."""
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {MARKER} () VALUES ()")
            last = cursor.lastrowid
        found: Transactions = []
        self.found = []
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for transaction in self.poll():
                changes = [self.encoders.change(frame) for frame in transaction.changes]
                assert len(changes) == transaction.count
                if changes[0].table != MARKER:
                    found.append(changes)
                    self.found.append(transaction)
                elif changes[0].after == {"id": last}:
                    return found
            time.sleep(0.002)
        raise AssertionError(f"marker {last} has not come; found {len(found)} transactions")

    def poll_until_lost(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            self.poll()
            time.sleep(0.01)

    def one(self) -> list[Change]:
        """The changes of the one transaction that has committed."""
        (found,) = self.new()
        return found

    def close(self) -> None:
        self.stream.close()


def source_of(where: MysqlDatabase, **settings: Any) -> Mysql:
    config = {**where.server.config, "tables": [f"{where.name}.*"], "end_check_seconds": 0, **settings}
    source = open_source(SOURCE, "mysql", config)
    assert isinstance(source, Mysql)
    return source


@contextmanager
def reading(database: MysqlDatabase, resumes: Mapping[int, bytes] | None = None, **settings: Any) -> Iterator[Read]:
    database.execute(f"CREATE TABLE IF NOT EXISTS {MARKER} (id bigint AUTO_INCREMENT PRIMARY KEY)")
    read = Read(database, resumes, **settings)
    try:
        yield read
    finally:
        read.close()
