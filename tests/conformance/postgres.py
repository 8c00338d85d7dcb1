"""PostgreSQL held to the promises of a source: real servers, the oldest and the newest one."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.kit import SOURCE, Database, PastChange, PastTransaction
from tests.support.postgres import Database as TestDatabase
from tests.support.postgres import skip_unless_there

from lowwater_devkit.servers.postgres import EmbeddedPostgres

_TABLES = {
    "public.accounts": (("id", "owner", "cents"), ("id",)),
    "public.entries": (("id", "account", "cents", "at"), ("id",)),
}


class PostgresDatabase:
    """Its own history is what its clients did, in the order of their commits: one client, so that is the order."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.test = TestDatabase(server)
        self.connection = self.test.connect()
        self._rng = random.Random(7)
        self._history: list[PastTransaction] = []
        self._accounts: dict[int, tuple[Any, ...]] = {}
        self._ids = 0
        self.connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, owner text, cents bigint)")
        self.connection.execute("CREATE TABLE entries (id int PRIMARY KEY, account int, cents bigint, at timestamptz)")
        self.connection.execute("ALTER TABLE accounts REPLICA IDENTITY FULL")

    def work(self, transactions: int) -> None:
        wanted = len(self._history) + transactions
        while len(self._history) < wanted:
            kept = dict(self._accounts)
            with self.connection.transaction() as block:
                ((xid,),) = self.connection.execute("SELECT pg_current_xact_id()::xid::text").fetchall()
                changes = [change for _ in range(self._rng.randrange(1, 5)) for change in self._change()]
                is_kept = self._rng.random() < 0.8
                if not is_kept:
                    self._accounts = kept
                    block.force_rollback = True
            if is_kept and changes:
                self._history.append(PastTransaction(1, xid, tuple(changes)))

    def _change(self) -> list[PastChange]:
        execute = self.connection.execute
        if len(self._accounts) < 3 or self._rng.random() < 0.3:
            self._ids += 1
            row = (self._ids, None if self._rng.random() < 0.2 else f"owner {self._ids} é", self._rng.randrange(10**12))
            execute("INSERT INTO accounts VALUES (%s, %s, %s)", row)
            self._accounts[row[0]] = row
            return [PastChange("c", "public.accounts", None, row)]
        key = self._rng.choice(list(self._accounts))
        before = self._accounts[key]
        if self._rng.random() < 0.2:
            execute("DELETE FROM accounts WHERE id = %s", (key,))
            del self._accounts[key]
            return [PastChange("d", "public.accounts", before, None)]
        after = (key, before[1], before[2] + 1)
        execute("UPDATE accounts SET cents = %s WHERE id = %s", (after[2], key))
        self._accounts[key] = after
        self._ids += 1
        entry = (self._ids, key, 1, 1_700_000_000_123_456)
        execute("INSERT INTO entries VALUES (%s, %s, %s, '2023-11-14 22:13:20.123456+00')", entry[:3])
        return [
            PastChange("u", "public.accounts", before, after),
            PastChange("c", "public.entries", None, entry),
        ]

    def history(self) -> list[PastTransaction]:
        return list(self._history)

    def version(self) -> str:
        ((found,),) = self.test.execute("SHOW server_version")
        return str(found)

    def close(self) -> None:
        self.connection.close()
        self.test.drop()


class PostgresKit:
    kind = "postgres"
    threads = 1
    begins_now = True

    def __init__(self, version: int) -> None:
        self.name = f"postgres{version}"
        self._version = version
        self._server: EmbeddedPostgres | None = None
        self._databases: dict[Path, PostgresDatabase] = {}

    def create(self, directory: Path) -> Database:
        if self._server is None:
            skip_unless_there(self._version)
            root = Path(tempfile.mkdtemp(prefix="lowwater-conformance-"))
            self._server = EmbeddedPostgres(root / "server", self._version, settings={"fsync": "off"})
            self._server.start()
        self._databases[directory] = PostgresDatabase(self._server)
        return self._databases[directory]

    def stop(self) -> None:
        if self._server is not None:
            self._server.remove()

    def config(self, directory: Path) -> dict[str, Any]:
        assert self._server is not None
        return {
            "host": "127.0.0.1",
            "port": self._server.port,
            "database": self._databases[directory].test.name,
            "user": "postgres",
            "tables": ["public.*"],
            "slot": f"{SOURCE}_{self._databases[directory].test.name}".lower().replace("-", "_")[-60:],
            # a test opens a second stream while the first is still open
            "when_locked": "take_over",
            "read_bytes": 1_000,
            # so that "at its end" is never said of what was true a moment ago
            "end_check_seconds": 0,
        }

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "tables": {**good, "tables": []},
            "port": {**good, "port": 0},
            "when_locked": {**good, "when_locked": "perhaps"},
            "password": {**good, "password": os.urandom(4).hex()},
        }

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return _TABLES
