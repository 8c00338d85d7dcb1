"""A table that cannot be read by its cursor: refused by name, with the words that mend it, and found by the checks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.kit import Encoders
from tests.integration.postgres.reading import reading, source_of
from tests.integration.postgres.syncing import syncing
from tests.support.postgres import Database

from lowwater.errors import ConfigError, StartRefusedError
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.postgres.cursor.stream import identity

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)

T: dict[str, Any] = {"public.t": {"primary": "id"}}


def settings_of(cursors: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"mode": "incremental", "tables": list(cursors), "cursors": cursors, **more}


def failed(database: Database, **settings: Any) -> dict[str, tuple[str, str]]:
    found = source_of(database, **settings).check()
    return {check.name: (check.what, check.fix) for check in found if not check.is_good}


def refused(database: Database, name: str, **settings: Any) -> tuple[str, str]:
    """By the one check that fails, and by a start, in the same words."""
    wrong = failed(database, **settings)
    assert list(wrong) == [name], wrong
    with pytest.raises(StartRefusedError) as caught:
        source_of(database, **settings).stream({}, {}, Encoders())
    what, fix = wrong[name]
    assert (caught.value.what, caught.value.hint) == (f"{name}: {what}", fix)
    assert fix
    return what, fix


# -- the config itself -----------------------------------------------------------------------------------

WRONG_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "a cursor in the mode cdc": ({"cursors": T}, "cursors: for mode: incremental only"),
    "a pace in the mode cdc": ({"poll_seconds": 1}, "poll_seconds: for mode: incremental only"),
    "no cursor for a table": ({"mode": "incremental"}, "no cursor for public.t: add cursors"),
    "a cursor for no table": (
        {"mode": "incremental", "cursors": {**T, "public.u": {"primary": "id"}}},
        "a cursor for public.u, which is not in tables",
    ),
    "no primary": ({"mode": "incremental", "cursors": {"public.t": {"secondary": "id"}}}, "primary"),
    "an unknown mode": ({"mode": "snapshot"}, "mode"),
}


@pytest.mark.parametrize("name", WRONG_CONFIGS)
def test_a_config_that_does_not_fit_its_mode_is_refused(name: str) -> None:
    wrong, words = WRONG_CONFIGS[name]
    with pytest.raises(ConfigError) as caught:
        open_source("s", "postgres", {"database": "d", "user": "u", "tables": ["public.t"], **wrong})
    assert words in caught.value.what


# -- the database ----------------------------------------------------------------------------------------


def test_what_can_be_read_passes_every_check_and_an_index_is_advised(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, stamp timestamptz)")
    assert failed(database, **settings_of(T)) == {}
    found = {check.name: check for check in source_of(database, **settings_of(T)).check()}
    assert found["index"].what == "present"
    assert not found.keys() & {"wal_level", "slots", "senders", "replication", "publication"}
    by_stamp = settings_of({"public.t": {"primary": "stamp", "secondary": "id"}})
    advised = {check.name: check for check in source_of(database, **by_stamp).check()}["index"]
    assert advised.is_good
    assert "CREATE INDEX ON public.t (stamp, id)" in advised.what


def test_a_table_that_is_not_there_is_named(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    what, _ = refused(database, "tables", **settings_of({**T, "public.nope": {"primary": "id"}}))
    assert what == "no such table: public.nope"


def test_a_column_that_is_not_there_is_named_with_those_that_are(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, stamp timestamptz)")
    for cursor in ({"primary": "nope"}, {"primary": "id", "secondary": "nope"}, {"primary": "id", "key": ["nope"]}):
        what, fix = refused(database, "cursors", **settings_of({"public.t": cursor}))
        assert what == "public.t has no column nope"
        assert "id, stamp" in fix


def test_a_table_of_a_pattern_without_a_cursor_is_named(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    database.execute("CREATE VIEW v AS SELECT * FROM t")
    what, fix = refused(database, "cursors", **settings_of(T, tables=["public.*"]))
    assert what == "public.u has none", "a view is read only where it is named"
    assert "public.u: {primary: …}" in fix


def test_a_table_without_a_key_needs_one_named(database: Database) -> None:
    database.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    what, fix = refused(database, "key", **settings_of(T))
    assert "public.t" in what
    assert "key: [id]" in fix
    with syncing(database, {"public.t": {"primary": "id", "key": ["id"]}}) as read:
        assert read.rows() == [{"id": 1}]
        assert read.encoders.versions("t")[0].key == ("id",)


@pytest.mark.parametrize("type_", ["json", "point", "xid"])
def test_a_type_without_an_order_is_refused(database: Database, type_: str) -> None:
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {type_})")
    what, _ = refused(database, "order", **settings_of({"public.t": {"primary": "c"}}))
    assert "public.t.c" in what


def test_a_login_that_may_not_select_is_told_what_to_grant(database: Database) -> None:
    role = f"reader_{database.name}"
    database.execute(f"CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY); CREATE ROLE {role} LOGIN")
    settings = settings_of({"s.t": {"primary": "id"}}, user=role)
    wrong = failed(database, **settings)
    assert wrong["select"][1] == f"GRANT USAGE ON SCHEMA s TO {role}; GRANT SELECT ON s.t TO {role}"
    with pytest.raises(StartRefusedError) as caught:
        source_of(database, **settings).stream({}, {}, Encoders())
    assert caught.value.hint == wrong["select"][1]
    database.execute(wrong["select"][1])
    assert failed(database, **settings) == {}
    assert identity(source_of(database, **settings).config, "s") == source_of(database).incarnation()


def test_a_source_keeps_its_mode(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with syncing(database, T) as by_cursor:
        cursor = by_cursor.mark.resume
    with reading(database) as by_log:
        assert by_log.mark is not None
        log = by_log.mark.resume
    for resume, settings in ((log, settings_of(T)), (cursor, {})):
        with pytest.raises(StartRefusedError) as caught:
            source_of(database, **settings).stream({1: resume}, {}, Encoders())
        assert "another name" in (caught.value.hint or "")


@newest
def test_nothing_is_copied_by_spark(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    source = source_of(database, **settings_of(T))
    assert [table.full_name for table in source.discover()] == ["public.t"]
    assert source.tables_to_copy() == []
    view = source.begin_view(["public.t"])
    assert view.plan(10) == []
    view.close()
    assert database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
