"""A database that cannot be captured, or no longer: the error says what and how to mend it, and so do the checks."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conformance.kit import Encoders
from tests.integration.postgres.reading import reading, source_of
from tests.support.postgres import Database, NewPostgres

from lowwater.errors import LogGapError, LowwaterError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.postgres import stream as stream_module

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)


def begin(where: Database, **settings: Any) -> None:
    """As a session does."""
    source = source_of(where, **settings)
    source.incarnation()
    source.stream({}, {}, Encoders())


def refused(where: Database, error: type[LowwaterError] = SourceError, **settings: Any) -> LowwaterError:
    """What a session ends with that begins; it always says what to do."""
    with pytest.raises(LowwaterError) as caught:
        begin(where, **settings)
    assert type(caught.value) is error, caught.value
    assert caught.value.hint, caught.value
    return caught.value


def failed_checks(where: Database, **settings: Any) -> dict[str, tuple[str, str]]:
    return {c.name: (c.what, c.fix) for c in source_of(where, **settings).check() if not c.is_good}


@pytest.fixture
def role(database: Database) -> str:
    """May log in, and owns nothing; gone with its database."""
    name = f"role_{database.name}"
    database.execute(f"CREATE ROLE {name} LOGIN; CREATE TABLE t (id int PRIMARY KEY)")
    return name


# -- the server ------------------------------------------------------------------------------------------


def test_a_database_that_has_all_of_it_passes_every_check(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    assert failed_checks(database) == {}


def test_a_log_that_is_not_logical_is_refused(new_postgres: NewPostgres) -> None:
    server = new_postgres(settings={"wal_level": "replica", "fsync": "off"})
    server.start()
    database = Database(server)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    error = refused(database, StartRefusedError)
    assert "wal_level is replica" in error.what
    assert "wal_level = logical" in (error.hint or "")
    assert failed_checks(database).keys() == {"wal_level"}


@newest
def test_a_server_that_does_not_answer_is_tried_again(database: Database) -> None:
    error = refused(database, SourceLostError, port=1)
    assert "refused" in error.what
    assert list(failed_checks(database, port=1)) == ["connection"]


def test_a_database_or_role_that_is_not_there_is_not_tried_again(database: Database) -> None:
    assert "does not exist" in refused(database, database="nowhere").what
    assert "does not exist" in refused(database, user="nobody_at_all").what
    assert list(failed_checks(database, user="nobody_at_all")) == ["connection"]


def test_a_role_that_may_not_replicate_is_refused_and_not_tried_again(database: Database, role: str) -> None:
    error = refused(database, user=role)
    assert "REPLICATION" in (error.hint or "")
    failed = failed_checks(database, user=role)
    assert failed.keys() == {"replication", "select", "publication"}
    assert f"ALTER ROLE {role} REPLICATION" in failed["replication"][1]
    assert "public.t" in failed["select"][1]
    database.execute(f"ALTER ROLE {role} REPLICATION; GRANT SELECT ON t TO {role}; ALTER TABLE t OWNER TO {role}")
    assert failed_checks(database, user=role) == {}
    database.execute(f"GRANT CREATE ON DATABASE {database.name} TO {role}")
    database.execute(
        f"CREATE TABLE lowwater_marker (id bigserial PRIMARY KEY); ALTER TABLE lowwater_marker OWNER TO {role}"
    )
    with reading(database, user=role) as read:
        database.execute("INSERT INTO t VALUES (1)")
        assert [c.after for c in read.one()] == [{"id": 1}]


# -- tables ----------------------------------------------------------------------------------------------


@newest
def test_a_table_that_is_not_there_is_named(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    for tables in (["public.t", "public.nope"], ["nowhere.*"]):
        error = refused(database, tables=tables)
        assert f"no such table: {tables[-1]}" in error.what
        assert failed_checks(database, tables=tables)["tables"] == (error.what, error.hint)


@newest
def test_a_publication_of_ones_own_has_to_have_the_tables(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    settings: dict[str, Any] = {"manage_publication": False, "publication": "mine"}
    error = refused(database, StartRefusedError, **settings)
    assert "publication mine does not have public.t, public.u" in error.what
    assert failed_checks(database, **settings).keys() == {"publication"}
    database.execute("CREATE PUBLICATION mine FOR ALL TABLES")
    assert failed_checks(database, **settings) == {}
    with reading(database, **settings) as read:
        database.execute("INSERT INTO t VALUES (1)")
        assert [c.after for c in read.one()] == [{"id": 1}]


# -- slot and publication --------------------------------------------------------------------------------


def test_a_slot_that_is_gone_is_a_gap(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(database) as read:
        assert read.mark is not None
        resumes = {1: read.mark.resume}
    database.execute(f"SELECT pg_drop_replication_slot('slot_{database.name}')")
    with pytest.raises(LogGapError) as caught, reading(database, resumes):
        pass
    assert "does not exist, so the log after" in caught.value.what
    assert caught.value.position == resumes[1].decode().split()[0]
    assert "reset the source's position" in (caught.value.hint or "")


def test_a_slot_that_another_reader_has_moved_is_a_gap(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(database) as read:
        assert read.mark is not None
        resumes = {1: read.mark.resume}
    database.execute("INSERT INTO t VALUES (1)")
    database.execute(f"SELECT pg_replication_slot_advance('slot_{database.name}', pg_current_wal_lsn())")
    with pytest.raises(LogGapError) as caught, reading(database, resumes):
        pass
    assert "was advanced to" in caught.value.what
    assert "another reader" in (caught.value.hint or "")


def test_a_publication_that_is_dropped_is_a_gap(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest server says nothing of it: it goes on, and sends no changes."""
    monkeypatch.setattr(stream_module, "FIGURES_SECONDS", 0.0)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(database) as read:
        assert read.mark is not None
        resumes = {1: read.mark.resume}
        database.execute("DROP PUBLICATION lowwater_conformance")
        database.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(LogGapError) as caught:
            read.new()
    assert "reset the source's position" in (caught.value.hint or "")
    with pytest.raises(LogGapError) as caught, reading(database, resumes):
        pass
    assert "lowwater_conformance was dropped" in caught.value.what
    # from the start of capture all is made anew
    with reading(database) as read:
        database.execute("INSERT INTO t VALUES (2)")
        assert [c.after for c in read.one()] == [{"id": 2}]


# -- two at once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when_locked", "error"), [("stop", SourceError), ("wait", SourceLostError)])
def test_a_source_that_another_extractor_reads_is_left_alone(
    database: Database, when_locked: str, error: type[SourceError]
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(database) as first:
        found = refused(database, error, when_locked=when_locked)
        assert "another extractor holds this source's lock" in found.what
        assert "take_over" in (found.hint or "")
        database.execute("INSERT INTO t VALUES (1)")
        assert [c.after for c in first.one()] == [{"id": 1}]


def test_a_source_that_another_extractor_reads_can_be_taken_over(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(database) as first:
        assert first.mark is not None
        resumes = {1: first.mark.resume}
        with reading(database, resumes, when_locked="take_over") as second:
            database.execute("INSERT INTO t VALUES (1)")
            assert [c.after for c in second.one()] == [{"id": 1}]
            with pytest.raises(SourceLostError):
                first.new()


def test_a_connection_that_is_ended_is_lost_and_not_failed(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    for which in ("backend_type = 'walsender'", "backend_type = 'client backend'"):
        with reading(database) as read:
            mine = f"datname = current_database() AND pid <> pg_backend_pid() AND {which}"
            database.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")
            with pytest.raises(SourceLostError) as caught:
                read.new()
            assert "tried again" in (caught.value.hint or "")


@newest
def test_a_slot_of_another_kind_is_not_touched(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    try:
        database.execute("SELECT pg_create_logical_replication_slot('theirs', 'test_decoding')")
    except psycopg.Error as missing:
        pytest.skip(str(missing))
    error = refused(database, slot="theirs")
    assert "slot theirs belongs to another database or plugin" in error.what
