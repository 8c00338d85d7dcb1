"""A later copy: rows that a schema change rewrites, an operator's word, a table that comes later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.postgres import Database
from tests.support.postgres_fleet import postgres_fleet

from lowwater.control.fold import commit_control
from lowwater.lake import Lake
from lowwater.records.types import CopyRequest
from lowwater_fleet.kafka.embedded import EmbeddedKafka

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, database: Database) -> Iterator[Fleet]:
    skip_without_spark()
    made = postgres_fleet(tmp_path, kafka.bootstrap_servers, unique, database)
    yield made
    made.kill_all()


def _copies(fleet: Fleet, table: str) -> int:
    lake = Lake.open(str(fleet.directory / "lake"))
    name = f"{fleet.sources[0]}.public.{table}"
    return sum(name in copied.tables for copied in lake.chain.copied)


def _rows(fleet: Fleet, table: str) -> list[dict[str, Any]]:
    at = Lake.open(str(fleet.directory / "lake")).at()
    rows: list[dict[str, Any]] = at.state(f"{fleet.sources[0]}.public.{table}").arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def _wait(fleet: Fleet, what: str, check: Callable[[], bool]) -> None:
    def is_so() -> bool:
        try:
            return check()
        except Exception:  # noqa: BLE001  (there is no lake, or no such table in it, yet)
            return False

    wait_until(f"{what}; {fleet.log_tails()}", is_so, 240)


def _wait_for_copies(fleet: Fleet, table: str, count: int) -> None:
    _wait(fleet, f"copy {count} of {table}", lambda: _copies(fleet, table) >= count)


@newest
@pytest.mark.timeout(400)
def test_rows_come_out_right(fleet: Fleet, database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    database.execute("INSERT INTO t SELECT n, n, 'b' || n FROM generate_series(1, 1000) n")
    extractor = fleet.extractor()
    fleet.merger()
    fleet.lander()
    _wait_for_copies(fleet, "t", 1)
    # rows that are older than the column have its default, and the log does not say so
    database.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 7")
    database.execute("INSERT INTO t VALUES (1001, 1, 'new', 8)")
    _wait_for_copies(fleet, "t", 2)
    _wait(fleet, "the default in old rows", lambda: _rows(fleet, "t")[0].get("c") == 7)
    # a retype rewrites all rows
    database.execute("ALTER TABLE t ALTER COLUMN a TYPE text USING 'a' || a")
    database.execute("UPDATE t SET b = 'x' WHERE id = 2")
    _wait_for_copies(fleet, "t", 3)
    _wait(fleet, "the new type", lambda: _rows(fleet, "t")[0]["a"] == "a1")
    # a column without a default, and one that goes, need none
    database.execute("ALTER TABLE t ADD COLUMN d int")
    database.execute("UPDATE t SET d = 1 WHERE id = 3")
    _wait(fleet, "the new column", lambda: _rows(fleet, "t")[2].get("d") == 1)
    assert _copies(fleet, "t") == 3
    # an operator's word: a full refresh
    word = CopyRequest("public.t", "r1", "a test")
    commit_control(
        fleet.settings.kafka,
        fleet.codec,
        "source",
        fleet.sources[0],
        lambda c: replace(c, copies=(word,), reason="a test"),
    )
    _wait_for_copies(fleet, "t", 4)
    # a table that comes later, with rows from before it was captured
    database.execute("CREATE TABLE later (id int PRIMARY KEY, a int)")
    database.execute("INSERT INTO later SELECT n, n FROM generate_series(1, 10) n")
    extractor.kill()
    fleet.extractor()
    _wait_for_copies(fleet, "later", 1)
    database.execute("UPDATE later SET a = 100 WHERE id = 10")
    _wait(fleet, "the update of the later table", lambda: _rows(fleet, "later")[9]["a"] == 100)
    assert len(_rows(fleet, "later")) == 10
    wanted = [dict(zip(("id", "a", "b", "c", "d"), row, strict=True)) for row in database.execute("TABLE t")]
    assert _rows(fleet, "t") == sorted(wanted, key=lambda row: int(row["id"]))
    assert _copies(fleet, "t") == 4
