"""Tables and ways to write to them that are rare, and in the log all the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.postgres.reading import MARKER, reading, stream_large_ones
from tests.support.postgres import Database, NewPostgres
from tests.support.versions import Change

from lowwater_devkit.servers.postgres_install import VERSIONS

LONG = "ab" * 1_200


def written(database: Database, before: str, *statements: str, **settings: Any) -> list[list[Change]]:
    database.execute(before)
    with reading(database, **settings) as read:
        for statement in statements:
            database.execute(statement)
        found = read.new()
        assert read.stale == {}
    return found


def rows(found: list[list[Change]]) -> list[list[tuple[str, str, Any]]]:
    return [[(c.op, c.table, c.after or c.before) for c in changes] for changes in found]


def test_a_table_without_columns_has_rows(database: Database) -> None:
    before = "CREATE TABLE t (); ALTER TABLE t REPLICA IDENTITY FULL"
    found = written(database, before, "INSERT INTO t DEFAULT VALUES", "DELETE FROM t")
    assert [[(c.op, c.before, c.after) for c in changes] for changes in found] == [[("c", None, {})], [("d", {}, None)]]


def test_an_unchanged_key_that_lies_out_of_line_comes_with_its_update(database: Database) -> None:
    before = "CREATE TABLE t (k text PRIMARY KEY, n int); ALTER TABLE t ALTER k SET STORAGE EXTERNAL"
    found = written(database, before, f"INSERT INTO t VALUES ('{LONG}', 1)", "UPDATE t SET n = 2", "DELETE FROM t")
    _, (update,), (delete,) = found
    assert (update.after, update.unchanged) == ({"k": LONG, "n": 2}, [])
    assert (delete.before or {})["k"] == LONG


def test_an_old_row_with_values_out_of_line_is_whole(database: Database) -> None:
    before = """CREATE TABLE t (id int PRIMARY KEY, body text, n int); ALTER TABLE t ALTER body SET STORAGE EXTERNAL;
                ALTER TABLE t REPLICA IDENTITY FULL"""
    _, (update,) = written(database, before, f"INSERT INTO t VALUES (1, '{LONG}', 1)", "UPDATE t SET n = 2")
    assert update.before == {"id": 1, "body": LONG, "n": 1}
    assert (update.after, update.unchanged) == ({"id": 1, "body": LONG, "n": 2}, [])


INHERITED = """
    CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
    INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2)"""


def test_tables_that_inherit_are_each_their_own(database: Database) -> None:
    work = ("TRUNCATE ONLY parent", "INSERT INTO child VALUES (3)", "UPDATE parent SET id = id + 10", "TRUNCATE parent")
    only, insert, update, both = rows(written(database, INHERITED, *work))
    assert (only, insert) == ([("t", "parent", None)], [("c", "child", {"id": 3})])
    assert update == [("u", "child", {"id": 12}), ("u", "child", {"id": 13})]
    assert sorted(both) == [("t", "child", None), ("t", "parent", None)]


def test_a_parent_alone_is_captured_without_its_children(database: Database) -> None:
    work = ("INSERT INTO child VALUES (3)", "UPDATE parent SET id = id + 10", "TRUNCATE parent", "TRUNCATE child")
    found = rows(written(database, INHERITED, *work, tables=["public.parent", MARKER]))
    assert found == [[("u", "parent", {"id": 11})], [("t", "parent", None)]]


def test_rows_that_are_copied_in_frozen_are_in_the_log(database: Database) -> None:
    work = "BEGIN; TRUNCATE t; COPY t FROM PROGRAM 'echo 1; echo 2' (FREEZE); COMMIT"
    found = rows(written(database, "CREATE TABLE t (id int PRIMARY KEY)", work))
    assert found == [[("t", "t", None), ("c", "t", {"id": 1}), ("c", "t", {"id": 2})]]


def test_a_session_that_plays_a_replica_is_captured(database: Database) -> None:
    work = "SET session_replication_role = replica; INSERT INTO t VALUES (1)"
    assert rows(written(database, "CREATE TABLE t (id int PRIMARY KEY)", work)) == [[("c", "t", {"id": 1})]]


@pytest.mark.parametrize("count", [1, 2_000], ids=["small", "large"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_prepared_transaction_comes_at_its_commit_and_a_rolled_back_one_never(
    new_postgres: NewPostgres, version: int, count: int
) -> None:
    server = new_postgres(version=version, settings={"fsync": "off", "max_prepared_transactions": "5"})
    server.start()
    database = Database(server)
    stream_large_ones(database)
    fill = "BEGIN; INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series({0}, {0} + {1} - 1) n; {2}"
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    with reading(database) as read:
        database.execute(fill.format(1, count, "PREPARE TRANSACTION 'kept'"))
        database.execute(fill.format(10_000, count, "PREPARE TRANSACTION 'dropped'"))
        database.execute("INSERT INTO t VALUES (0, 'meanwhile')")
        assert [[(c.after or {})["id"] for c in changes] for changes in read.new()] == [[0]]
        database.execute("ROLLBACK PREPARED 'dropped'")
        database.execute("COMMIT PREPARED 'kept'")
        assert [[(c.after or {})["id"] for c in changes] for changes in read.new()] == [list(range(1, count + 1))]


def test_names_that_are_ours_or_need_quotes_are_columns_like_others(database: Database) -> None:
    before = 'CREATE TABLE "t.u" (_gsn int PRIMARY KEY, op text, "a.b" int, "q""x" int, "ä" int, unchanged int)'
    ((change,),) = written(database, before, """INSERT INTO "t.u" VALUES (1, 'o', 2, 3, 4, 5)""")
    assert list((change.after or {}).values()) == [1, "o", 2, 3, 4, 5]
