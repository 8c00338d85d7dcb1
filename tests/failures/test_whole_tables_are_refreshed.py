"""The mode `full_refresh` of every kind through Kafka and Spark, with the scenarios of seed document 001: a copy is its
own end, and chunks that have landed are not read again.

    1, 3  before the commit, or it failed    Spark killed with the files of a copy written, and no manifest
    2     after a successful commit          the refresh is readable, all at once
    4     already committed                  Spark killed with the manifest created and nobody told
    5     all chunks completed               the extractor killed then, before it has said that they are readable
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lowwater.errors import LowwaterError
from lowwater.lake import Lake
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support import mongodb, postgres_fleet
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.mongodb import MongoDatabase
from tests.support.mysql import MysqlDatabase
from tests.support.postgres import Database
from tests.support.turso_file import TursoFile

KILLED = -signal.SIGKILL
#: small, so that a table has several
CHUNK_ROWS = 40
Rows = dict[int, str]

FIRST: Rows = {n: f"row {n}" for n in range(1, 201)}
#: some are gone, some are other ones, some are new
SECOND: Rows = {n: f"row {n}" if n % 3 else f"another {n}" for n in range(20, 230)}
THIRD: Rows = {n: f"the third {n}" for n in range(1, 100)}


@dataclass
class Refreshed:
    """A table `t` of a database, and how its rows are put in place of those that were there."""

    kind: str
    config: dict[str, Any]
    table: str
    key: str
    put: Callable[[Rows], None]


def _turso(request: pytest.FixtureRequest) -> Iterator[Refreshed]:
    # nobody captures: there is no table of changes
    path = request.getfixturevalue("tmp_path") / "refreshed.db"
    file = TursoFile(path, mode="")
    file.do("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")

    def put(rows: Rows) -> None:
        file.do("BEGIN", "DELETE FROM t")
        for id_, name in rows.items():
            file.connection.execute("INSERT INTO t VALUES (?, ?)", (id_, name)).fetchall()
        file.do("COMMIT")

    yield Refreshed("turso", {"path": str(path), "tables": ["main.t"]}, "main.t", "id", put)
    file.close()


def _sql(rows: Rows) -> str:
    return ", ".join(f"({id_}, '{name}')" for id_, name in rows.items())


def _postgres(request: pytest.FixtureRequest) -> Iterator[Refreshed]:
    database = Database(request.getfixturevalue("postgres_servers")(18))
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")

    def put(rows: Rows) -> None:
        database.execute(f"BEGIN; DELETE FROM t; INSERT INTO t VALUES {_sql(rows)}; COMMIT; ANALYZE t")

    config = postgres_fleet.source_config(database, tables=["public.t"])
    known = {name: config[name] for name in ("host", "port", "database", "user", "tables")}
    yield Refreshed("postgres", known, "public.t", "id", put)
    database.drop()


def _mysql(request: pytest.FixtureRequest) -> Iterator[Refreshed]:
    database = MysqlDatabase(request.getfixturevalue("mysql_servers")("mysql-9"))
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name varchar(40))")

    def put(rows: Rows) -> None:
        database.execute("BEGIN", "DELETE FROM t", f"INSERT INTO t VALUES {_sql(rows)}", "COMMIT", "ANALYZE TABLE t")

    table = f"{database.name}.t"
    yield Refreshed("mysql", {**database.server.config, "tables": [table]}, table, "id", put)
    database.drop()


def _mongodb(request: pytest.FixtureRequest) -> Iterator[Refreshed]:
    database = MongoDatabase(request.getfixturevalue("mongo_server"))
    database.create("t")

    def put(rows: Rows) -> None:
        database.db.t.delete_many({})
        database.db.t.insert_many([{"_id": id_, "name": name} for id_, name in rows.items()])

    table = f"{database.name}.t"
    yield Refreshed("mongodb", mongodb.source_config(database, tables=[table]), table, "_id", put)
    database.drop()


_MAKE = {"turso": _turso, "postgres": _postgres, "mysql": _mysql, "mongodb": _mongodb}


@pytest.fixture(params=["turso", *(pytest.param(kind, marks=pytest.mark.long) for kind in _MAKE if kind != "turso")])
def refreshed(request: pytest.FixtureRequest) -> Iterator[Refreshed]:
    skip_without_spark()
    yield from _MAKE[request.param](request)


def _state(fleet: Fleet, it: Refreshed) -> Rows | None:
    """None: it cannot be read yet."""
    try:
        lake = Lake.open(str(fleet.directory / "lake"))
        if not lake.chain.copied:
            return None
        rows = lake.at().state(f"{fleet.sources[0]}.{it.table}").arrow().to_pylist()
    except LowwaterError:
        return None
    return {row[it.key]: row["name"] for row in rows}


def _wait_for(fleet: Fleet, it: Refreshed, rows: Rows) -> None:
    wait_until(f"{len(rows)} rows; {fleet.log_tails()}", lambda: _state(fleet, it) == rows, 180)


def _refresh(fleet: Fleet, table: str) -> None:
    lowwater = str(Path(sys.executable).with_name("lowwater"))
    command = [lowwater, "source", "copy", fleet.sources[0], table, "--config", str(fleet.config)]
    subprocess.run(command, capture_output=True, check=True)


@pytest.mark.timeout(600)
def test_each_refresh_takes_the_place_of_the_one_before_whatever_is_killed(
    kafka: EmbeddedKafka, tmp_path: Path, unique: str, refreshed: Refreshed
) -> None:
    refreshed.put(FIRST)
    config = {**refreshed.config, "mode": "full_refresh", "chunk_rows": CHUNK_ROWS}
    lake = {"uri": str(tmp_path / "lake"), "compact_seconds": -1}
    fleet = Fleet(
        tmp_path, kafka.bootstrap_servers, unique, source={"kind": refreshed.kind, "config": config}, lake=lake
    )
    try:
        # 1 and 3: nothing of what was written counts, and it is written again
        extractor = fleet.extractor()
        fleet.merger()
        assert fleet.lander(LOWWATER_FAIL_AT="copy.files_written").wait(180) == KILLED, fleet.log_tails()
        assert _state(fleet, refreshed) is None
        # 2: all of it is there at once
        lander = fleet.lander()
        _wait_for(fleet, refreshed, FIRST)
        # 4: it counts, although whoever wrote it has not said so
        lander.stop()
        lander = fleet.lander(LOWWATER_FAIL_AT="copy.manifest_created")
        refreshed.put(SECOND)
        _refresh(fleet, refreshed.table)
        assert lander.wait(180) == KILLED, fleet.log_tails()
        assert _state(fleet, refreshed) == FIRST, "all of it, or nothing"
        fleet.lander()
        _wait_for(fleet, refreshed, SECOND)
        # 5: all chunks have landed, and it was not said yet
        extractor.stop()
        extractor = fleet.extractor(LOWWATER_FAIL_AT="extractor.copied_produced")
        refreshed.put(THIRD)
        _refresh(fleet, refreshed.table)
        assert extractor.wait(180) == KILLED, fleet.log_tails()
        assert _state(fleet, refreshed) == SECOND, "all of it, or nothing"
        fleet.extractor()
        _wait_for(fleet, refreshed, THIRD)
    finally:
        fleet.kill_all()
