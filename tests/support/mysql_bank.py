"""A bank on a real MySQL or MariaDB: money moves between accounts, each time with an entry of both sides."""

from __future__ import annotations

import random
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql

from lowwater.lake import Lake
from tests.support.beside import beside
from tests.support.harness import Fleet, wait_until
from tests.support.mysql import MysqlDatabase, run

ACCOUNTS = 200
TABLES = ("accounts", "entries", "markers")


class Bank:
    """Without XA: of a server that is killed, MySQL before 8.0.30 lets its log and its tables disagree about that."""

    def __init__(self, database: MysqlDatabase) -> None:
        self.database = database
        rows = ", ".join(f"({n}, 1000)" for n in range(ACCOUNTS))
        database.execute(
            "CREATE TABLE accounts (id int PRIMARY KEY, cents bigint NOT NULL)",
            "CREATE TABLE entries (id bigint AUTO_INCREMENT PRIMARY KEY, account int, cents bigint, note varchar(20))",
            "CREATE TABLE markers (id int AUTO_INCREMENT PRIMARY KEY)",
            f"INSERT INTO accounts VALUES {rows}",
        )

    def working(self, rate: float = 100) -> AbstractContextManager[None]:
        """By a client that comes back whenever the server throws it out."""

        def work(is_over: threading.Event) -> None:
            rng = random.Random(3)
            while not is_over.is_set():
                try:
                    with self.database.connect() as connection:
                        while not is_over.is_set():
                            self._move(connection, rng)
                            time.sleep(1 / rate)
                except (pymysql.Error, OSError):
                    time.sleep(0.1)

        return beside(work)

    def _move(self, connection: Any, rng: random.Random) -> None:
        one, other = rng.sample(range(ACCOUNTS), 2)
        cents = rng.randrange(1, 50)
        run(connection, "BEGIN")
        run(connection, "UPDATE accounts SET cents = cents - %s WHERE id = %s", cents, one)
        run(connection, "UPDATE accounts SET cents = cents + %s WHERE id = %s", cents, other)
        run(connection, "INSERT INTO entries (account, cents, note) VALUES (%s, %s, 'é'), (%s, %s, NULL)",
            one, -cents, other, cents)  # fmt: skip
        run(connection, "COMMIT" if rng.random() < 0.9 else "ROLLBACK")


def bank_fleet(directory: Path, bootstrap_servers: str, name: str, database: MysqlDatabase, **settings: Any) -> Fleet:
    config = {**database.server.config, "tables": [f"{database.name}.*"], **settings}
    lake = {"uri": str(directory / "lake"), "compact_seconds": -1}
    return Fleet(directory, bootstrap_servers, name, source={"kind": "mysql", "config": config}, lake=lake)


def lake_of(fleet: Fleet) -> Lake:
    return Lake.open(str(fleet.directory / "lake"))


def full_name(fleet: Fleet, database: MysqlDatabase, table: str) -> str:
    return f"{fleet.sources[0]}.{database.name}.{table}"


def readable_from(fleet: Fleet, database: MysqlDatabase) -> int:
    """The gsn from which on every table can be read; 0 if one cannot be yet."""
    try:
        lake = lake_of(fleet)
    except Exception:  # noqa: BLE001  (nothing has landed yet: whatever that looks like)
        return 0
    found = {table: c.gsn for c in lake.chain.copied for table in c.tables}
    wanted = [full_name(fleet, database, table) for table in TABLES]
    return max(found[t] for t in wanted) if all(t in found for t in wanted) else 0


def state(fleet: Fleet, database: MysqlDatabase, table: str, gsn: int | None = None) -> pa.Table:
    lake = lake_of(fleet)
    version = lake.at(gsn) if gsn is not None else lake.at()
    return version.state(full_name(fleet, database, table)).arrow()


def check(fleet: Fleet, database: MysqlDatabase, versions_max: int = 40) -> int:
    """The lake is the server at the end, and at each version (some of them) the money is what it was."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO markers () VALUES ()")
        wanted = cursor.lastrowid
    wait_until(
        f"marker {wanted} in the lake; {fleet.log_tails()}",
        lambda: wanted in state(fleet, database, "markers")["id"].to_pylist(), 300,
    )  # fmt: skip
    for table in ("accounts", "entries"):
        found = sorted(tuple(row.values()) for row in state(fleet, database, table).to_pylist())
        assert found == sorted(database.execute(f"SELECT * FROM {table}")), table
    first, last = readable_from(fleet, database), lake_of(fleet).at().gsn
    step = max(1, (last - first) // versions_max)
    for gsn in range(first, last + 1, step):
        cents = sum(state(fleet, database, "accounts", gsn)["cents"].to_pylist())
        assert cents == ACCOUNTS * 1000, f"at gsn {gsn}"
        assert sum(state(fleet, database, "entries", gsn)["cents"].to_pylist()) == 0, f"at gsn {gsn}"
    return last - first
