"""Tables that are rewritten, emptied or dropped between two chunks of their copy: the lake is the database at the end.

Spark is stopped with some chunks of a table landed and others not; then the table changes under the copy.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lowwater.errors import LakeError
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.lake_beside import LakeBeside
from tests.support.postgres import Database
from tests.support.postgres_fleet import postgres_fleet

#: by whole pages that is this many chunks: more than Spark takes at a time
ROWS, CHUNK_ROWS, CHUNKS = 4_000, 300, 9

#: by table, in the order in which they are copied
REWRITES = {
    "a_retyped": "ALTER TABLE a_retyped ALTER COLUMN n TYPE text USING 'n' || n",
    "b_vacuumed": "DELETE FROM b_vacuumed WHERE id % 3 = 0; VACUUM FULL b_vacuumed",
    "c_clustered": "UPDATE c_clustered SET n = -n WHERE id % 2 = 0; CLUSTER c_clustered USING c_clustered_pkey",
    "d_truncated": "TRUNCATE d_truncated; INSERT INTO d_truncated SELECT x, x FROM generate_series(1, 100) x",
    "e_defaulted": "ALTER TABLE e_defaulted ADD COLUMN m float8 DEFAULT random()",
    "f_dropped": "DROP TABLE f_dropped",
}


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, database: Database) -> Iterator[Fleet]:
    skip_without_spark()
    made = postgres_fleet(tmp_path, kafka.bootstrap_servers, unique, database, chunk_rows=CHUNK_ROWS)
    yield made
    made.kill_all()


@contextmanager
def _stopped_in_the_middle(spark: Service, lake: LakeBeside, table: str) -> Iterator[None]:
    """With some of the table's chunks landed, and others not."""
    assert spark.process is not None

    def landed() -> int:
        try:
            return len(lake.landed_chunks(table))
        except LakeError:
            return 0

    wait_until(f"chunks of {table}; {lake.fleet.log_tails()}", landed)
    os.kill(spark.process.pid, signal.SIGSTOP)
    time.sleep(0.1)
    assert 0 < landed() < CHUNKS, "it was too quick for this test"
    try:
        yield
    finally:
        os.kill(spark.process.pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("postgres_server", [18], indirect=True)
def test_the_lake_is_the_database_at_the_end(fleet: Fleet, database: Database) -> None:
    tables = list(REWRITES)
    for table in tables:
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int);"
            f"INSERT INTO {table} SELECT x, x FROM generate_series(1, {ROWS}) x; ANALYZE {table}"
        )
    lake = LakeBeside(fleet, database)
    extractor = fleet.extractor()
    fleet.merger()
    spark = fleet.lander()
    for table in tables:
        with _stopped_in_the_middle(spark, lake, table):
            for statement in REWRITES[table].split("; "):
                database.execute(statement)
            if table != "f_dropped":
                database.execute(f"DELETE FROM {table} WHERE id = (SELECT max(id) FROM {table})")
    left = [table for table in tables if table != "f_dropped"]
    lake.wait_for_copies(1, *left)
    lake.assert_same(*left)
    print({table: lake.copies(table) for table in left})
    assert (extractor.status() or {})["state"] == "running", fleet.log_tails()
    # nothing waits for a table that is gone
    fleet.wait_for_status(spark, "idle copies", lambda s: s["copies"]["state"] == "idle")
    fleet.wait_for_status(extractor, "nothing to be copied", lambda s: s["copies"]["waiting"] == 0)
