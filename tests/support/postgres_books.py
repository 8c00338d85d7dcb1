"""The books of a real PostgreSQL: each transaction counts one up and writes some rows under that number.

What the database says afterwards is the truth, also about a commit that no answer came for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg

from lowwater.errors import BusError
from lowwater_devkit.verify.history import Decoder
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, parse_lsn
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service
from tests.support.beside import beside
from tests.support.harness import Fleet, get, wait_until
from tests.support.postgres import Database
from tests.support.postgres_fleet import postgres_fleet


class Books:
    """A database with the books, and the fleet that captures it."""

    def __init__(
        self, directory: Path, kafka: EmbeddedKafka, name: str, database: Database,
        *, batch: Mapping[str, Any] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.database = database
        database.execute("""
            CREATE TABLE counter (id int PRIMARY KEY, n int); INSERT INTO counter VALUES (1, 0);
            CREATE TABLE ledger (id bigserial PRIMARY KEY, n int, note text)""")
        self.fleet: Fleet = postgres_fleet(
            directory, kafka.bootstrap_servers, name, database, lake=False, batch=batch, **settings
        )  # fmt: skip
        self.source = self.fleet.sources[0]
        self.slot = f"lowwater_{database.name}"

    def start(self) -> Service:
        extractor = self.fleet.extractor()
        self.fleet.merger()
        self.fleet.wait_for_capture()
        return extractor

    def write(self, transactions: int = 1) -> None:
        with self.database.connect() as connection:
            for _ in range(transactions):
                self._write(connection)

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            ((n,),) = connection.execute("UPDATE counter SET n = n + 1 RETURNING n").fetchall()
            connection.execute("INSERT INTO ledger (n, note) SELECT %s, 'é' FROM generate_series(0, %s)", (n, n % 4))

    def written(self) -> AbstractContextManager[None]:
        """By a client that comes back whenever it is thrown out."""

        def work(is_over: threading.Event) -> None:
            while not is_over.is_set():
                try:
                    with self.database.connect() as connection:
                        while not is_over.is_set():
                            self._write(connection)
                            time.sleep(0.005)
                except psycopg.Error:
                    time.sleep(0.02)

        return beside(work)

    def count(self) -> int:
        ((n,),) = self.database.execute("SELECT n FROM counter")
        return int(n)

    def wait_for_more(self) -> None:
        """Until something has been published that was written from now on."""
        wanted = self.count() + 1
        wait_until(f"transaction {wanted}; {self.fleet.log_tails()}", lambda: self.published() >= wanted)

    def published(self) -> int:
        try:
            return len([t for t in self._transactions() if t[0][0] == "public.counter"])
        except BusError:
            return 0  # the merger has not made its topic yet

    def _transactions(self) -> list[list[tuple[str, Any]]]:
        """Of the ordered topic: each transaction's tables and rows."""
        decode = Decoder(self.fleet.store)
        found = []
        for ordered in self.fleet.ordered():
            assert not ordered.torn, ordered
            found.append([(table, after) for _, table, _, after in map(decode, ordered.values)])
        return found

    def assert_whole(self) -> int:
        """Every transaction of the database once, whole and in order, and no other."""
        wanted = self.count()
        wait_until(f"{wanted} transactions; {self.fleet.log_tails()}", lambda: self.published() >= wanted)
        rows: dict[int, list[list[Any]]] = {n: [] for n in range(1, wanted + 1)}
        for row in self.database.execute("SELECT id, n, note FROM ledger ORDER BY id"):
            rows[row[1]].append(list(row))
        counted = [t for t in self._transactions() if t[0][0] == "public.counter"]
        assert [t[0][1] for t in counted] == [[1, n] for n in rows]
        assert [[row for _, row in t[1:]] for t in counted] == list(rows.values())
        return wanted

    def wait_for_failure(self, extractor: Service, error: str, what: str = "") -> dict[str, Any]:
        def is_it(status: dict[str, Any]) -> bool:
            return status["state"] == "failed" and status["error"]["error"] == error and what in status["error"]["what"]

        shown = self.fleet.wait_for_status(extractor, f"{error} {what}", is_it)
        found: dict[str, Any] = shown["error"]
        assert found["source"] == self.source
        assert found["hint"]
        assert get(extractor, "/health/ready")[0] == 503
        assert get(extractor, "/health/live")[0] == 200
        return found

    def without_reader(self, sql: str) -> None:
        """While the extractor is thrown out: it comes back, so this is tried until it was quicker."""
        active = (
            f"SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )

        def is_done() -> bool:
            try:
                self.database.execute(f"{active} AND active")
                self.database.execute(sql)
            except (psycopg.errors.ObjectInUse, psycopg.errors.InvalidParameterValue):
                return False
            return True

        wait_until(sql, is_done)

    def confirmed(self) -> Lsn:
        """What the server has been told that it may let go of."""
        ((lsn,),) = self.database.execute(
            f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )
        return parse_lsn(lsn)
