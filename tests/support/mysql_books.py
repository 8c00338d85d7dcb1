"""The books of a real MySQL or MariaDB: each transaction counts one up and writes some rows under that number.

What the database says afterwards is the truth, also about a commit that no answer came for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from lowwater.errors import BusError
from lowwater_devkit.verify.history import Decoder
from tests.support.beside import beside
from tests.support.harness import Fleet, wait_until
from tests.support.mysql import MysqlDatabase, run


class Books:
    """A database with the books, and the fleet that captures it; without a lake."""

    def __init__(
        self, directory: Path, bootstrap_servers: str, name: str, database: MysqlDatabase,
        *, batch: Mapping[str, Any] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.database = database
        database.execute(
            "CREATE TABLE counter (id int PRIMARY KEY, n int)", "INSERT INTO counter VALUES (1, 0)",
            "CREATE TABLE ledger (id bigint AUTO_INCREMENT PRIMARY KEY, n int, note varchar(9))",
        )  # fmt: skip
        # small, so that a batch ends in the middle of a poll
        batch = batch or {"count_max": 7, "milliseconds_max": 10}
        source = {"kind": "mysql", "config": self.config(**settings), "batch": batch}
        self.fleet = Fleet(directory, bootstrap_servers, name, source=source)

    def config(self, **settings: Any) -> dict[str, Any]:
        return {**self.database.server.config, "tables": [f"{self.database.name}.*"], "read_bytes": 2_000, **settings}

    def write(self, transactions: int = 1) -> None:
        with self.database.connect() as connection:
            for _ in range(transactions):
                self._write(connection)

    def _write(self, connection: Connection[Any]) -> None:
        run(connection, "BEGIN")
        run(connection, "UPDATE counter SET n = n + 1")
        run(connection, "INSERT INTO ledger (n, note) SELECT n, 'é' FROM counter")
        run(connection, "INSERT INTO ledger (n, note) SELECT n, NULL FROM counter WHERE n % 3 = 0")
        run(connection, "COMMIT")

    def written(self) -> AbstractContextManager[None]:
        """By a client that comes back whenever it is thrown out."""

        def work(is_over: threading.Event) -> None:
            while not is_over.is_set():
                try:
                    with self.database.connect() as connection:
                        while not is_over.is_set():
                            self._write(connection)
                            time.sleep(0.005)
                except (pymysql.Error, OSError):
                    time.sleep(0.05)

        return beside(work)

    def count(self) -> int:
        ((n,),) = self.database.execute("SELECT n FROM counter")
        return int(n)

    def published(self) -> int:
        try:
            return len(self._counted())
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

    def _counted(self) -> list[list[tuple[str, Any]]]:
        """Those that count one up: there may be others, of other tables."""
        return [t for t in self._transactions() if t[0][0] == f"{self.database.name}.counter"]

    def assert_whole(self, seconds: float = 120) -> int:
        """Every transaction of the database once, whole and in order, and no other."""
        wanted = self.count()
        wait_until(f"{wanted} transactions; {self.fleet.log_tails()}", lambda: self.published() >= wanted, seconds)
        rows: dict[int, list[list[Any]]] = {n: [] for n in range(1, wanted + 1)}
        for row in self.database.execute("SELECT id, n, note FROM ledger ORDER BY id"):
            rows[row[1]].append(list(row))
        found = self._counted()
        assert [t[0][1] for t in found] == [[1, n] for n in rows]
        assert [[row for _, row in t[1:]] for t in found] == list(rows.values())
        return wanted
