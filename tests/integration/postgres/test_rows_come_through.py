"""Updates, deletes and truncates under each replica identity, values that the log leaves out, partitions."""

from __future__ import annotations

import random
from copy import copy

import psycopg
import pytest
from tests.integration.postgres.reading import reading, source_of
from tests.support.postgres import Database

from lowwater.errors import CodecError, StartRefusedError

#: does not compress, so that it is stored outside of its row
LONG = "".join(random.Random(7).choices("0123456789abcdef", k=100_000))


def test_updates_and_deletes_under_a_primary_key_have_the_key_only_where_it_changed(database: Database) -> None:
    database.execute("CREATE TABLE t (note text, b int, a int, PRIMARY KEY (a, b))")
    with reading(database) as read:
        database.execute("INSERT INTO t VALUES ('x', 2, 1); UPDATE t SET note = 'y'; UPDATE t SET a = 5; DELETE FROM t")
        insert, update, moved, delete = read.one()
    assert (insert.op, insert.before, insert.after) == ("c", None, {"note": "x", "b": 2, "a": 1})
    assert (update.op, update.before, update.after) == ("u", None, {"note": "y", "b": 2, "a": 1})
    assert moved.before == {"note": None, "b": 2, "a": 1}
    assert moved.after == {"note": "y", "b": 2, "a": 5}
    assert (delete.op, delete.before, delete.after) == ("d", {"note": None, "b": 2, "a": 5}, None)
    (table,) = read.encoders.versions("t")
    assert set(table.key) == {"a", "b"}


def test_the_full_identity_has_the_whole_old_row_and_the_primary_key(database: Database) -> None:
    database.execute("CREATE TABLE t (note text, b int, a int, PRIMARY KEY (a, b))")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    with reading(database) as read:
        database.execute("INSERT INTO t VALUES ('x', 2, 1); UPDATE t SET note = NULL; DELETE FROM t")
        _, update, delete = read.one()
    assert (update.before, update.after) == ({"note": "x", "b": 2, "a": 1}, {"note": None, "b": 2, "a": 1})
    assert delete.before == {"note": None, "b": 2, "a": 1}
    assert read.encoders.versions("t")[0].key == ("a", "b")


def test_an_index_as_identity_is_the_key(database: Database) -> None:
    database.execute("""
        CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, n int);
        CREATE UNIQUE INDEX by_code ON t (code); ALTER TABLE t REPLICA IDENTITY USING INDEX by_code""")
    with reading(database) as read:
        database.execute("INSERT INTO t VALUES (1, 'a', 1); UPDATE t SET code = 'b'; DELETE FROM t")
        _, moved, delete = read.one()
    assert moved.before == {"id": None, "code": "a", "n": None}
    assert delete.before == {"id": None, "code": "b", "n": None}
    assert read.encoders.versions("t")[0].key == ("code",)


def test_a_long_value_that_an_update_leaves_alone_is_named_as_unchanged(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text, n int)")
    database.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    with reading(database) as read:
        database.execute(f"INSERT INTO t VALUES (1, '{LONG}', 1)")
        assert read.one()[0].after == {"id": 1, "body": LONG, "n": 1}
        database.execute("UPDATE t SET n = 2")
        update = read.one()[0]
        assert (update.unchanged, update.after) == (["body"], {"id": 1, "body": None, "n": 2})
        database.execute("UPDATE t SET body = NULL")
        update = read.one()[0]
        assert (update.unchanged, update.after) == ([], {"id": 1, "body": None, "n": 2})


def test_a_long_value_that_an_update_leaves_alone_is_there_under_the_full_identity(database: Database) -> None:
    database.execute("""
        CREATE TABLE t (id int PRIMARY KEY, body text, n int); ALTER TABLE t ALTER body SET STORAGE EXTERNAL;
        ALTER TABLE t REPLICA IDENTITY FULL""")
    with reading(database) as read:
        database.execute(f"INSERT INTO t VALUES (1, '{LONG}', 1); UPDATE t SET n = 2; UPDATE t SET body = 'short'")
        _, update, shorter = read.one()
    assert (update.unchanged, update.after) == ([], {"id": 1, "body": LONG, "n": 2})
    assert update.before == {"id": 1, "body": LONG, "n": 1}
    assert (shorter.before, shorter.after) == ({"id": 1, "body": LONG, "n": 2}, {"id": 1, "body": "short", "n": 2})


KEYLESS = {
    "no key": "CREATE TABLE t (id int, n int)",
    "identity nothing": "CREATE TABLE t (id int PRIMARY KEY, n int); ALTER TABLE t REPLICA IDENTITY NOTHING",
    "a key that can be deferred": "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, n int)",
    "a part without key": """
        CREATE TABLE t (id int, n int) PARTITION BY LIST (id); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
        ALTER TABLE t REPLICA IDENTITY FULL""",
}


@pytest.mark.parametrize("made", KEYLESS.values(), ids=KEYLESS.keys())
def test_a_table_without_identity_is_refused_or_captured_by_its_inserts_only(database: Database, made: str) -> None:
    """Never published with its updates: the server would then refuse them to whoever works with the table."""
    database.execute(made)
    with pytest.raises(StartRefusedError) as caught, reading(database):
        pass
    assert "public.t cannot be captured" in caught.value.what
    assert "insert_only" in (caught.value.hint or "")
    with reading(database, without_key="insert_only") as read:
        database.execute("INSERT INTO t VALUES (1, 1)")
        database.execute("UPDATE t SET n = 2; DELETE FROM t")
        database.execute("INSERT INTO t VALUES (1, 3)")
        database.execute("TRUNCATE t")
        found = [change for changes in read.new() for change in changes]
    assert [(c.op, c.after) for c in found] == [("c", {"id": 1, "n": 1}), ("c", {"id": 1, "n": 3}), ("t", None)]


def test_a_truncate_of_two_tables_is_one_change_of_each_in_one_transaction(database: Database) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a)")
    with reading(database) as read:
        database.execute("INSERT INTO a VALUES (1); TRUNCATE a CASCADE; INSERT INTO a VALUES (2)")
        found = read.one()
        database.execute("TRUNCATE a, b RESTART IDENTITY")
        again = read.one()
    assert (found[0].op, found[0].table) == ("c", "a")
    assert sorted((c.op, c.table) for c in found[1:3]) == [("t", "a"), ("t", "b")]
    assert (found[3].op, found[3].after) == ("c", {"id": 2})
    assert sorted((c.op, c.table, c.after) for c in again) == [("t", "a", None), ("t", "b", None)]


def test_a_partitioned_table_is_captured_as_one_table(database: Database) -> None:
    database.execute("""
        CREATE TABLE t (id int, day date, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
        CREATE TABLE t_old PARTITION OF t FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
        -- the columns of this one lie in another order
        CREATE TABLE t_new (n int, dropped int, day date NOT NULL, id int NOT NULL, PRIMARY KEY (id, day));
        ALTER TABLE t_new DROP COLUMN dropped;
        ALTER TABLE t ATTACH PARTITION t_new FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')""")
    assert [table.table for table in source_of(database).discover()] == ["t"]
    with reading(database) as read:
        database.execute("INSERT INTO t VALUES (1, '2025-05-05', 1), (2, '2026-05-05', 2)")
        database.execute("UPDATE t SET day = '2026-06-06' WHERE id = 1")
        database.execute("CREATE TABLE t_next PARTITION OF t FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')")
        database.execute("INSERT INTO t_next VALUES (3, '2027-01-01', 3)")
        database.execute("TRUNCATE t")
        inserts, moved, later, truncated = read.new()
    assert [c.after for c in inserts] == [{"id": 1, "day": 20_213, "n": 1}, {"id": 2, "day": 20_578, "n": 2}]
    assert [(c.op, (c.after or c.before or {})["day"]) for c in moved] == [("d", 20_213), ("c", 20_610)]
    assert [c.after for c in later] == [{"id": 3, "day": 20_819, "n": 3}]
    assert [c.op for c in truncated] == ["t"]
    assert {c.table for changes in (inserts, moved, later, truncated) for c in changes} == {"t"}
    assert [t.table for t in read.encoders._encoders if t.table.startswith("t_")] == [], "no partition is a table"


def test_a_partition_with_less_identity_than_its_table_loses_no_value(database: Database) -> None:
    """REPLICA IDENTITY of a partitioned table does not reach its partitions."""
    database.execute("""
        CREATE TABLE t (id int PRIMARY KEY, body text, n int) PARTITION BY RANGE (id);
        CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100); ALTER TABLE t1 ALTER body SET STORAGE EXTERNAL;
        ALTER TABLE t REPLICA IDENTITY FULL""")
    with reading(database) as read:
        database.execute(f"INSERT INTO t VALUES (1, '{LONG}', 1); UPDATE t SET n = 2; UPDATE t SET id = 2")
        _, update, moved = read.one()
    assert (update.unchanged, update.after) == (["body"], {"id": 1, "body": None, "n": 2})
    assert (moved.unchanged, moved.after) == (["body"], {"id": 2, "body": None, "n": 2})
    assert (moved.before or {})["id"] == 1


def test_generated_columns_are_left_out(database: Database) -> None:
    kinds = ["STORED"] + (["VIRTUAL"] if database.server.version >= 18 else [])
    columns = ", ".join(f"g{n} int GENERATED ALWAYS AS (n * 2) {kind}" for n, kind in enumerate(kinds))
    database.execute(f"CREATE TABLE t (id serial PRIMARY KEY, {columns}, n int DEFAULT 7)")
    with reading(database) as read:
        database.execute("INSERT INTO t DEFAULT VALUES; UPDATE t SET n = 8")
        assert [c.after for c in read.one()] == [{"id": 1, "n": 7}, {"id": 1, "n": 8}]
    (discovered,) = (table for table in source_of(database).discover() if table.table == "t")
    assert [column.name for column in discovered.columns] == ["id", "n"]


def test_names_that_need_quotes_come_through(database: Database) -> None:
    name = '"My Schema"."Tä ""b"""'
    database.execute(f'CREATE SCHEMA "My Schema"; CREATE TABLE {name} ("Größe %s" int PRIMARY KEY, "a.b" text)')
    with reading(database, tables=["public.*", "My Schema.*"]) as read:
        database.execute(f"INSERT INTO {name} VALUES (1, '%s')")
        (change,) = read.one()
    assert (change.table, list((change.after or {}).values())) == ('Tä "b"', [1, "%s"])


def test_what_a_database_sets_for_its_sessions_changes_no_value(database: Database) -> None:
    for setting in ("datestyle = 'SQL, DMY'", "timezone = 'Asia/Kolkata'", "bytea_output = 'escape'",
                    "extra_float_digits = -5", "intervalstyle = 'postgres_verbose'"):  # fmt: skip
        database.execute(f"ALTER DATABASE {database.name} SET {setting}")
        database.execute(f"ALTER ROLE postgres IN DATABASE {database.name} SET {setting}")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, tz timestamptz, d date, b bytea, f float8, i interval)")
    with reading(database) as read:
        values = "'2026-01-02 03:04:05+00', '2026-01-02', '\\x00ff', 0.1::float8 + 0.2::float8, '1 year 2 days'"
        database.execute(f"INSERT INTO t VALUES (1, {values})")
        (change,) = read.one()
    row = {"tz": 1_767_323_045_000_000, "d": 20_455, "b": b"\x00\xff", "f": 0.1 + 0.2, "i": "P1Y2D"}
    assert change.after == {"id": 1, **row}


def test_a_database_in_another_encoding_is_published_as_utf_8(database: Database) -> None:
    latin = copy(database)
    latin.name = f"{database.name}_latin"
    database.execute(f"CREATE DATABASE {latin.name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with psycopg.connect(latin.conninfo, client_encoding="utf8", autocommit=True) as connection:
            connection.execute('CREATE TABLE "tä" ("größe" text PRIMARY KEY)')
            with reading(latin) as read:
                connection.execute("""INSERT INTO "tä" VALUES ('ÄÖÜ')""")
                (change,) = read.one()
        assert (change.table, list((change.after or {}).values())) == ("tä", ["ÄÖÜ"])
    finally:
        latin.drop()


def test_a_value_that_has_no_place_in_its_type_names_the_column_and_goes_on_as_text(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, price numeric(8, 2), m int[])")
    with reading(database) as read:
        database.execute("INSERT INTO t VALUES (1, 'NaN', NULL)")
        with pytest.raises(CodecError) as caught:
            read.new()
        assert read.mark is not None
        resumes = {1: read.mark.resume}
    assert "public.t.price" in caught.value.what
    assert "text" in (caught.value.hint or "")
    with reading(database, resumes, as_text=["public.t.price", "public.t.m"]) as read:
        database.execute("INSERT INTO t VALUES (2, 1.50, '{{1}}')")
        rows = [change.after for changes in read.new() for change in changes]
    assert rows == [{"id": 1, "price": "NaN", "m": None}, {"id": 2, "price": "1.50", "m": "{{1}}"}]
