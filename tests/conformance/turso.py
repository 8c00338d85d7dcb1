"""Turso held to the promises of a source: a real file, written by a connection that captures."""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kit import PastChange, PastTransaction

_TABLES = {
    "main.accounts": (("id", "owner", "cents"), ("id",)),
    "main.entries": (("code", "account", "rate", "note"), ("code",)),
}


class TursoDatabase:
    """Its own history is what its one writer did. A transaction's id is that of its first change."""

    def __init__(self, path: Path) -> None:
        turso = pytest.importorskip("turso", reason="pyturso is not there")
        from lowwater.turso import FEATURES, capture

        self._connection = turso.connect(str(path), isolation_level=None, experimental_features=FEATURES)
        self._rng = random.Random(7)
        self._history: list[PastTransaction] = []
        self._accounts: dict[int, tuple[Any, ...]] = {}
        self._ids = 0
        self._execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, cents INTEGER)")
        self._execute("CREATE TABLE entries (code TEXT PRIMARY KEY NOT NULL, account INT, rate REAL, note BLOB)")
        capture(self._connection)

    def _execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(statement, parameters).fetchall()
        return rows

    def work(self, transactions: int) -> None:
        wanted = len(self._history) + transactions
        while len(self._history) < wanted:
            kept = dict(self._accounts)
            ((last,),) = self._execute("SELECT max(change_id) FROM turso_cdc")
            self._execute("BEGIN IMMEDIATE")
            changes = [change for _ in range(self._rng.randrange(1, 5)) for change in self._change()]
            if self._rng.random() < 0.8:
                self._execute("COMMIT")
                self._history.append(PastTransaction(1, str((last or 0) + 1), tuple(changes)))
            else:
                self._accounts = kept
                self._execute("ROLLBACK")
            if self._rng.random() < 0.2:
                # nothing is changed, and yet there is a COMMIT
                self._execute("UPDATE accounts SET cents = 0 WHERE id = -1")

    def _change(self) -> list[PastChange]:
        if len(self._accounts) < 3 or self._rng.random() < 0.3:
            self._ids += 1
            row = (self._ids, None if self._rng.random() < 0.2 else f"owner {self._ids} é", self._rng.randrange(10**12))
            self._execute("INSERT INTO accounts VALUES (?, ?, ?)", *row)
            self._accounts[row[0]] = row
            return [PastChange("c", "main.accounts", None, row)]
        key = self._rng.choice(list(self._accounts))
        before = self._accounts[key]
        if self._rng.random() < 0.2:
            self._execute("DELETE FROM accounts WHERE id = ?", key)
            del self._accounts[key]
            return [PastChange("d", "main.accounts", before, None)]
        after = (key, before[1], before[2] + 1)
        self._execute("UPDATE accounts SET cents = ? WHERE id = ?", after[2], key)
        self._accounts[key] = after
        self._ids += 1
        entry = (f"e{self._ids}", key, self._rng.random(), self._rng.randbytes(self._rng.randrange(200)))
        self._execute("INSERT INTO entries VALUES (?, ?, ?, ?)", *entry)
        return [PastChange("u", "main.accounts", before, after), PastChange("c", "main.entries", None, entry)]

    def history(self) -> list[PastTransaction]:
        return list(self._history)

    def version(self) -> str:
        return metadata.version("pyturso")

    def close(self) -> None:
        self._connection.close()


class TursoKit:
    kind = "turso"
    threads = 1
    begins_now = True

    def create(self, directory: Path) -> TursoDatabase:
        return TursoDatabase(directory / "bank.db")

    def config(self, directory: Path) -> dict[str, Any]:
        return {
            "path": str(directory / "bank.db"),
            "tables": ["main.*"],
            "read_bytes": 1_000,
            "spill_bytes_max": 500,
            "spill_directory": str(directory / "spill"),
            # so that "at its end" is never said of what was true a moment ago
            "look_seconds": 0,
            "prune": True,
            "prune_seconds": 0.01,
        }

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "path": {k: v for k, v in good.items() if k != "path"},
            "tables": {**good, "tables": []},
            "capture": {**good, "capture": "id"},
            "cdc_table": {**good, "cdc_table": "x; DROP TABLE accounts"},
            "colour": {**good, "colour": "blue"},
        }

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return _TABLES

    def stop(self) -> None:
        """They share nothing."""
