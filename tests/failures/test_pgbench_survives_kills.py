"""TPC-B on a real PostgreSQL all the while: copy, handoff, stream; extractor, merger and Spark killed with -9."""

from __future__ import annotations

import heapq
import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from lowwater.lake import Lake
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service
from tests.support.harness import Fleet, skip_without_spark
from tests.support.postgres import Database
from tests.support.postgres_fleet import (
    TABLES,
    Pgbench,
    lake_state,
    postgres_fleet,
    readable_from,
    rows_of,
    wait_until_landed,
)

KEYS = {"pgbench_accounts": "aid", "pgbench_tellers": "tid", "pgbench_branches": "bid", "pgbench_history": "id"}
AMOUNTS = {
    "pgbench_accounts": "abalance",
    "pgbench_tellers": "tbalance",
    "pgbench_branches": "bbalance",
    "pgbench_history": "delta",
}
newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, database: Database) -> Iterator[Fleet]:
    skip_without_spark()
    made = postgres_fleet(tmp_path, kafka.bootstrap_servers, unique, database, chunk_rows=10_000)
    yield made
    made.kill_all()


class Books:
    """The four tables, one version after the other, by the changes of the lake."""

    def __init__(self, fleet: Fleet, gsn: int) -> None:
        self._lake = Lake.open(str(fleet.directory / "lake"))
        self._source = fleet.sources[0]
        self.amounts: dict[str, dict[int, int]] = {}
        for table in TABLES:
            rows = lake_state(fleet, table, gsn).select([KEYS[table], AMOUNTS[table]]).to_pylist()
            self.amounts[table] = {row[KEYS[table]]: row[AMOUNTS[table]] for row in rows}
        self.sums = {table: sum(amounts.values()) for table, amounts in self.amounts.items()}
        self._from = gsn

    def _changes(self, table: str) -> Iterator[tuple[int, int, str, str, int, int]]:
        key, amount = KEYS[table], AMOUNTS[table]
        found = self._lake.changes(
            f"{self._source}.public.{table}", after_gsn=self._from, columns=["_gsn", "_seq", "_op", key, amount]
        )
        for batch in found.batches():
            for row in batch.to_pylist():
                yield row["_gsn"], row["_seq"], table, row["_op"], row[key], row[amount]

    def check_every_version(self) -> int:
        assert len(set(self.sums.values())) == 1, f"at gsn {self._from}: {self.sums}"
        versions = 0
        merged = heapq.merge(*(self._changes(table) for table in TABLES))
        for gsn, changes in groupby(merged, key=lambda change: change[0]):
            for _, _, table, op, key, amount in changes:
                assert op in "cu"
                before = self.amounts[table].get(key, 0)
                self.amounts[table][key] = amount
                self.sums[table] += amount - before
            assert len(set(self.sums.values())) == 1, f"at gsn {gsn}: {self.sums}"
            versions += 1
        return versions


def _sorted(rows: list[Any]) -> list[str]:
    return sorted(map(str, rows))


def _check(fleet: Fleet, database: Database) -> int:
    wait_until_landed(fleet, database)
    for table in TABLES:
        found = [tuple(row.values()) for row in lake_state(fleet, table).to_pylist()]
        assert _sorted(found) == _sorted(rows_of(database, table, KEYS[table])), table
    return Books(fleet, readable_from(fleet)).check_every_version()


def _run(fleet: Fleet, database: Database, kills: int, rate: int, versions: int) -> None:
    seed = int(os.environ.get("LOWWATER_SEED", "1"))
    print(f"seed {seed}")
    rng = random.Random(seed)
    bench = Pgbench(database)
    starts = {"extractor": fleet.extractor, "merger": fleet.merger, "spark": fleet.lander}
    running: dict[str, Service] = {}
    with bench.working(rate=rate):
        for name, start in starts.items():
            running[name] = start()
        fleet.wait_for_capture()
        for number in range(kills):
            time.sleep(rng.uniform(0.5, 6))
            # the first ones in any case: they fall into the copy
            name = ("extractor", "spark", "merger")[number] if number < 3 else rng.choice(list(starts))
            running[name].kill()
            running[name] = starts[name]()
        fleet.wait_for_versions(lambda: readable_from(fleet), versions)
    assert _check(fleet, database) > versions


@newest
@pytest.mark.timeout(600)
def test_every_version_is_in_balance_and_the_last_is_the_database(fleet: Fleet, database: Database) -> None:
    _run(fleet, database, kills=4, rate=150, versions=100)


@newest
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_same_with_many_kills(fleet: Fleet, database: Database) -> None:
    _run(fleet, database, kills=60, rate=300, versions=1000)


@newest
@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_while_chunks_are_planned_and_while_copies_become_readable(fleet: Fleet, database: Database) -> None:
    bench = Pgbench(database)
    with bench.working(rate=100):
        fleet.merger()
        fleet.lander()
        for point in ("extractor.chunks_produced", "extractor.copied_produced"):
            service = fleet.extractor(LOWWATER_FAIL_AT=point)
            assert service.wait(180) == -signal.SIGKILL, fleet.log_tails()
        fleet.extractor()
        fleet.wait_for_versions(lambda: readable_from(fleet), 50)
    assert _check(fleet, database) > 50
