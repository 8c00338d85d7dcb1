"""Transactions larger than the server keeps in memory: they come in pieces, and are published whole or not at all."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.reading import reading, stream_large_ones
from tests.support.postgres import Database, NewPostgres
from tests.support.versions import Change

from lowwater_extractor.api import SourceTransaction

ROWS = 1500


@pytest.fixture
def large(database: Database) -> Database:
    stream_large_ones(database)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    return database


def insert(connection: psycopg.Connection[Any], first: int, count: int = ROWS) -> None:
    connection.execute(
        "INSERT INTO t SELECT n, md5(n::text) || repeat('x', 150) FROM generate_series(%s::int, %s::int) n",
        (first, first + count - 1),
    )


def ids(changes: list[Change]) -> list[int]:
    return [change.after["id"] for change in changes if change.after]


def spilled(directory: Path) -> list[Path]:
    return list(directory.rglob("*.spill"))


def test_what_was_rolled_back_to_a_savepoint_is_not_in_it(large: Database, tmp_path: Path) -> None:
    with reading(large, spill_bytes_max=20_000, spill_directory=str(tmp_path)) as read, large.connect() as connection:
        with connection.transaction():
            insert(connection, 0)
            with connection.transaction() as inner:
                insert(connection, 10_000)
                with connection.transaction():
                    insert(connection, 20_000)
                read.poll_until("pieces of it", lambda: read.running == 1)
                inner.force_rollback = True
            with connection.transaction():
                insert(connection, 30_000)
            with connection.transaction() as inner:
                insert(connection, 40_000, 10)
                inner.force_rollback = True
            connection.execute("UPDATE t SET body = 'short' WHERE id = 30000")
            connection.execute("DELETE FROM t WHERE id < 10")
        changes = read.one()
        assert read.running == 0
    wanted = [*range(ROWS), *range(30_000, 30_000 + ROWS), 30_000]
    assert ids(changes) == wanted
    assert [c.before for c in changes if c.op == "d"] == [{"id": n, "body": None} for n in range(10)]
    bodies = {c.after["id"]: c.after["body"] for c in changes if c.after}
    rows = dict(large.execute("SELECT id, body FROM t"))
    assert {n: bodies[n] for n in rows} == rows


def test_one_that_is_rolled_back_publishes_nothing_and_leaves_no_files(large: Database, tmp_path: Path) -> None:
    with reading(large, spill_bytes_max=20_000, spill_directory=str(tmp_path)) as read, large.connect() as connection:
        with connection.transaction(force_rollback=True):
            insert(connection, 0)
            read.poll_until("pieces of it on disk", lambda: bool(spilled(tmp_path)))
        assert read.new() == []
        gc.collect()
        assert (read.running, spilled(tmp_path)) == (0, [])
        assert read.encoders.versions("t") == [], "nothing was registered for it"
        insert(connection, 0, 3)
        assert ids(read.one()) == [0, 1, 2]


def test_two_at_once_are_taken_apart_and_come_in_the_order_of_their_commits(large: Database, tmp_path: Path) -> None:
    with (
        reading(large, spill_bytes_max=20_000, spill_directory=str(tmp_path)) as read,
        large.connect() as one,
        large.connect() as other,
    ):
        with one.transaction():
            insert(one, 0)
            with other.transaction():
                for part in range(5):
                    insert(other, 100_000 + part * ROWS)
                    insert(one, 10_000 + part * ROWS)
                read.poll_until("pieces of both", lambda: read.running == 2)
                large.execute("INSERT INTO t VALUES (-1, 'small')")
        small, second, first = read.new()
        assert ids(small) == [-1]
        assert ids(second) == list(range(100_000, 100_000 + 5 * ROWS))
        assert ids(first) == [*range(ROWS), *range(10_000, 10_000 + 5 * ROWS)]
    assert not spilled(tmp_path)


def test_marks_go_on_past_one_that_is_running_and_a_restart_reads_it_whole(large: Database, tmp_path: Path) -> None:
    with large.connect() as connection:
        with connection.transaction():
            with reading(large) as read:
                insert(connection, 0)
                read.poll_until("pieces of it", lambda: read.running == 1)
                large.execute("INSERT INTO t VALUES (-1, 'small')")
                assert ids(read.one()) == [-1]
                assert read.mark is not None
                resumes = {1: read.mark.resume}
                read.stream.acknowledge(resumes)
            insert(connection, 10_000)
        with reading(large, resumes) as read:
            assert ids(read.one()) == [*range(ROWS), *range(10_000, 10_000 + ROWS)]


def test_one_that_the_server_sends_whole_is_not_kept_in_memory_either(database: Database, tmp_path: Path) -> None:
    """Below the server's limit and above ours."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    settings: dict[str, Any] = {"spill_bytes_max": 20_000, "spill_directory": str(tmp_path), "read_bytes": 50_000}
    with reading(database, **settings) as read, database.connect() as connection:
        insert(connection, 0)
        transactions: list[SourceTransaction] = []
        while not transactions:
            transactions = read.poll()
            assert read.running == 0
        assert spilled(tmp_path)
        assert ids([read.encoders.change(frame) for frame in transactions[0].changes]) == list(range(ROWS))


@pytest.mark.parametrize("version", [14, 18])
@pytest.mark.parametrize("rows", [3, ROWS])
def test_a_prepared_transaction_comes_when_it_commits(new_postgres: NewPostgres, version: int, rows: int) -> None:
    server = new_postgres(version=version, settings={"max_prepared_transactions": "5", "fsync": "off"})
    server.start()
    database = Database(server)
    stream_large_ones(database)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    with reading(database) as read, database.connect() as connection:
        for number in range(2):
            connection.execute("BEGIN")
            insert(connection, 10_000 * number, rows)
            connection.execute(f"PREPARE TRANSACTION 'p{number}'".encode())
        database.execute("INSERT INTO t VALUES (-1, 'meanwhile')")
        assert ids(read.one()) == [-1]
        database.execute("ROLLBACK PREPARED 'p0'")
        database.execute("COMMIT PREPARED 'p1'")
        assert ids(read.one()) == list(range(10_000, 10_000 + rows))


def test_truncates_and_other_tables_keep_their_place_in_it(large: Database) -> None:
    large.execute("CREATE TABLE other (id int PRIMARY KEY)")
    with reading(large) as read, large.connect() as connection:
        with connection.transaction():
            insert(connection, 0)
            connection.execute("INSERT INTO other VALUES (1)")
            connection.execute("TRUNCATE t, other")
            insert(connection, 5000)
        changes = read.one()
    shown = [(c.op, c.table) for c in changes]
    assert shown[ROWS] == ("c", "other")
    assert sorted(shown[ROWS + 1 : ROWS + 3]) == [("t", "other"), ("t", "t")]
    assert ids(changes[ROWS + 3 :]) == list(range(5000, 5000 + ROWS))
