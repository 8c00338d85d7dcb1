"""MySQL and MariaDB held to the promises of a source: real servers."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.kit import Database, PastChange, PastTransaction
from tests.support.mysql import MysqlDatabase, run, skip_unless_there

from lowwater_devkit.servers.mysql import EmbeddedMysql
from lowwater_devkit.servers.mysql_install import Flavour, is_mariadb

#: both have the same database's name, so that what a table is called is the same in every test
_DATABASE = "books"


class BooksDatabase:
    """Its own history is what its clients did, in the order of their commits: one client, so that is the order."""

    def __init__(self, server: EmbeddedMysql) -> None:
        self.test = MysqlDatabase(server, _DATABASE)
        self.connection = self.test.connect()
        self._is_mariadb = is_mariadb(server.flavour)
        self._rng = random.Random(7)
        self._history: list[PastTransaction] = []
        self._accounts: dict[int, tuple[Any, ...]] = {}
        self._ids = 0
        self._execute("CREATE TABLE accounts (id int PRIMARY KEY, owner varchar(50), cents bigint)")
        self._execute("CREATE TABLE entries (id int PRIMARY KEY, account int, cents bigint, at timestamp(6) NULL)")

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return run(self.connection, statement, *values)

    def work(self, transactions: int) -> None:
        wanted = len(self._history) + transactions
        while len(self._history) < wanted:
            kept = dict(self._accounts)
            self._execute("BEGIN")
            changes = [change for _ in range(self._rng.randrange(1, 5)) for change in self._change()]
            if self._rng.random() < 0.2:
                self._accounts = kept
                self._execute("ROLLBACK")
                continue
            self._execute("COMMIT")
            if changes:
                self._history.append(PastTransaction(1, self._last_gtid(), tuple(changes)))

    def _last_gtid(self) -> str:
        if self._is_mariadb:
            ((gtid,),) = self._execute("SELECT @@last_gtid")
            return str(gtid)
        ((executed, server),) = self._execute("SELECT @@global.gtid_executed, @@server_uuid")
        last = executed.split(",")[-1].split(":")[-1].split("-")[-1]
        return f"{server}:{last}"

    def _change(self) -> list[PastChange]:
        if len(self._accounts) < 3 or self._rng.random() < 0.3:
            self._ids += 1
            row = (self._ids, None if self._rng.random() < 0.2 else f"owner {self._ids} é", self._rng.randrange(10**12))
            self._execute("INSERT INTO accounts VALUES (%s, %s, %s)", row)
            self._accounts[row[0]] = row
            return [PastChange("c", "books.accounts", None, row)]
        key = self._rng.choice(list(self._accounts))
        before = self._accounts[key]
        if self._rng.random() < 0.2:
            self._execute("DELETE FROM accounts WHERE id = %s", (key,))
            del self._accounts[key]
            return [PastChange("d", "books.accounts", before, None)]
        after = (key, before[1], before[2] + 1)
        self._execute("UPDATE accounts SET cents = %s WHERE id = %s", (after[2], key))
        self._accounts[key] = after
        self._ids += 1
        entry = (self._ids, key, 1, 1_700_000_000_123_456)
        self._execute("INSERT INTO entries VALUES (%s, %s, %s, '2023-11-14 22:13:20.123456')", entry[:3])
        return [
            PastChange("u", "books.accounts", before, after),
            PastChange("c", "books.entries", None, entry),
        ]

    def history(self) -> list[PastTransaction]:
        return list(self._history)

    def version(self) -> str:
        ((found,),) = self.test.execute("SELECT VERSION()")
        return str(found)

    def close(self) -> None:
        self.connection.close()
        self.test.drop()


class MysqlKit:
    kind = "mysql"
    threads = 1
    begins_now = True

    def __init__(self, flavour: Flavour) -> None:
        self.name = flavour
        self._flavour: Flavour = flavour
        self._server: EmbeddedMysql | None = None

    def create(self, directory: Path) -> Database:
        if self._server is None:
            skip_unless_there(self._flavour)
            root = Path(tempfile.mkdtemp(prefix="lowwater-conformance-"))
            self._server = EmbeddedMysql(root / "server", self._flavour)
            self._server.start()
        return BooksDatabase(self._server)

    def stop(self) -> None:
        if self._server is not None:
            self._server.remove()

    def config(self, directory: Path) -> dict[str, Any]:
        assert self._server is not None
        return {
            **self._server.config,
            "tables": [f"{_DATABASE}.*"],
            "read_bytes": 1_000,
            # so that "at its end" is never said of what was true a moment ago
            "end_check_seconds": 0,
        }

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "tables": {**good, "tables": []},
            "port": {**good, "port": 0},
            "zero_dates": {**good, "zero_dates": "perhaps"},
            "password": {**good, "password": os.urandom(4).hex()},
            "ca": {**good, "tls": {"mode": "verify_identity"}},
        }

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return {
            "books.accounts": (("id", "owner", "cents"), ("id",)),
            "books.entries": (("id", "account", "cents", "at"), ("id",)),
        }
