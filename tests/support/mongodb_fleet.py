"""A fleet whose source is a real MongoDB database: a bank whose every transaction moves money between two collections.

What the database says afterwards is the truth, also about a commit that no answer came for.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from bson.int64 import Int64
from pymongo import errors
from pymongo.write_concern import WriteConcern

from lowwater.lake import Lake
from tests.support.beside import beside
from tests.support.harness import Fleet, wait_until
from tests.support.mongodb import MongoDatabase, source_config

ACCOUNTS = 200
CENTS = 10_000


def mongo_fleet(
    directory: Path, bootstrap_servers: str, name: str, database: MongoDatabase, *,
    lake: bool = True, batch: Mapping[str, Any] | None = None, **settings: Any,
) -> Fleet:  # fmt: skip
    source = {"kind": "mongodb", "config": source_config(database, **settings), **({"batch": batch} if batch else {})}
    place = {"uri": str(directory / "lake"), "compact_seconds": -1} if lake else None
    return Fleet(directory, bootstrap_servers, name, source=source, lake=place)


class Bank:
    """Accounts, and transfers whose sum is what they have more than at first. One version has both, or neither."""

    def __init__(self, database: MongoDatabase, seed: int = 1) -> None:
        self.database = database
        self._rng = random.Random(seed)
        self._number = 0
        database.create("accounts", "transfers")
        safe = WriteConcern("majority")
        accounts = database.db.get_collection("accounts", write_concern=safe)
        accounts.insert_many([{"_id": n, "cents": Int64(CENTS), "moves": 0} for n in range(ACCOUNTS)])

    def move(self) -> None:
        self._number += 1
        one, two = self._rng.sample(range(ACCOUNTS), 2)
        cents, number = self._rng.randrange(1, 100), self._number
        # some documents have more than others
        extras: dict[int, dict[str, Any]] = {0: {"note": "é"}, 1: {"tags": ["a", number]}}
        more = extras.get(number % 5, {})

        def work(session: Any, db: Any) -> None:
            for account, by in ((one, -cents), (two, cents)):
                change = {"$inc": {"cents": Int64(by), "moves": 1}}
                db.accounts.update_one({"_id": account}, change, session=session)
                document = {"_id": f"{number}-{account}", "account": account, "cents": Int64(by), **more}
                db.transfers.insert_one(document, session=session)

        self.database.transaction(work)

    @contextmanager
    def working(self, seconds_between: float = 0.005) -> Iterator[None]:
        def work(is_over: threading.Event) -> None:
            while not is_over.is_set():
                try:
                    self.move()
                except errors.PyMongoError:
                    time.sleep(0.05)
                time.sleep(seconds_between)

        with beside(work):
            yield

    def documents(self, name: str) -> dict[Any, dict[str, Any]]:
        return {one["_id"]: one for one in self.database.db[name].find()}


def state(fleet: Fleet, database: MongoDatabase, name: str, gsn: int | None = None) -> pa.Table:
    version = Lake.open(str(fleet.directory / "lake")).at(gsn)
    return version.state(f"{fleet.sources[0]}.{database.name}.{name}").arrow()


def readable_from(fleet: Fleet, database: MongoDatabase, names: tuple[str, ...] = ("accounts", "transfers")) -> int:
    """The gsn from which on all of these can be read; 0 if one cannot be yet."""
    try:
        lake = Lake.open(str(fleet.directory / "lake"))
    except Exception:  # noqa: BLE001  (nothing has landed yet: whatever that looks like)
        return 0
    found = {table: c.gsn for c in lake.chain.copied for table in c.tables}
    wanted = [f"{fleet.sources[0]}.{database.name}.{name}" for name in names]
    return max(found[t] for t in wanted) if all(t in found for t in wanted) else 0


def wait_until_landed(fleet: Fleet, database: MongoDatabase, seconds: float = 300) -> None:
    """Until a document that is written now has come to the lake; everything before it has, too."""
    key = f"marker-{time.monotonic_ns()}"
    database.db.transfers.insert_one({"_id": key, "account": 0, "cents": Int64(0)})
    wait_until(
        f"{key} in the lake; {fleet.log_tails()}",
        lambda: key in state(fleet, database, "transfers")["_id"].to_pylist(),
        seconds,
    )


def check_last(fleet: Fleet, bank: Bank) -> None:
    """The lake is the database."""
    wait_until_landed(fleet, bank.database)
    for name, fields in (("accounts", ("cents", "moves")), ("transfers", ("account", "cents"))):
        rows = {row["_id"]: [row[f] for f in fields] for row in state(fleet, bank.database, name).to_pylist()}
        wanted = {id_: [one[f] for f in fields] for id_, one in bank.documents(name).items()}
        assert rows == wanted, name


def check_every_version(fleet: Fleet, bank: Bank) -> int:
    """At each gsn no money was made or lost, and the transfers say what the accounts have. How many there were."""
    first = readable_from(fleet, bank.database)
    lake = Lake.open(str(fleet.directory / "lake"))
    cents: dict[str, dict[Any, int]] = {}
    changes: list[tuple[int, int, str, Any, int]] = []
    for name in ("accounts", "transfers"):
        rows = state(fleet, bank.database, name, first).to_pylist()
        cents[name] = {row["_id"]: row["cents"] for row in rows}
        table = f"{fleet.sources[0]}.{bank.database.name}.{name}"
        columns = ["_gsn", "_seq", "_op", "_id", "cents"]
        for row in lake.changes(table, after_gsn=first, columns=columns).arrow().to_pylist():
            assert row["_op"] in "cu"
            changes.append((row["_gsn"], row["_seq"], name, row["_id"], row["cents"]))
    _check(cents, first)
    changes.sort(key=lambda change: change[:2])
    for number, (gsn, _, name, key, value) in enumerate(changes):
        cents[name][key] = value
        if number + 1 == len(changes) or changes[number + 1][0] != gsn:
            _check(cents, gsn)
    return len({change[0] for change in changes})


def _check(cents: dict[str, dict[Any, int]], gsn: int) -> None:
    assert sum(cents["accounts"].values()) == ACCOUNTS * CENTS, f"gsn {gsn}"
    assert sum(cents["transfers"].values()) == 0, f"gsn {gsn}"
