"""A PostgreSQL server that restarts, is killed or is meddled with: nothing is lost, nothing comes twice, or it says so.

The books: each transaction counts one up and writes some rows under that number. What the database says afterwards is
the truth, also about a commit that no answer came for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lowwater.errors import BusError
from lowwater_fleet import operate_cli
from lowwater_fleet.kafka import EmbeddedKafka
from lowwater_fleet.services import Service
from lowwater_fleet.verify import Decoder
from tests.harness import Fleet, get, wait_until
from tests.postgres import Database, NewPostgres
from tests.postgres_fleet import postgres_fleet

FENCED = 3
SETTINGS = {"fsync": "off"}


class Books:
    """A database with the books, and the fleet that captures it."""

    def __init__(self, directory: Path, kafka: EmbeddedKafka, name: str, database: Database, **settings: Any) -> None:
        self.database = database
        database.execute("""
            CREATE TABLE counter (id int PRIMARY KEY, n int); INSERT INTO counter VALUES (1, 0);
            CREATE TABLE ledger (id bigserial PRIMARY KEY, n int, note text)""")
        self.fleet: Fleet = postgres_fleet(
            directory, kafka.bootstrap_servers, name, database, lake=False, **settings
        )  # fmt: skip
        self.source = self.fleet.sources[0]
        self.slot = f"lowwater_{database.name}"

    def start(self) -> Service:
        extractor = self.fleet.extractor()
        self.fleet.merger()
        self.fleet.wait_for_capture()
        return extractor

    def write(self, transactions: int = 1) -> None:
        with self.database.connect() as connection:
            for _ in range(transactions):
                self._write(connection)

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            ((n,),) = connection.execute("UPDATE counter SET n = n + 1 RETURNING n").fetchall()
            connection.execute("INSERT INTO ledger (n, note) SELECT %s, 'é' FROM generate_series(0, %s)", (n, n % 4))

    @contextmanager
    def written(self) -> Iterator[None]:
        """By a client that comes back whenever it is thrown out."""
        is_over = threading.Event()

        def work() -> None:
            while not is_over.is_set():
                try:
                    with self.database.connect() as connection:
                        while not is_over.is_set():
                            self._write(connection)
                            time.sleep(0.005)
                except psycopg.Error:
                    time.sleep(0.02)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def count(self) -> int:
        ((n,),) = self.database.execute("SELECT n FROM counter")
        return int(n)

    def wait_for_more(self) -> None:
        """Until something has been published that was written from now on."""
        wanted = self.count() + 1
        wait_until(f"transaction {wanted}; {self.fleet.log_tails()}", lambda: self.published() >= wanted)

    def published(self) -> int:
        try:
            return len([t for t in self._transactions() if t[0][0] == "public.counter"])
        except BusError:
            return 0  # the merger has not made its topic yet

    def _transactions(self) -> list[list[tuple[str, Any]]]:
        """Of the ordered topic: each transaction's tables and rows."""
        decode = Decoder(self.fleet.store)
        found = []
        for ordered in self.fleet.ordered():
            assert not ordered.torn, ordered
            found.append([(table, after) for _, table, _, after in map(decode, ordered.values)])
        return found

    def assert_whole(self) -> int:
        """Every transaction of the database once, whole and in order, and no other."""
        wanted = self.count()
        wait_until(f"{wanted} transactions; {self.fleet.log_tails()}", lambda: self.published() >= wanted)
        rows: dict[int, list[list[Any]]] = {n: [] for n in range(1, wanted + 1)}
        for row in self.database.execute("SELECT id, n, note FROM ledger ORDER BY id"):
            rows[row[1]].append(list(row))
        counted = [t for t in self._transactions() if t[0][0] == "public.counter"]
        assert [t[0][1] for t in counted] == [[1, n] for n in rows]
        assert [[row for _, row in t[1:]] for t in counted] == list(rows.values())
        return wanted

    def wait_for_failure(self, extractor: Service, error: str) -> dict[str, Any]:
        shown = self.fleet.wait_for_status(
            extractor, error, lambda s: s["state"] == "failed" and s["error"]["error"] == error
        )  # fmt: skip
        found: dict[str, Any] = shown["error"]
        assert found["source"] == self.source
        assert found["hint"]
        assert get(extractor, "/health/ready")[0] == 503
        assert get(extractor, "/health/live")[0] == 200
        return found

    def without_reader(self, sql: str) -> None:
        """While the extractor is thrown out: it comes back, so this is tried until it was quicker."""
        active = (
            f"SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )

        def is_done() -> bool:
            try:
                self.database.execute(f"{active} AND active")
                self.database.execute(sql)
            except (psycopg.errors.ObjectInUse, psycopg.errors.InvalidParameterValue):
                return False
            return True

        wait_until(sql, is_done)


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
    assert "was moved on" in error["what"]
    assert "another reader" in error["hint"]


def test_a_publication_that_is_dropped_stops_the_source(books: Books) -> None:
    extractor = books.start()
    books.write(3)
    books.database.execute(f'DROP PUBLICATION "lowwater_{books.source}"')
    books.write(3)
    error = books.wait_for_failure(extractor, "LogGapError")
    assert f"lowwater_{books.source}" in error["what"]
    assert "reset the source's position" in error["hint"]


def test_a_password_that_was_changed_stops_the_source_until_it_is_told_the_new_one(
    tmp_path: Path, kafka: EmbeddedKafka, unique: str, new_postgres: NewPostgres
) -> None:
    server = new_postgres(settings=SETTINGS)
    server.start()
    server.stop()
    (server.data / "pg_hba.conf").write_text("host all reader all scram-sha-256\nhost all all all trust\n")
    server.start()
    database = Database(server)
    database.execute("CREATE ROLE reader SUPERUSER LOGIN PASSWORD 'first'")
    secret = tmp_path / "password"
    secret.write_text("first\n")
    books = Books(tmp_path, kafka, unique, database, user="reader", password=f"${{file:{secret}}}")
    try:
        extractor = books.start()
        books.write(3)
        database.execute("ALTER ROLE reader PASSWORD 'second'")
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")
        books.write(3)
        error = books.wait_for_failure(extractor, "SourceError")
        assert "password authentication failed" in error["what"]
        assert "check" in error["hint"]
        assert "first" not in extractor.log.read_text()
        secret.write_text("second\n")
        operate_cli.resume(books.source, "the password is right again", books.fleet.config)
        books.assert_whole()
    finally:
        books.fleet.kill_all()
