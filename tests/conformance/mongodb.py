"""MongoDB held to the promises of a source: a real server, a replica set of one."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bson.int64 import Int64
from tests.conformance.kit import Database, PastChange, PastTransaction
from tests.support.mongodb import MongoDatabase, skip_without_mongod, source_config

from lowwater_devkit.servers.mongodb import EmbeddedMongo

_TABLES = {
    "accounts": (("_id", "_rest"), ("_id",)),
    "entries": (("_id", "_rest"), ("_id",)),
}


class MongoHistory:
    """Its own history is what its client did, in the order of its commits: one client, so that is the order."""

    def __init__(self, server: EmbeddedMongo) -> None:
        self.test = MongoDatabase(server)
        self.test.create(*_TABLES)
        self._rng = random.Random(7)
        self._history: list[PastTransaction] = []
        self._accounts: dict[int, dict[str, Any]] = {}
        self._ids = 0

    def work(self, transactions: int) -> None:
        wanted = len(self._history) + transactions
        while len(self._history) < wanted:
            kept, ids = dict(self._accounts), self._ids
            with self.test.client.start_session() as session:
                session.start_transaction()
                changes = [change for _ in range(self._rng.randrange(1, 5)) for change in self._change(session)]
                if self._rng.random() < 0.8:
                    session.commit_transaction()
                    txid = f"{session.session_id['id'].hex()}-{session._server_session.transaction_id}"
                    self._history.append(PastTransaction(1, txid, tuple(changes)))
                else:
                    session.abort_transaction()
                    self._accounts, self._ids = kept, ids

    def _change(self, session: Any) -> list[PastChange]:
        db = self.test.db
        if len(self._accounts) < 3 or self._rng.random() < 0.3:
            self._ids += 1
            row = {"_id": self._ids, "owner": f"owner {self._ids} é", "cents": Int64(self._rng.randrange(10**12))}
            db.accounts.insert_one(row, session=session)
            self._accounts[self._ids] = row
            return [self._past("c", "accounts", None, row)]
        key = self._rng.choice(list(self._accounts))
        before = self._accounts[key]
        if self._rng.random() < 0.2:
            db.accounts.delete_one({"_id": key}, session=session)
            del self._accounts[key]
            return [self._past("d", "accounts", before, None)]
        db.accounts.update_one({"_id": key}, {"$inc": {"cents": 1}}, session=session)
        after = self._accounts[key] = {**before, "cents": before["cents"] + 1}
        self._ids += 1
        entry = {"_id": self._ids, "account": key, "cents": 1}
        db.entries.insert_one(entry, session=session)
        return [self._past("u", "accounts", before, after), self._past("c", "entries", None, entry)]

    def _past(self, op: str, table: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> PastChange:
        rows = [None if row is None else (*row.values(), None) for row in (before, after)]
        return PastChange(op, f"{self.test.name}.{table}", *rows)

    def history(self) -> list[PastTransaction]:
        return list(self._history)

    def version(self) -> str:
        return str(self.test.client.server_info()["version"])

    def close(self) -> None:
        self.test.drop()


class MongoKit:
    kind = "mongodb"
    threads = 1
    begins_now = True

    def __init__(self) -> None:
        self._server: EmbeddedMongo | None = None
        self._databases: dict[Path, MongoHistory] = {}
        self._last = ""

    def create(self, directory: Path) -> Database:
        if self._server is None:
            skip_without_mongod()
            self._server = EmbeddedMongo(Path(tempfile.mkdtemp(prefix="lowwater-conformance-")))
            self._server.start()
        self._databases[directory] = made = MongoHistory(self._server)
        self._last = made.test.name
        return made

    def stop(self) -> None:
        if self._server is not None:
            self._server.remove()

    def config(self, directory: Path) -> dict[str, Any]:
        return source_config(self._databases[directory].test, batch_documents=7)

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "hosts": {**good, "hosts": []},
            "tables": {**good, "tables": ["no_collection"]},
            "before": {**good, "before": "perhaps"},
            "password": {**good, "password": os.urandom(4).hex()},
        }

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return {f"{self._last}.{name}": table for name, table in _TABLES.items()}
