"""The lake is what the database is after tables have changed places, partitions come and gone, columns been made again:
without anybody's command, also where nobody writes afterwards, and where it was done while the extractor was away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.postgres.test_what_the_log_does_not_tell import run
from tests.support.harness import Fleet, skip_without_spark
from tests.support.lake_beside import LakeBeside
from tests.support.postgres import Database
from tests.support.postgres_fleet import postgres_fleet

from lowwater_fleet.kafka.embedded import EmbeddedKafka

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)

TABLES = """
    CREATE TABLE again (id int PRIMARY KEY, n int); INSERT INTO again SELECT n, n FROM generate_series(1, 100) n;
    CREATE TABLE first (id int PRIMARY KEY, n int); INSERT INTO first SELECT n, 1 FROM generate_series(1, 50) n;
    CREATE TABLE second (id int PRIMARY KEY, n int); INSERT INTO second SELECT n, 2 FROM generate_series(1, 60) n;
    CREATE TABLE altered (id int PRIMARY KEY, n int); INSERT INTO altered SELECT n, n FROM generate_series(1, 100) n;
    CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
    CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
    CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (100) TO (200);
    INSERT INTO parts SELECT n, n FROM generate_series(0, 199) n"""
NAMES = ("again", "first", "second", "altered", "parts")

#: one after the other, with a look at the lake after each
STEPS = [
    "DROP TABLE again; CREATE TABLE again (id int PRIMARY KEY, n int); INSERT INTO again VALUES (7, 7)",
    "BEGIN; ALTER TABLE first RENAME TO x; ALTER TABLE second RENAME TO first; ALTER TABLE x RENAME TO second; COMMIT",
    """ALTER TABLE altered DROP n; ALTER TABLE altered ADD n int;
       TRUNCATE part1; CREATE TABLE part3 (id int PRIMARY KEY, n int); INSERT INTO part3 VALUES (201, 1), (202, 2);
       ALTER TABLE parts ATTACH PARTITION part3 FOR VALUES FROM (200) TO (300); INSERT INTO parts VALUES (5, 5)""",
    """ALTER TABLE parts DETACH PARTITION part2; ALTER TABLE altered ALTER n TYPE int USING id * 3;
       UPDATE altered SET n = 0 WHERE id = 1""",
]


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, database: Database) -> Iterator[Fleet]:
    skip_without_spark()
    run(database, TABLES)
    made = postgres_fleet(tmp_path, kafka.bootstrap_servers, unique, database)
    yield made
    made.kill_all()


@newest
@pytest.mark.timeout(900)
def test_the_lake_is_the_database_after_tables_changed_under_their_names(fleet: Fleet, database: Database) -> None:
    lake = LakeBeside(fleet, database)
    extractor = fleet.extractor()
    fleet.merger()
    fleet.lander()
    lake.wait_for_copies(1, *NAMES)
    lake.assert_same(*NAMES)
    for number, step in enumerate(STEPS):
        is_away = number % 2 == 1
        if is_away:
            extractor.kill()
        run(database, step)
        if is_away:
            extractor = fleet.extractor()
        lake.assert_same(*NAMES)
    # a partition that became a table of its own is captured as one
    lake.assert_same("part2")
