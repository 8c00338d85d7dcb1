"""The mode `incremental` on a real database: what it reads, in what order, and what it leaves for later."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.integration.postgres.reading import reading, source_of
from tests.integration.postgres.syncing import syncing
from tests.support.harness import wait_until
from tests.support.postgres import Database, NewPostgres

from lowwater.errors import CodecError, SourceLostError
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_extractor.sources.postgres.cursor.stream import identity

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)

BY_STAMP: dict[str, Any] = {"public.t": {"primary": "stamp", "secondary": "id"}}
STAMPED = "CREATE TABLE t (id int PRIMARY KEY, stamp timestamptz, v text)"


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def test_rows_come_once_and_again_when_their_cursor_rises(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t SELECT n, '2020-01-01', 'a' FROM generate_series(1, 100) n")
    with syncing(database, BY_STAMP) as read:
        assert ids(read.rows()) == list(range(1, 101)), "in the order of the cursor"
        assert read.rows() == []
        database.execute("UPDATE t SET stamp = '2020-01-02', v = 'b' WHERE id IN (7, 9)")
        database.execute("INSERT INTO t VALUES (101, '2020-01-02', 'b')")
        assert [(row["id"], row["v"]) for row in read.rows()] == [(7, "b"), (9, "b"), (101, "b")]


def test_rows_of_one_stamp_are_cut_between_by_the_secondary(database: Database) -> None:
    database.execute(STAMPED)
    with syncing(database, BY_STAMP) as read:
        for first in (1, 4, 7):
            database.execute(f"INSERT INTO t SELECT n, '2020-01-01', '' FROM generate_series({first}, {first + 2}) n")
            assert ids(read.rows()) == [first, first + 1, first + 2]


def test_a_sync_is_one_transaction_over_all_tables(database: Database) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    database.execute("INSERT INTO a VALUES (1), (2); INSERT INTO b VALUES (1)")
    with syncing(database, {"public.b": {"primary": "id"}, "public.a": {"primary": "id"}}) as read:
        (sync,) = read.transactions()
        tables = [read.encoders.change(frame).table for frame in sync.changes]
        assert tables == ["a", "a", "b"]
        assert (sync.txid, sync.order.minor) == (f"sync-{sync.order.major}", 1)
        assert read.mark.order > sync.order
        database.execute("INSERT INTO b VALUES (2)")
        (second,) = read.transactions()
        assert second.order > sync.order
        assert second.count == 1


def test_a_resumed_stream_goes_on_behind_what_is_committed(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t VALUES (1, '2020-01-01', 'a')")
    with syncing(database, BY_STAMP) as read:
        assert ids(read.rows()) == [1]
        resume = read.mark.resume
    database.execute("INSERT INTO t VALUES (2, '2020-01-01', 'a')")
    with syncing(database, BY_STAMP, resume) as read:
        assert ids(read.rows()) == [2]


# -- values ----------------------------------------------------------------------------------------------

MANY_TYPES = """
CREATE DOMAIN price AS numeric(10, 2);
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (
    id int8 PRIMARY KEY, b bool, i2 int2, r float4, d float8, n numeric(20, 5), m numeric, p price, c char(5),
    s text, e mood, y bytea, da date, ti time, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb,
    a int[], aa text[][], rg int4range, ip inet, mo money, g int GENERATED ALWAYS AS (i2 + 1) STORED)"""
VALUES = r"""
INSERT INTO t VALUES
 (1, true, -3, 1.5, 0.1, 12345.67890, 1e40, 9.99, 'ab', E'q''\\ü\n', 'happy', '\x00ff', '2024-02-29', '12:34:56.789',
  '1999-12-31 23:59:59.999999', '2024-01-01 12:00:00.5+02', '1 year 2 days 03:04:05', gen_random_uuid(), '{"a": [1]}',
  '{1,NULL,3}', '{{a,"b c"},{d,NULL}}', '[1,5)', '10.0.0.1', '-12.34'),
 (2, NULL, NULL, 'NaN', '-Infinity', NULL, 'NaN', NULL, NULL, '', NULL, NULL, '0044-03-15 BC', NULL, 'infinity',
  '-infinity', NULL, NULL, 'null', '{}', NULL, 'empty', NULL, NULL)"""


def test_every_value_and_every_type_is_what_the_log_would_give(database: Database) -> None:
    database.execute(MANY_TYPES)
    with reading(database, tables=["public.t", "public.lowwater_marker"]) as log:
        database.execute(VALUES)
        wanted = [change.after for change in log.one()]
        (table,) = log.encoders.versions("t")
    with syncing(database, {"public.t": {"primary": "id"}}) as read:
        assert repr(read.rows()) == repr(wanted)
        (found,) = read.encoders.versions("t")
    assert (found.columns, found.key, found.full_name) == (table.columns, table.key, table.full_name)


def test_a_value_that_does_not_fit_names_its_column_and_not_its_value(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric(5, 2)); INSERT INTO t VALUES (1, 'NaN')")
    with syncing(database, {"public.t": {"primary": "id"}}) as read, pytest.raises(CodecError) as caught:
        read.rows()
    assert "public.t.n" in str(caught.value)
    assert "as text" in (caught.value.hint or "")
    with syncing(database, {"public.t": {"primary": "id"}}, as_text=["public.t.n"]) as read:
        assert read.rows() == [{"id": 1, "n": "NaN"}]


#: type, and values in its order: neighbours that a careless comparison would take for one, or turn around
ORDERED = {
    "numeric": ["-1e30", "0.1", "0.10000000000000000000000000000000001", "9", "10", "1e40"],
    "float8": ["-1e300", "0.1", "0.10000000000000002", "9", "10"],
    "text": ["", "10", "9", 'a"b', "a'b", "a\\b", "é%s{}", "日本"],
    "timestamp": ["0044-03-15 BC", "1999-12-31 23:59:59.999998", "1999-12-31 23:59:59.999999"],
    "timestamptz": ["-infinity", "2020-01-01 00:00:00.000001+00", "2020-01-01 00:00:00.000002+00"],
    "date": ["-infinity", "0044-03-15 BC", "2020-01-01", "2020-01-02"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "mood": ["sad", "happy"],
    "interval": ["-1 day", "23:59:59", "1 day", "1 mon"],
    "bytea": [r"\x", r"\x00", r"\xff"],
    "int[]": ["{}", "{1,2}", "{1,10}", "{2}"],
}


@pytest.mark.parametrize("type_", ORDERED)
def test_bounds_are_exact_whatever_the_type(database: Database, type_: str) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {type_}" + (' COLLATE "C")' if type_ == "text" else ")"))
    with syncing(database, {"public.t": {"primary": "c"}}) as read, database.connect() as connection:
        assert read.rows() == []
        for number, value in enumerate(ORDERED[type_]):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (number, value))
            assert ids(read.rows()) == [number], value


@pytest.mark.parametrize("type_", ["float8", "numeric", "timestamptz", "timestamp", "date"])
def test_what_lies_behind_all_values_is_no_bound(database: Database, type_: str) -> None:
    """It would hide everything that comes later."""
    values = ["infinity", "NaN"] if type_ in ("float8", "numeric") else ["infinity", "2999-01-01"]
    first = "1" if type_ in ("float8", "numeric") else "2020-01-01"
    second = "2" if type_ in ("float8", "numeric") else "2020-01-02"
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {type_})")
    database.execute(f"INSERT INTO t VALUES (1, '{values[0]}'), (2, '{values[1]}'), (3, '{first}')")
    with syncing(database, {"public.t": {"primary": "c"}}) as read:
        assert ids(read.rows()) == [3]
        database.execute(f"INSERT INTO t VALUES (4, '{second}')")
        assert ids(read.rows()) == [4]


def test_rows_without_a_cursor_come_with_the_first_sync_only(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t VALUES (1, NULL, 'a'), (2, '2020-01-01', 'a')")
    with syncing(database, BY_STAMP) as read:
        assert sorted(ids(read.rows())) == [1, 2]
        database.execute("INSERT INTO t VALUES (3, NULL, 'a')")
        assert read.rows() == []
        database.execute("UPDATE t SET stamp = '2020-01-02' WHERE id = 3")
        assert ids(read.rows()) == [3]


def test_a_null_in_the_secondary_is_read_once(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, stamp timestamptz, n int)")
    cursors = {"public.t": {"primary": "stamp", "secondary": "n"}}
    with syncing(database, cursors) as read:
        database.execute("INSERT INTO t VALUES (1, '2020-01-01', 5)")
        assert ids(read.rows()) == [1]
        database.execute("INSERT INTO t VALUES (2, '2020-01-01', NULL), (3, '2020-01-01', 6)")
        assert sorted(ids(read.rows())) == [2, 3]
        database.execute("INSERT INTO t VALUES (4, '2020-01-02', NULL)")
        assert ids(read.rows()) == [4]


# -- settling --------------------------------------------------------------------------------------------


def test_rows_that_are_younger_than_the_settling_are_left_for_later(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t VALUES (1, now() - interval '2 hours', ''), (2, now(), '')")
    with syncing(database, BY_STAMP, settle_seconds=3600) as read:
        assert ids(read.rows()) == [1]
        # committed late, but not too late
        database.execute("INSERT INTO t VALUES (3, now() - interval '61 minutes', '')")
        assert ids(read.rows()) == [3]
        resume = read.mark.resume
    with syncing(database, BY_STAMP, resume) as read:
        assert ids(read.rows()) == [2]


def test_a_day_is_read_once_it_is_over(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, day date)")
    database.execute("INSERT INTO t VALUES (1, current_date - 3), (2, current_date)")
    with syncing(database, {"public.t": {"primary": "day"}}) as read:
        assert ids(read.rows()) == [1]


def test_a_number_that_commits_late_is_not_passed(database: Database) -> None:
    database.execute("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
    with (
        syncing(database, {"public.t": {"primary": "id"}}, settle_seconds=1) as read,
        database.connect() as late,
    ):
        late.autocommit = False
        late.execute("INSERT INTO t (v) VALUES ('late')")
        database.execute("INSERT INTO t (v) VALUES ('early')")
        while not read.stream._settling._waiting:
            assert not read.poll(), "nothing has settled"
        late.commit()
        assert ids(read.rows_of_next_sync()) == [1, 2]


# -- what can be read ------------------------------------------------------------------------------------


def test_views_and_tables_of_every_sort_are_read_by_a_login_that_may_only_select(new_postgres: NewPostgres) -> None:
    """On a server whose log tells nothing."""
    server = new_postgres(settings={"wal_level": "minimal", "max_wal_senders": "0", "fsync": "off"})
    server.start()
    database = Database(server)
    database.execute("""
        CREATE TABLE t (id int PRIMARY KEY, v int);
        CREATE TABLE child () INHERITS (t);
        CREATE UNLOGGED TABLE u (id int PRIMARY KEY);
        CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (100);
        CREATE VIEW v AS SELECT id, v AS "V w" FROM ONLY t;
        INSERT INTO t VALUES (1, 10); INSERT INTO child VALUES (2, 20); INSERT INTO u VALUES (3);
        INSERT INTO parts VALUES (4); CREATE MATERIALIZED VIEW m AS SELECT * FROM ONLY t;
        CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader""")
    plain = {f"public.{table}": {"primary": "id"} for table in ("t", "u", "parts")}
    views = {f"public.{view}": {"primary": "id", "key": ["id"]} for view in ("v", "m")}
    with syncing(database, {**plain, **views}, user="reader") as read:
        (sync,) = read.new()
    found = {(change.table, tuple((change.after or {}).values())) for change in sync}
    assert found == {("t", (1, 10)), ("u", (3,)), ("parts", (4,)), ("v", (1, 10)), ("m", (1, 10))}


def standby_of(new_postgres: NewPostgres, primary: EmbeddedPostgres) -> EmbeddedPostgres:
    """A hot one, out of a copy of the primary, which is stopped meanwhile."""
    upstream = f"host=127.0.0.1 port={primary.port} user=postgres"
    standby = new_postgres("standby", settings={"fsync": "off", "primary_conninfo": upstream})
    # a start makes its directories; then its data is that of the primary
    standby.start()
    standby.stop()
    primary.stop()
    shutil.rmtree(standby.data)
    subprocess.run(["cp", "-a", str(primary.data), str(standby.data)], check=True)
    (standby.data / "standby.signal").touch()
    primary.start()
    standby.start()
    return standby


def test_a_standby_is_read_as_far_as_it_has_replayed(new_postgres: NewPostgres) -> None:
    """By its own clock it would pass what has not come to it yet."""
    primary = new_postgres("primary", settings={"fsync": "off"})
    primary.start()
    database = Database(primary)
    database.execute(STAMPED)
    standby = standby_of(new_postgres, primary)
    there = make_conninfo(database.conninfo, port=standby.port)

    def seen() -> list[tuple[Any, ...]]:
        with psycopg.connect(there, autocommit=True) as connection:
            return connection.execute("SELECT id FROM t").fetchall()

    with syncing(database, BY_STAMP, port=standby.port, settle_seconds=0.5) as read:
        assert read.rows() == []
        database.execute("INSERT INTO t VALUES (1, clock_timestamp(), '')")
        wait_until("the row on the standby", lambda: seen() == [(1,)])
        time.sleep(1)
        assert read.rows() == [], "nothing says that all of its time has been replayed"
        database.execute("INSERT INTO t VALUES (2, clock_timestamp(), '')")
        assert ids(read.rows_of_next_sync()) == [1]
    config = source_of(database, port=standby.port).config
    assert identity(config, "s") == source_of(database).incarnation()


@newest
def test_a_foreign_table_is_read_as_any_other(database: Database) -> None:
    if not database.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'postgres_fdw'"):
        pytest.skip("this server has no postgres_fdw")
    database.execute(f"""
        CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');
        CREATE EXTENSION postgres_fdw;
        CREATE SERVER me FOREIGN DATA WRAPPER postgres_fdw
            OPTIONS (host '127.0.0.1', port '{database.server.port}', dbname '{database.name}');
        CREATE USER MAPPING FOR postgres SERVER me OPTIONS (user 'postgres', password_required 'false');
        CREATE FOREIGN TABLE f (id int, v text) SERVER me OPTIONS (table_name 't')""")
    with syncing(database, {"public.f": {"primary": "id", "key": ["id"]}}) as read:
        assert read.rows() == [{"id": 1, "v": "a"}]


def test_a_large_sync_is_read_in_pieces_and_lies_on_disk(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t SELECT n, '2020-01-01', repeat('x', 500) FROM generate_series(1, 5000) n")
    with syncing(database, BY_STAMP, read_bytes=20_000, spill_bytes_max=100_000) as read:
        (sync,) = read.transactions()
        held = sync.changes
        once, again = list(held), list(held)
        assert once == again
        assert sync.count == len(once) == 5000
        assert [read.encoders.change(frame).after or {} for frame in once][4999]["id"] == 5000
        assert read.stream._reader._fetch_rows < 100  # type: ignore[attr-defined]


def test_names_of_any_letters_are_quoted(database: Database) -> None:
    database.execute('CREATE SCHEMA "a b"; CREATE TABLE "a b"."T ""x" ("select" int PRIMARY KEY, "é%s{}" timestamptz)')
    database.execute('INSERT INTO "a b"."T ""x" VALUES (1, now())')
    with syncing(database, {'a b.T "x': {"primary": "é%s{}", "secondary": "select"}}) as read:
        assert ids([{"id": row["select"]} for row in read.rows()]) == [1]


# -- what changes meanwhile ------------------------------------------------------------------------------


def test_a_new_column_comes_with_a_new_version(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t VALUES (1, '2020-01-01', 'a')")
    with syncing(database, BY_STAMP) as read:
        assert ids(read.rows()) == [1]
        database.execute("ALTER TABLE t ADD COLUMN w int DEFAULT 7")
        database.execute("INSERT INTO t VALUES (2, '2020-01-02', 'b', 8)")
        (change,) = read.new()[0]
        assert (change.version, (change.after or {})["w"]) == (2, 8)


def test_a_table_that_has_lost_its_cursor_is_looked_at_anew(database: Database) -> None:
    database.execute(STAMPED)
    with syncing(database, BY_STAMP) as read:
        assert read.rows() == []
        database.execute("ALTER TABLE t DROP COLUMN stamp")
        with pytest.raises(SourceLostError):
            read.rows()


def test_a_snapshot_that_the_server_ends_is_taken_anew(database: Database) -> None:
    database.execute(STAMPED)
    database.execute("INSERT INTO t VALUES (1, '2020-01-01', 'a')")
    with syncing(database, BY_STAMP) as read:
        while not read.cursors.is_open:
            read.poll()
        resume = read.mark.resume
        database.execute("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE 'lowwater%'""")
        with pytest.raises(SourceLostError):
            read.rows()
    with syncing(database, BY_STAMP, resume) as read:
        assert ids(read.rows()) == [1]


def test_nothing_is_held_between_two_syncs(database: Database) -> None:
    """A view of the database that stayed open would keep its old rows from being cleared away."""
    database.execute(STAMPED)
    database.execute("INSERT INTO t VALUES (1, '2020-01-01', 'a')")
    with syncing(database, BY_STAMP) as read:
        assert ids(read.rows()) == [1]
        while read.stream._looking is not None:
            read.poll()
        with psycopg.connect(database.conninfo, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '5s'")
            connection.execute("ALTER TABLE t ADD COLUMN w int")
