"""Copy and stream of a PostgreSQL into a lake on S3: once as it comes, once with Spark killed in the middle of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowwater.lake.chain.manifest import ManifestKind
from lowwater.lake.read.verify import verify
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import Fleet, skip_without_spark
from tests.support.lake_beside import LakeBeside
from tests.support.postgres import Database
from tests.support.postgres_fleet import postgres_fleet
from tests.support.s3 import S3Server

KILLED = -signal.SIGKILL
ROWS, CHUNK_ROWS = 3_000, 300

pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("postgres_server", [18], indirect=True)]


@pytest.fixture
def lake(kafka: EmbeddedKafka, s3: S3Server, tmp_path: Path, unique: str, database: Database) -> Iterator[LakeBeside]:
    skip_without_spark()
    database.execute(f"""
        CREATE TABLE accounts (id int PRIMARY KEY, owner text, cents numeric(12, 2));
        INSERT INTO accounts SELECT n, 'owner ' || n, n * 1.25 FROM generate_series(1, {ROWS}) n;
        CREATE TABLE moves (id int PRIMARY KEY, account int, cents numeric(12, 2)); ANALYZE accounts""")
    place = s3.lake_config().model_dump(include={"uri", "options"})
    fleet: Fleet = postgres_fleet(
        tmp_path, kafka.bootstrap_servers, unique, database, lake=place, chunk_rows=CHUNK_ROWS
    )  # fmt: skip
    fleet.extractor()
    fleet.merger()
    yield LakeBeside(fleet, database)
    fleet.kill_all()


def _work(lake: LakeBeside, first: int) -> None:
    for n in range(first, first + 20):
        move = f"UPDATE accounts SET cents = cents - 1 WHERE id = {n}; INSERT INTO moves VALUES ({n}, {n}, 1)"
        lake.database.execute(f"BEGIN; {move}; COMMIT")
    lake.database.execute(f"DELETE FROM accounts WHERE id = {ROWS - first}")


def _check(lake: LakeBeside) -> None:
    """All rows; every chunk landed once; nothing that a manifest names is missing or broken."""
    lake.assert_same("accounts", "moves")
    chain = lake.lake.chain
    landed = [
        chunk for m in chain.log() if m.kind is ManifestKind.COPY for chunk in {(f.copy_id, f.chunk) for f in m.files}
    ]
    assert len(landed) == len(set(landed))
    assert not [found for found in verify(chain.store) if not found.rubbish]
    print(f"{len(landed)} chunks, gsn {lake.lake.gsn}")


def test_copied_and_streamed(lake: LakeBeside) -> None:
    lake.fleet.lander()
    _work(lake, 1)
    lake.wait_for_copies(1, "accounts", "moves")
    _work(lake, 101)
    _check(lake)
    assert len(lake.landed_chunks("accounts")) == ROWS // CHUNK_ROWS


@pytest.mark.long
def test_killed_while_it_is_copied(lake: LakeBeside) -> None:
    _work(lake, 1)
    for point in ("copy.some_files", "copy.files_written", "copy.manifest_created", "land.manifest_created"):
        assert lake.fleet.lander(LOWWATER_FAIL_AT=point).wait(240) == KILLED, lake.fleet.log_tails()
    _work(lake, 101)
    lake.fleet.lander()
    lake.wait_for_copies(1, "accounts", "moves")
    _work(lake, 201)
    _check(lake)
    # the extractor and its snapshot lived on: what had landed was not read again, and there was one plan
    assert lake.copies("accounts") == 1
