"""What is done to a table without a word in the log names it stale, by itself and within seconds; also while nobody
reads, and whether or not somebody writes to it afterwards. What changes no row does not."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.integration.postgres.reading import Read, reading
from tests.support.postgres import Database

from lowwater_extractor.sources.postgres.catalogue_watch import digest
from lowwater_extractor.sources.postgres.stream import PostgresStream

PARTS = """
    CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
    CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (20);
    INSERT INTO p VALUES (1, 1), (11, 1)"""
TWO = """
    CREATE TABLE t (id int PRIMARY KEY, n int, note text); INSERT INTO t VALUES (1, 1, 'a');
    CREATE TABLE u (id int PRIMARY KEY, n int, note text); INSERT INTO u VALUES (2, 2, 'b')"""
TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b mood); CREATE DOMAIN feeling AS mood;
    CREATE TABLE t (id int PRIMARY KEY, m mood); CREATE TABLE u (id int PRIMARY KEY, m feeling[]);
    CREATE TABLE v (id int PRIMARY KEY, p pair); CREATE TABLE w (id int PRIMARY KEY, n int)"""

#: condition → before, what is done, which tables are stale then
STALE: dict[str, tuple[str, str, set[str]]] = {
    "dropped and made again": (
        TWO, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, n int, note text); INSERT INTO t VALUES (9, 9)", {"t"},
    ),
    "dropped and made again by CREATE TABLE AS": (
        TWO, "DROP TABLE t; CREATE TABLE t AS SELECT 7 AS id; ALTER TABLE t ADD PRIMARY KEY (id)", {"t"},
    ),
    "dropped": (TWO, "DROP TABLE t", {"t"}),
    "names of two tables swapped": (
        TWO, "BEGIN; ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u; COMMIT",
        {"t", "u"},
    ),
    "renamed": (TWO, "ALTER TABLE t RENAME TO x", {"t", "x"}),
    "moved to another schema": (TWO, "CREATE SCHEMA other; ALTER TABLE t SET SCHEMA other", {"t"}),
    "moved here from another schema": (
        TWO + "; CREATE SCHEMA other; CREATE TABLE other.v (id int PRIMARY KEY); INSERT INTO other.v VALUES (1)",
        "ALTER TABLE other.v SET SCHEMA public", {"v"},
    ),
    "a filled partition attached": (
        PARTS, """CREATE TABLE q (id int PRIMARY KEY, n int); INSERT INTO q VALUES (31, 1);
                  ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (30) TO (40)""", {"p"},
    ),
    "a filled partition made and attached in one transaction": (
        PARTS, """BEGIN; CREATE TABLE q (id int PRIMARY KEY, n int); INSERT INTO q VALUES (31, 1);
                  ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (30) TO (40); COMMIT""", {"p"},
    ),
    "a filled tree of partitions attached": (
        PARTS, """BEGIN; CREATE TABLE q (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
                  CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (30) TO (35); INSERT INTO q VALUES (31, 1);
                  ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (30) TO (40); COMMIT""", {"p"},
    ),
    "a partition detached": (PARTS, "ALTER TABLE p DETACH PARTITION p1", {"p", "p1"}),
    "a partition detached concurrently": (PARTS, "ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY", {"p", "p1"}),
    "a partition detached and attached again": (
        PARTS, """ALTER TABLE p DETACH PARTITION p1; DELETE FROM p1; ALTER TABLE p ATTACH PARTITION p1
                  FOR VALUES FROM (0) TO (10)""", {"p"},
    ),
    "a partition dropped": (PARTS, "DROP TABLE p21", {"p"}),
    "a partition truncated": (PARTS, "TRUNCATE p1", {"p"}),
    "a partition truncated, filled and analyzed": (
        PARTS, "TRUNCATE p21; INSERT INTO p21 VALUES (12, 1); ANALYZE p21", {"p"},
    ),
    "a branch of partitions truncated": (PARTS, "TRUNCATE p2", {"p"}),
    "a column dropped and added again": (TWO, "ALTER TABLE t DROP COLUMN n; ALTER TABLE t ADD COLUMN n int", {"t"}),
    "a column renamed": (TWO, "ALTER TABLE t RENAME n TO m", {"t"}),
    "names of two columns swapped": (
        TWO, "ALTER TABLE t RENAME n TO x; ALTER TABLE t RENAME note TO n; ALTER TABLE t RENAME x TO note", {"t"},
    ),
    "a column retyped": (TWO, "ALTER TABLE t ALTER n TYPE bigint USING n * 2", {"t"}),
    "values rewritten under the same type": (TWO, "ALTER TABLE t ALTER n TYPE int USING n + 1", {"t"}),
    "a column with a default": (TWO, "ALTER TABLE t ADD c int DEFAULT 7", {"t"}),
    "a column with a default that is dropped at once": (
        TWO, "ALTER TABLE t ADD c int DEFAULT 7; ALTER TABLE t ALTER c DROP DEFAULT", {"t"},
    ),
    "a column with a volatile default that is dropped at once": (
        TWO, "ALTER TABLE t ADD c float8 DEFAULT random(); ALTER TABLE t ALTER c DROP DEFAULT", {"t"},
    ),
    "a column of a domain with a default": (
        TWO, "CREATE DOMAIN seven AS int DEFAULT 7 CHECK (VALUE > 0); ALTER TABLE t ADD c seven", {"t"},
    ),
    "an identity column": (TWO, "ALTER TABLE t ADD c int GENERATED ALWAYS AS IDENTITY", {"t"}),
    "a column with a default in partitions": (
        PARTS, "ALTER TABLE p ADD c int DEFAULT 7; ALTER TABLE p ALTER c DROP DEFAULT", {"p"},
    ),
    "a generated column that is an ordinary one now": (
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED); INSERT INTO t VALUES (1)",
        "ALTER TABLE t ALTER g DROP EXPRESSION", {"t"},
    ),
    "another primary key": (TWO, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, note)", {"t"}),
    "another replica identity": (
        TWO, """ALTER TABLE t ALTER n SET NOT NULL; CREATE UNIQUE INDEX i ON t (n);
                ALTER TABLE t REPLICA IDENTITY USING INDEX i""", {"t"},
    ),
    "a label of an enum renamed and back": (
        TYPES, "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'; ALTER TYPE mood RENAME VALUE 'fine' TO 'ok'",
        {"t", "u", "v"},
    ),
    "a label of an enum renamed": (TYPES, "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'", {"t", "u", "v"}),
    "an attribute added to a composite type": (TYPES, "ALTER TYPE pair ADD ATTRIBUTE c int", {"v"}),
    "taken out of the publication": (TWO, "ALTER PUBLICATION lowwater_conformance DROP TABLE t", {"t"}),
    "taken out of the publication and put in again": (
        TWO, "ALTER PUBLICATION lowwater_conformance DROP TABLE t; ALTER PUBLICATION lowwater_conformance ADD TABLE t",
        {"t"},
    ),
}  # fmt: skip

#: condition → before, what is done: no row has changed, or the log says so
NOT_STALE: dict[str, tuple[str, str]] = {
    "VACUUM FULL": (TWO, "VACUUM FULL t"),
    "CLUSTER": (TWO, "CLUSTER t USING t_pkey"),
    "VACUUM of a partition": (PARTS, "VACUUM p1"),
    "ANALYZE": (PARTS, "ANALYZE p"),
    "TRUNCATE": (TWO, "TRUNCATE t"),
    "a new partition": (
        PARTS, "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (31, 1)",
    ),
    "a new partition with a default of its own": (
        PARTS, "CREATE TABLE p3 PARTITION OF p (n DEFAULT 7) FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (31)",
    ),
    "new partitions below a new one": (
        PARTS, """CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40) PARTITION BY RANGE (id);
                  CREATE TABLE p31 PARTITION OF p3 FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (31, 1)""",
    ),
    "a column without a default": (TWO, "ALTER TABLE t ADD c int"),
    "a column dropped": (TWO, "ALTER TABLE t DROP n"),
    "a default, NOT NULL, statistics, a grant": (
        TWO, """ALTER TABLE t ALTER n SET DEFAULT 5, ALTER note SET NOT NULL, ALTER n SET STATISTICS 100;
                GRANT SELECT ON t TO PUBLIC""",
    ),
    "an index": (TWO, "CREATE INDEX ON t (n); CREATE UNIQUE INDEX ON t (note)"),
    "REPLICA IDENTITY FULL": (TWO, "ALTER TABLE t REPLICA IDENTITY FULL"),
    "an inherited table": (
        TWO + "; CREATE SCHEMA other", "CREATE TABLE other.c () INHERITS (t); INSERT INTO other.c VALUES (5)",
    ),
    "a label added to an enum": (TYPES, "ALTER TYPE mood ADD VALUE 'glad'"),
    "a column of an enum dropped": (TYPES, "ALTER TABLE t DROP m"),
    "another tables' publication": (TWO, "CREATE PUBLICATION other FOR ALL TABLES"),
    "an unlogged table and a view": (
        TWO, "CREATE UNLOGGED TABLE x (id int PRIMARY KEY); CREATE MATERIALIZED VIEW y AS SELECT * FROM t",
    ),
}  # fmt: skip


def run(database: Database, statements: str) -> None:
    """Each in a transaction of its own, unless it says otherwise: some may not be in one with others."""
    with database.connect() as connection:
        for statement in statements.split(";"):
            connection.execute(statement.encode())


def check_stale(read: Read, wanted: set[str]) -> None:
    read.poll_until(f"{wanted} to be stale", lambda: all(read.is_stale(table) for table in wanted))
    assert {name.removeprefix("public.") for name in read.stale} == wanted


@pytest.mark.parametrize("case", STALE.values(), ids=STALE.keys())
def test_a_table_is_stale_within_seconds_although_nobody_writes_to_it(
    database: Database, case: tuple[str, str, set[str]]
) -> None:
    before, done, wanted = case
    run(database, before)
    with reading(database) as read:
        read.new()
        began = time.monotonic()
        run(database, done)
        for _ in range(3):
            read.new()
            read.wait_for_the_watch()
        ((place,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        check_stale(read, wanted)
        assert time.monotonic() - began < 20
        assert all(order.major <= place for order in read.stale.values())
        # what is known now is not found a second time
        found = dict(read.stale)
        read.wait_for_the_watch()
        assert read.stale == found


@pytest.mark.parametrize("case", STALE.values(), ids=STALE.keys())
def test_a_table_is_stale_from_the_next_start_on(database: Database, case: tuple[str, str, set[str]]) -> None:
    before, done, wanted = case
    run(database, before)
    with reading(database) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
    run(database, done)
    with reading(database, resumes, notes) as read:
        read.poll()
        assert {name.removeprefix("public.") for name in read.stale} == wanted
        read.new()
        check_stale(read, wanted)
        assert read.mark is not None
        resumes, notes, found = {1: read.mark.resume}, read.notes, read.stale
    # remembered, and not found a second time
    with reading(database, resumes, notes) as read:
        read.new()
        assert read.stale == found


@pytest.mark.parametrize("case", NOT_STALE.values(), ids=NOT_STALE.keys())
def test_a_table_is_not_stale_by_what_changes_no_row(database: Database, case: tuple[str, str]) -> None:
    before, done = case
    run(database, before)
    with reading(database) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
        run(database, done)
        read.new()
        read.wait_for_the_watch()
        assert read.stale == {}
    with reading(database, resumes, notes) as read:
        read.new()
        assert read.stale == {}


def test_a_change_after_an_alter_is_never_handed_over_before_its_table_is_stale(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch itself is asleep: the relation that the stream names again is looked at."""
    run(database, TWO + "; " + PARTS)
    with reading(database) as read:
        read.new()
        monkeypatch.setattr(digest, "WATCH_SECONDS", 3600.0)
        read.wait_for_the_watch()
        for done, write, table in (
            ("ALTER TABLE t ALTER n TYPE int USING n + 1", "UPDATE t SET note = 'x'", "t"),
            ("TRUNCATE p1", "INSERT INTO p VALUES (2, 2)", "p"),
            ("BEGIN; ALTER TABLE u ADD c int DEFAULT 7; INSERT INTO u VALUES (5, 5, 'e', 5); COMMIT", "", "u"),
        ):
            run(database, f"{done}; {write}" if write else done)
            while not read.poll():
                pass
            assert f"public.{table}" in read.stale


OUT_OF_THE_LOG = {
    "drop and create": "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, name text)",
    "names change places": "ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u",
    "a column with a value": "ALTER TABLE t ADD c int DEFAULT 7",
    "a filled partition": "CREATE TABLE p9 (id int PRIMARY KEY, n int); INSERT INTO p9 VALUES (900, 1); "
    "ALTER TABLE p ATTACH PARTITION p9 FOR VALUES FROM (900) TO (1000)",
}


@pytest.mark.parametrize("done", OUT_OF_THE_LOG.values(), ids=OUT_OF_THE_LOG.keys())
def test_any_transaction_after_what_no_log_tells_comes_after_its_table_is_stale(database: Database, done: str) -> None:
    """The transaction is one of another table: nothing in the stream tells of it."""
    run(database, TWO + "; " + PARTS + "; CREATE TABLE other (id int PRIMARY KEY)")
    table = "public.p" if "ATTACH" in done else "public.t"
    with reading(database) as read:
        read.new()
        run(database, done)
        for number in range(20):
            run(database, f"INSERT INTO other VALUES ({number})")
        while not read.poll():
            pass
        assert table in read.stale


def test_a_column_that_rows_were_written_with_and_that_is_gone_since_makes_its_table_stale(database: Database) -> None:
    """Whether it was another column's name, whose values old rows had, is in no log, and in the catalogue no more."""
    run(database, TWO)
    with reading(database) as read:
        read.new()
        run(database, "ALTER TABLE t RENAME note TO x; INSERT INTO t (id, x) VALUES (7, 'seven')")
        run(database, "ALTER TABLE t DROP x")
        while not read.poll():
            pass
        assert "public.t" in read.stale


def test_a_table_that_comes_while_the_publication_is_changed_is_captured(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look that the publication is kept to, and before the one that is compared."""
    run(database, TWO)
    with reading(database) as read:
        read.new()
        assert isinstance(read.stream, PostgresStream)
        watch = read.stream._watch
        follow = watch._follow

        def follow_and_make(look: Any) -> bool:
            is_changed = follow(look)
            if is_changed:
                run(database, "CREATE TABLE IF NOT EXISTS late (id int PRIMARY KEY)")
            return is_changed

        monkeypatch.setattr(watch, "_follow", follow_and_make)
        run(database, "CREATE TABLE early (id int PRIMARY KEY)")
        read.wait_until_stale("early", "late")


def test_a_table_made_again_is_captured_within_the_session(database: Database) -> None:
    run(database, TWO)
    with reading(database) as read:
        read.new()
        run(database, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, name text)")
        read.wait_until_stale("t")
        run(database, "INSERT INTO t VALUES (1, 'new')")
        assert [(c.table, c.after) for c in read.one()] == [("t", {"id": 1, "name": "new"})]


def test_changes_of_a_table_that_has_lost_its_name_are_not_captured(database: Database) -> None:
    """The publication still has it until the watch comes round."""
    run(database, TWO)
    with reading(database, tables=["public.t", "public.lowwater_marker"]) as read:
        read.new()
        run(database, "ALTER TABLE t RENAME TO old; INSERT INTO old VALUES (8, 8, 'x')")
        run(database, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO old VALUES (9, 9, 'x')")
        assert read.new() == []
        read.wait_for_the_watch()
        assert read.stale.keys() == {"public.t"}
        run(database, "INSERT INTO old VALUES (10, 9, 'x'); INSERT INTO t VALUES (5)")
        assert [(c.table, c.after) for c in read.one()] == [("t", {"id": 5})]


def test_a_table_that_is_locked_does_not_hold_up_the_stream(database: Database) -> None:
    run(database, TWO)
    with reading(database) as read, database.connect() as connection:
        read.new()
        run(database, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)")
        with connection.transaction():
            connection.execute("LOCK t IN ACCESS EXCLUSIVE MODE")
            read.wait_until_stale("t")
            run(database, "INSERT INTO u VALUES (5, 5, 'e')")
            assert [c.table for c in read.one()] == ["u"]
        read.wait_until_stale("t")
        run(database, "INSERT INTO t VALUES (1)")
        assert [c.table for c in read.one()] == ["t"]


def test_a_new_table_without_a_key_is_captured_once_it_has_one(database: Database) -> None:
    run(database, TWO)
    with reading(database) as read:
        read.new()
        run(database, "CREATE TABLE v AS SELECT 1 AS id")
        read.wait_for_the_watch()
        assert read.stale == {}
        run(database, "ALTER TABLE v ADD PRIMARY KEY (id)")
        read.wait_until_stale("v")


SWAPPED = "BEGIN; ALTER TABLE t RENAME TO x; ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u; COMMIT"
BACK = {
    "swapped": (f"{SWAPPED}; INSERT INTO t VALUES (7, 7); {SWAPPED}", {"t", "u"}),
    "in another schema": (
        """CREATE SCHEMA other; ALTER TABLE t SET SCHEMA other; INSERT INTO other.t VALUES (7, 7);
           ALTER TABLE other.t SET SCHEMA public""", {"t"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BACK.values(), ids=BACK.keys())
def test_a_table_that_had_another_name_for_a_time_is_stale_although_all_is_as_before(
    database: Database, case: tuple[str, set[str]]
) -> None:
    done, wanted = case
    run(database, TWO)
    with reading(database) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
    run(database, done)
    with reading(database, resumes, notes) as read:
        found = read.poll()
        while not found and not read.stale:
            found = read.poll()
        assert {name.removeprefix("public.") for name in read.stale} == wanted
        read.new()
        check_stale(read, wanted)
        assert read.mark is not None
        resumes, notes, stale = {1: read.mark.resume}, read.notes, read.stale
    with reading(database, resumes, notes) as read:
        read.new()
        assert read.stale == stale, "what was read before is not found a second time"


def test_a_table_that_was_unlogged_for_a_time_is_stale(database: Database) -> None:
    """The server allows it where a publication has all tables."""
    run(database, TWO + "; CREATE PUBLICATION mine FOR ALL TABLES")
    settings: dict[str, Any] = {"manage_publication": False, "publication": "mine"}
    with reading(database, **settings) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
    run(database, "ALTER TABLE t SET UNLOGGED; INSERT INTO t VALUES (7, 7); ALTER TABLE t SET LOGGED")
    with reading(database, resumes, notes, **settings) as read:
        assert read.new() == []
        check_stale(read, {"t"})
