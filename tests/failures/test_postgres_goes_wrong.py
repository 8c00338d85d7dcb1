"""A PostgreSQL that restarts, is killed or is meddled with: nothing is lost, nothing comes twice, or it says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lowwater_fleet.cli import operate as operate_cli
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import wait_until
from tests.support.postgres import Database, NewPostgres
from tests.support.postgres_books import Books

FENCED = 3
SETTINGS = {"fsync": "off"}


@pytest.fixture
def books(
    request: pytest.FixtureRequest, tmp_path: Path, kafka: EmbeddedKafka, unique: str, database: Database
) -> Iterator[Books]:
    """On the shared server: of each version, unless a test chooses."""
    made = Books(tmp_path, kafka, unique, database, **getattr(request, "param", {}))
    yield made
    made.fleet.kill_all()


newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)


# -- what comes back by itself ---------------------------------------------------------------------------


def test_a_server_that_restarts_or_is_killed_is_read_on_and_nothing_is_lost_or_twice(
    tmp_path: Path, kafka: EmbeddedKafka, unique: str, new_postgres: NewPostgres
) -> None:
    server = new_postgres(settings=SETTINGS)
    server.start()
    books = Books(tmp_path, kafka, unique, Database(server))
    books.database.execute("CREATE TABLE gone (id int PRIMARY KEY)")
    try:
        extractor = books.start()
        with books.written():
            books.wait_for_more()
            server.restart("fast")
            books.wait_for_more()
            server.restart("immediate")
            books.wait_for_more()
            server.kill()
            server.start()
            books.wait_for_more()
            books.database.execute("INSERT INTO gone VALUES (1)")
            books.database.execute("DROP TABLE gone")
            books.wait_for_more()
        assert books.assert_whole() > 4
        assert extractor.is_running
        assert (extractor.status() or {})["state"] == "running"
    finally:
        books.fleet.kill_all()


def test_a_walsender_or_session_that_is_ended_is_begun_again(books: Books) -> None:
    extractor = books.start()
    others = "datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'lowwater %'"
    with books.written():
        for kind in ("walsender", "client backend"):
            books.wait_for_more()
            books.database.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others} AND backend_type = '{kind}'"
            )
        books.wait_for_more()
    books.assert_whole()
    assert extractor.is_running


@newest
def test_a_second_extractor_fences_the_first_and_reads_on_once_the_lock_is_free(books: Books) -> None:
    first = books.start()
    with books.written():
        books.wait_for_more()
        second = books.fleet.extractor()
        assert first.wait(30) == FENCED
        books.wait_for_more()
    books.assert_whole()
    assert second.is_running


# -- what needs a person ---------------------------------------------------------------------------------


def test_a_slot_that_is_dropped_stops_the_source_with_what_to_do(books: Books) -> None:
    extractor = books.start()
    books.write(3)
    books.without_reader(f"SELECT pg_drop_replication_slot('{books.slot}')")
    error = books.wait_for_failure(extractor, "LogGapError")
    assert f"slot {books.slot}" in error["what"]
    assert "reset the source's position" in error["hint"]
    # a word is not a repair
    operate_cli.resume(books.source, "try again", books.fleet.config)
    wait_until("the second try", lambda: extractor.log.read_text().count("LogGapError") >= 2)
    assert extractor.is_running


@newest
def test_a_slot_that_another_reader_moves_on_stops_the_source(books: Books) -> None:
    extractor = books.start()
    books.write(3)
    extractor.stop()
    books.write(3)
    books.database.execute(f"SELECT pg_replication_slot_advance('{books.slot}', pg_current_wal_lsn())")
    error = books.wait_for_failure(books.fleet.extractor(), "LogGapError")
    assert "was advanced" in error["what"]
    assert "another reader" in error["hint"]


def test_a_publication_that_is_dropped_stops_the_source(books: Books) -> None:
    extractor = books.start()
    books.write(3)
    books.database.execute(f'DROP PUBLICATION "lowwater_{books.source}"')
    books.write(3)
    error = books.wait_for_failure(extractor, "LogGapError")
    assert f"lowwater_{books.source}" in error["what"]
    assert "reset the source's position" in error["hint"]


@newest
def test_a_publication_that_is_dropped_and_made_anew_stops_the_source(books: Books) -> None:
    extractor = books.start()
    books.write(3)
    name = f'"lowwater_{books.source}"'
    books.database.execute(f"DROP PUBLICATION {name}; CREATE PUBLICATION {name} FOR TABLE counter, ledger")
    error = books.wait_for_failure(extractor, "LogGapError")
    assert "recreated" in error["what"]
    # nor does a word repair this: the position knows what it was read under
    operate_cli.resume(books.source, "try again", books.fleet.config)
    wait_until("the second try", lambda: extractor.log.read_text().count("LogGapError") >= 2)


# -- passwords -------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(new_postgres: NewPostgres) -> Database:
    """A server that asks the role `reader` for its password."""
    server = new_postgres(settings=SETTINGS)
    server.start()
    server.stop()
    (server.data / "pg_hba.conf").write_text("host all reader all scram-sha-256\nhost all all all trust\n")
    server.start()
    database = Database(server)
    database.execute("CREATE ROLE reader SUPERUSER LOGIN PASSWORD 'first'")
    return database


def _change_password(books: Books) -> None:
    books.write(3)
    books.database.execute("ALTER ROLE reader PASSWORD 'second'")
    books.database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")
    books.write(3)


def test_a_password_in_a_file_is_read_again_once_it_was_changed(
    tmp_path: Path, kafka: EmbeddedKafka, unique: str, guarded: Database
) -> None:
    secret = tmp_path / "password"
    secret.write_text("first\n")
    books = Books(tmp_path, kafka, unique, guarded, user="reader", password=f"${{file:{secret}}}")
    try:
        extractor = books.start()
        _change_password(books)
        # the end of its sessions comes first
        error = books.wait_for_failure(extractor, "SourceLostError", "password authentication failed")
        assert "write the new password there" in error["hint"]
        assert "first" not in extractor.log.read_text()
        secret.write_text("second\n")
        # nobody has to say anything
        books.assert_whole()
        assert extractor.is_running
    finally:
        books.fleet.kill_all()


def test_a_password_in_the_environment_stops_the_source_until_it_is_started_with_the_new_one(
    tmp_path: Path, kafka: EmbeddedKafka, unique: str, guarded: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOKS_PASSWORD", "first")
    books = Books(tmp_path, kafka, unique, guarded, user="reader", password="${env:BOOKS_PASSWORD}")
    try:
        extractor = books.start()
        _change_password(books)
        error = books.wait_for_failure(extractor, "SourceError")
        assert "password authentication failed" in error["what"]
        assert "check" in error["hint"]
        extractor.stop()
        monkeypatch.setenv("BOOKS_PASSWORD", "second")
        books.fleet.extractor()
        books.assert_whole()
    finally:
        books.fleet.kill_all()
