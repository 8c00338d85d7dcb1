"""A slot that the server gives up because it holds too much log: a clear error, and a reset brings all back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowwater_fleet.cli.main import app
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.lake_beside import LakeBeside
from tests.support.postgres import Database, NewPostgres
from tests.support.postgres_fleet import postgres_fleet

ROWS = 2_000
#: so that little is written before the server lets go of a slot
SETTINGS = {
    "fsync": "off",
    "min_wal_size": "32MB",
    "max_wal_size": "48MB",
    "max_slot_wal_keep_size": "16MB",
}


@pytest.fixture
def small(new_postgres: NewPostgres) -> Database:
    server = new_postgres(settings=SETTINGS)
    server.start()
    return Database(server)


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, small: Database) -> Iterator[Fleet]:
    skip_without_spark()
    small.execute(f"""
        CREATE TABLE t (id int PRIMARY KEY, note text);
        INSERT INTO t SELECT n, 'note ' || n FROM generate_series(1, {ROWS}) n""")
    made = postgres_fleet(tmp_path, kafka.bootstrap_servers, unique, small)
    yield made
    made.kill_all()


def _lose_slot(database: Database) -> None:
    """Enough log that nobody captures, until the server gives the slot up."""

    def is_lost() -> bool:
        database.execute(
            "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 4000000)) FROM generate_series(1, 5)"
        )
        database.execute("SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
        return database.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]

    wait_until("the slot to be lost", is_lost)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_slot_that_held_too_much_log_is_named_and_a_reset_captures_and_copies_anew(
    fleet: Fleet, small: Database
) -> None:
    lake, source = LakeBeside(fleet, small), fleet.sources[0]
    extractor = fleet.extractor()
    fleet.merger()
    fleet.lander()
    lake.wait_for_copies(1, "t")
    small.execute("UPDATE t SET note = 'changed' WHERE id = 1")
    lake.assert_same("t")
    extractor.stop()
    # these are lost for the stream
    small.execute("DELETE FROM t WHERE id = 2")
    small.execute("UPDATE t SET note = 'unseen' WHERE id = 3")
    _lose_slot(small)
    extractor = fleet.extractor()
    shown = fleet.wait_for_status(extractor, "the error", lambda s: s["state"] == "failed")["error"]
    assert shown["error"] == "LogGapError"
    assert f"slot lowwater_{small.name} is invalidated" in shown["what"]
    assert "max_slot_wal_keep_size" in shown["hint"]
    assert "reset" in shown["hint"]
    assert lake.rows("t") != lake.rows_of_database("t")
    asked = CliRunner().invoke(app, ["source", "reset", source, "--yes", "-r", "a test", "-c", str(fleet.config)])
    assert asked.exit_code == 0, asked.output
    # the one that has waited for a word goes on
    lake.wait_for_copies(2, "t")
    small.execute("UPDATE t SET note = 'after' WHERE id = 4")
    lake.assert_same("t")
