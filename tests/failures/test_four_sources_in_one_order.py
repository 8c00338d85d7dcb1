"""PostgreSQL, MySQL, MongoDB and Turso in one group: one order, found again whatever the arrival, whole in one lake.

Every transaction writes its number to two tables of its database; a version of the lake has both, or neither.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lowwater.errors import BusError
from lowwater.lake import Lake
from lowwater_devkit.servers.embedded import HOST
from lowwater_devkit.servers.mysql import USER
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.conftest import SMALL_RELEASES
from tests.support import mongodb, postgres_fleet
from tests.support.beside import beside
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.mongodb import MongoDatabase
from tests.support.mysql import MysqlDatabase, run
from tests.support.postgres import Database
from tests.support.turso_file import TursoFile

TRANSACTIONS = 60
TABLES = ("one", "two")
KEEP_CHANGES = {**SMALL_RELEASES, "delete_seconds": 3600.0}
MAKE = [f"CREATE TABLE {table} (id int PRIMARY KEY, note varchar(40))" for table in TABLES]


def _insert(number: int) -> list[str]:
    return [f"INSERT INTO {table} VALUES ({number}, '{table} {number}')" for table in TABLES]


class Databases:
    """One of each kind; `write` is a transaction of it with this number, `namespace` where its tables are."""

    def __init__(self, fleet: Fleet, postgres: Database, mysql: MysqlDatabase, mongo: MongoDatabase, turso: TursoFile):
        self.write: dict[str, Callable[[int], None]] = {}
        self.namespace: dict[str, str] = {}
        self._fleet, self._postgres, self._mysql, self._mongo, self._turso = fleet, postgres, mysql, mongo, turso
        for source, add in zip(
            fleet.sources, (self._add_postgres, self._add_mysql, self._add_mongo, self._add_turso), strict=True
        ):
            add(source)

    def _add(
        self, source: str, kind: str, namespace: str, write: Callable[[int], None], config: dict[str, Any]
    ) -> None:
        self._fleet.set_source(source, kind, {**config, "tables": [f"{namespace}.*"], "copy_tables": False})
        self.write[source], self.namespace[source] = write, namespace

    def _add_postgres(self, source: str) -> None:
        self._postgres.execute("; ".join(MAKE))

        def write(number: int) -> None:
            self._postgres.execute("; ".join(["BEGIN", *_insert(number), "COMMIT"]))

        self._add(source, "postgres", "public", write, postgres_fleet.source_config(self._postgres))

    def _add_mysql(self, source: str) -> None:
        self._mysql.execute(*MAKE)

        def write(number: int) -> None:
            with self._mysql.connect() as connection:
                for statement in ("BEGIN", *_insert(number), "COMMIT"):
                    run(connection, statement)

        config = {"host": HOST, "port": self._mysql.server.port, "user": USER}
        self._add(source, "mysql", self._mysql.name, write, config)

    def _add_mongo(self, source: str) -> None:
        self._mongo.create(*TABLES)

        def write(number: int) -> None:
            def work(session: Any, db: Any) -> None:
                for table in TABLES:
                    db[table].insert_one({"_id": number, "id": number, "note": f"{table} {number}"}, session=session)

            self._mongo.transaction(work)

        self._add(source, "mongodb", self._mongo.name, write, mongodb.source_config(self._mongo))

    def _add_turso(self, source: str) -> None:
        self._turso.do(*MAKE)

        def write(number: int) -> None:
            self._turso.do("BEGIN IMMEDIATE", *_insert(number), "COMMIT")

        self._add(source, "turso", "main", write, {"path": str(self._turso.path)})


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Iterator[Fleet]:
    skip_without_spark()
    lake = {"uri": str(tmp_path / "lake"), "compact_seconds": -1}
    made = Fleet(tmp_path, kafka.bootstrap_servers, unique, sources=4, group=KEEP_CHANGES, lake=lake)
    yield made
    made.kill_all()


@pytest.fixture
def databases(
    fleet: Fleet, database: Database, mysql_database: MysqlDatabase, mongo: MongoDatabase, tmp_path: Path
) -> Iterator[Databases]:
    turso = TursoFile(tmp_path / "app.db")
    yield Databases(fleet, database, mysql_database, mongo, turso)
    turso.close()


def _written(write: Callable[[int], None]) -> Callable[[threading.Event], None]:
    def work(_: threading.Event) -> None:
        for number in range(1, TRANSACTIONS + 1):
            write(number)
            time.sleep(0.03)

    return work


def _wait_for(fleet: Fleet) -> list[tuple[int, str, int, str]]:
    def released() -> bool:
        try:
            return len(fleet.order()) >= 4 * TRANSACTIONS
        except BusError:
            return False  # the topic is not there yet

    wait_until(f"all transactions of four sources; {fleet.log_tails()}", released)
    return fleet.order()


@pytest.mark.parametrize("postgres_server", [18], indirect=True)
@pytest.mark.parametrize("mysql_server", ["mysql-9"], indirect=True)
def test_four_kinds_land_in_one_order_which_another_group_finds_again(fleet: Fleet, databases: Databases) -> None:
    extractors = {source: fleet.extractor(source) for source in fleet.sources}
    for source in fleet.sources:
        fleet.wait_for_capture(source)
    merger = fleet.merger()
    with ExitStack() as stack:
        for source in fleet.sources:
            stack.enter_context(beside(_written(databases.write[source])))
        for source in fleet.sources:
            extractors[source].kill()
            extractors[source] = fleet.extractor(source)
        merger.kill()
        fleet.merger()
    order = _wait_for(fleet)
    sources = [source for _, source, _, _ in order]
    assert {source: sources.count(source) for source in fleet.sources} == dict.fromkeys(fleet.sources, TRANSACTIONS)
    assert sum(a != b for a, b in pairwise(sources)) > TRANSACTIONS, "they do interleave"

    again = fleet.second_group()
    killed = again.merger()
    again.wait_for_status(killed, "its first releases", lambda s: s.get("next_gsn", 0) > 10)
    killed.kill()
    again.merger()
    assert _wait_for(again) == order, "the same changes give the same order, whatever the arrival"

    fleet.lander()
    _check_lake(fleet, databases, order[-1][0])


def _check_lake(fleet: Fleet, databases: Databases, last: int) -> None:
    def landed() -> int:
        try:
            return Lake.open(str(fleet.directory / "lake")).gsn
        except Exception:  # noqa: BLE001  (nothing has landed yet: whatever that looks like)
            return 0

    wait_until(f"gsn {last} in the lake; {fleet.log_tails()}", lambda: landed() >= last)
    lake = Lake.open(str(fleet.directory / "lake"))
    numbers = set(range(1, TRANSACTIONS + 1))
    for source, namespace in databases.namespace.items():
        by_gsn = []
        for table in TABLES:
            rows = lake.changes(f"{source}.{namespace}.{table}", columns=["_gsn", "id", "note"]).arrow().to_pylist()
            assert [row["note"] for row in rows] == [f"{table} {row['id']}" for row in rows]
            by_gsn.append({row["_gsn"]: row["id"] for row in rows})
        assert by_gsn[0] == by_gsn[1], f"{source}: a transaction is in both tables under one gsn"
        assert set(by_gsn[0].values()) == numbers, source
