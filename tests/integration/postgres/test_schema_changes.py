"""A table that is altered is a new version of it, from the transaction on that altered it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.postgres.reading import Read, reading, stream_large_ones
from tests.support.postgres import Database
from tests.support.versions import Change

from lowwater.codec import table as t
from lowwater_extractor.sources.postgres import stream as stream_module


@pytest.fixture
def altered(database: Database) -> Database:
    stream_large_ones(database)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, note text)")
    return database


def shown(transactions: list[list[Change]]) -> list[tuple[int, Any]]:
    """Of each change: its version and its row."""
    return [(change.version, change.after) for changes in transactions for change in changes]


def types(read: Read, version: int) -> dict[str, t.Type]:
    return {column.name: column.type for column in read.encoders.versions("t")[version - 1].columns}


ALTERS: dict[str, tuple[str, str, dict[str, t.Type], dict[str, Any]]] = {
    "add": (
        "ADD COLUMN d date DEFAULT '2026-01-01'", "2, 20, 'b'",
        {"id": t.INT32, "n": t.INT32, "note": t.STRING, "d": t.DATE},
        {"id": 2, "n": 20, "note": "b", "d": 20_454},
    ),
    "drop": ("DROP COLUMN n", "2, 'b'", {"id": t.INT32, "note": t.STRING}, {"id": 2, "note": "b"}),
    "rename": (
        "RENAME COLUMN n TO amount", "2, 20, 'b'",
        {"id": t.INT32, "amount": t.INT32, "note": t.STRING}, {"id": 2, "amount": 20, "note": "b"},
    ),
    "retype": (
        "ALTER COLUMN n TYPE numeric(10, 2)", "2, 20.5, 'b'",
        {"id": t.INT32, "n": t.decimal(10, 2), "note": t.STRING}, {"id": 2, "n": 20.5, "note": "b"},
    ),
    "another key": (
        "DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, n)", "2, 20, 'b'",
        {"id": t.INT32, "n": t.INT32, "note": t.STRING}, {"id": 2, "n": 20, "note": "b"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("alter", ALTERS.values(), ids=ALTERS.keys())
def test_a_version_begins_in_the_transaction_that_alters(altered: Database, alter: tuple[Any, ...]) -> None:
    how, values, wanted_types, wanted = alter
    with reading(altered) as read:
        altered.execute("INSERT INTO t VALUES (1, 10, 'a')")
        altered.execute(f"""
            INSERT INTO t VALUES (11, 10, 'a'); ALTER TABLE t {how}; INSERT INTO t VALUES ({values})""")
        altered.execute("UPDATE t SET note = 'c' WHERE id = 2")
        found = shown(read.new())
        assert found == [
            (1, {"id": 1, "n": 10, "note": "a"}),
            (1, {"id": 11, "n": 10, "note": "a"}),
            (2, wanted),
            (2, {**wanted, "note": "c"}),
        ]
        assert types(read, 2) == wanted_types
        keys = [version.key for version in read.encoders.versions("t")]
        assert keys == [("id",), ("id", "n") if "PRIMARY KEY" in how else ("id",)]


def test_columns_in_another_order_are_another_version_and_back_again_is_the_first(altered: Database) -> None:
    with reading(altered) as read:
        altered.execute("INSERT INTO t VALUES (1, 10, 'a')")
        altered.execute(
            "ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD COLUMN n int; INSERT INTO t VALUES (2, 'b', 20)"
        )
        altered.execute("ALTER TABLE t DROP COLUMN note; ALTER TABLE t ADD COLUMN note text")
        altered.execute("INSERT INTO t VALUES (3, 30, 'c')")
        found = shown(read.new())
    assert found == [
        (1, {"id": 1, "n": 10, "note": "a"}),
        (2, {"id": 2, "note": "b", "n": 20}),
        (1, {"id": 3, "n": 30, "note": "c"}),
    ]


def test_an_alter_that_changes_nothing_of_a_row_is_no_version(altered: Database) -> None:
    with reading(altered) as read:
        altered.execute("INSERT INTO t VALUES (1, 10, 'a')")
        altered.execute("ALTER TABLE t ALTER note SET NOT NULL; CREATE INDEX ON t (n); ANALYZE t")
        altered.execute("INSERT INTO t VALUES (2, 20, 'b')")
        assert [version for version, _ in shown(read.new())] == [1, 1]


def test_a_table_that_is_renamed_goes_on_under_its_new_name(altered: Database) -> None:
    with reading(altered) as read:
        altered.execute("INSERT INTO t VALUES (1, 10, 'a')")
        altered.execute("ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (2, 20, 'b')")
        assert [(c.table, c.version) for changes in read.new() for c in changes] == [("t", 1), ("u", 1)]


def test_a_large_transaction_has_both_versions_and_others_meanwhile_the_old_one(altered: Database) -> None:
    altered.execute("CREATE TABLE other (id int PRIMARY KEY, body text)")
    fill = "INSERT INTO t SELECT n, 1, repeat('x', 200) FROM generate_series(%s::int, %s::int) n"
    with reading(altered) as read, altered.connect() as connection:
        with connection.transaction():
            connection.execute(fill, (1000, 1999))
            connection.execute("ALTER TABLE t ADD COLUMN d int DEFAULT 7")
            connection.execute(fill, (2000, 2999))
            # a type that nobody else can see yet
            connection.execute("CREATE DOMAIN whole AS bigint; ALTER TABLE t ADD COLUMN w whole, ADD COLUMN m int[][]")
            connection.execute("INSERT INTO t VALUES (3000, 1, '', 7, 8, '{{1,2},{3,4}}')")
            connection.execute(fill, (4000, 4999))
            read.poll_until("pieces of it", lambda: read.running == 1)
            altered.execute("INSERT INTO other VALUES (1, 'meanwhile')")
        altered.execute("INSERT INTO t VALUES (1, 1, 'later', 7, 9, '{{5}}')")
        meanwhile, large, later = read.new()
        assert shown([meanwhile]) == [(1, {"id": 1, "body": "meanwhile"})]
        assert [c.version for c in large] == [1] * 1000 + [2] * 1000 + [3] * 1001
        row = {"id": 3000, "n": 1, "note": "", "d": 7, "w": 8, "m": [[1, 2], [3, 4]]}
        assert large[2000].after == row
        assert shown([later]) == [(3, {**row, "id": 1, "note": "later", "w": 9, "m": [[5]]})]
        assert [len(version.columns) for version in read.encoders.versions("t")] == [3, 4, 6]
        assert types(read, 3)["w"] == t.INT64


@pytest.mark.parametrize("rows", [1, 1000], ids=["whole", "in pieces"])
def test_an_alter_that_is_rolled_back_is_no_version(altered: Database, rows: int) -> None:
    fill = "INSERT INTO t SELECT n, 1, repeat('x', 200) FROM generate_series(%s::int, %s::int) n"
    with reading(altered) as read, altered.connect() as connection:
        with connection.transaction():
            connection.execute(fill, (1000, 999 + rows))
            with connection.transaction() as inner:
                connection.execute("ALTER TABLE t ADD COLUMN d int DEFAULT 7")
                connection.execute(fill, (2000, 1999 + rows))
                if rows > 1:
                    read.poll_until("pieces of it", lambda: read.running == 1)
                inner.force_rollback = True
        altered.execute("INSERT INTO t VALUES (1, 1, 'later')")
        first, later = read.new()
        assert [c.version for c in first] == [1] * rows
        assert shown([later]) == [(1, {"id": 1, "n": 1, "note": "later"})]
        assert len(read.encoders.versions("t")) == 1


def test_a_table_that_is_locked_holds_nothing_up(altered: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever alters a table in a long transaction locks it, also for those who only look."""
    monkeypatch.setattr(stream_module, "FIGURES_SECONDS", 0.0)
    altered.execute("""
        CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (100); CREATE TABLE free (id int PRIMARY KEY)""")
    with reading(altered) as read:
        assert read.mark is not None
        resumes = {1: read.mark.resume}
    with altered.connect() as connection, connection.transaction():
        connection.execute("LOCK t, parts, part IN ACCESS EXCLUSIVE MODE")
        with reading(altered, resumes) as read:
            altered.execute("INSERT INTO free VALUES (1)")
            assert [(c.table, c.after) for c in read.one()] == [("free", {"id": 1})]
            assert len(read.source.discover()) == 4


def test_a_new_table_is_captured_within_seconds(altered: Database) -> None:
    """What was written before the publication had it comes by the table's copy, not by the stream."""
    with reading(altered) as read:
        read.new()
        altered.execute("CREATE TABLE young (id int PRIMARY KEY); INSERT INTO young VALUES (1)")
        read.poll_until("the new table", lambda: read.is_stale("young"))
        altered.execute("INSERT INTO young VALUES (2)")
        assert [(c.table, c.after) for c in read.one()] == [("young", {"id": 2})]


def test_a_table_that_is_dropped_leaves_the_others_alone(altered: Database) -> None:
    with reading(altered) as read:
        altered.execute("CREATE TABLE gone (id int PRIMARY KEY)")
        assert read.mark is not None
        resumes = {1: read.mark.resume}
    with reading(altered, resumes) as read:
        altered.execute("INSERT INTO gone VALUES (1); INSERT INTO t VALUES (1, 1, 'a')")
        altered.execute("DROP TABLE gone")
        altered.execute("INSERT INTO t VALUES (2, 2, 'b')")
        assert [c.table for changes in read.new() for c in changes] == ["gone", "t", "t"]
    # what was written while it was there is read again after it has gone
    with reading(altered, resumes) as read:
        assert [c.table for changes in read.new() for c in changes] == ["gone", "t", "t"]


def test_changes_older_than_a_rename_of_the_key_are_read_after_it(altered: Database) -> None:
    altered.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with reading(altered) as read:
        assert read.mark is not None
        resumes = {1: read.mark.resume}
    altered.execute("INSERT INTO t VALUES (1, 1, 'a')")
    altered.execute("ALTER TABLE t RENAME COLUMN id TO number")
    altered.execute("INSERT INTO t VALUES (2, 2, 'b')")
    with reading(altered, resumes) as read:
        assert [row for _, row in shown(read.new())] == [
            {"id": 1, "n": 1, "note": "a"},
            {"number": 2, "n": 2, "note": "b"},
        ]
        for version in read.encoders.versions("t"):
            assert set(version.key) <= {column.name for column in version.columns}
