"""The embedded PostgreSQL: real servers of the oldest and the newest version, durable over kill -9."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.support.postgres import Database, NewPostgres, skip_unless_there

from lowwater.errors import ConfigError, LowwaterError
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_devkit.servers.postgres_install import VERSIONS, find_install
from lowwater_fleet.runner.process_tree import children, processes

DECODED = "SELECT data FROM pg_logical_slot_peek_changes('kept', NULL, NULL)"

Crash = Callable[[EmbeddedPostgres], object]


def test_it_is_the_version_that_was_asked_for_and_decodes_its_log(
    postgres_server: EmbeddedPostgres, database: Database
) -> None:
    assert database.execute("SHOW wal_level") == [("logical",)]
    (number,) = database.execute("SHOW server_version_num")[0]
    assert int(number) // 10000 == postgres_server.version
    database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with psycopg.connect(f"{database.conninfo} replication=database", autocommit=True) as replication:
        assert replication.pgconn.exec_(b"IDENTIFY_SYSTEM").get_value(0, 3) == database.name.encode()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(lambda server: server.stop("fast"), id="stop"),
        pytest.param(lambda server: server.stop("immediate"), id="immediate stop"),
        pytest.param(lambda server: server.kill(), id="kill -9"),
    ],
)
def test_rows_and_a_slot_survive_and_the_address_stays(new_postgres: NewPostgres, version: int, crash: Crash) -> None:
    server = new_postgres(version=version)
    assert server.start() is True
    address = server.conninfo
    database = Database(server, "kept")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("SELECT pg_create_logical_replication_slot('kept', 'test_decoding')")
    database.execute("INSERT INTO t VALUES (1)")

    with database.connect() as client:
        pid = server.pid
        assert pid is not None
        before = children(pid)
        assert client.info.backend_pid in before
        assert crash(server) is True
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    assert not server.is_running
    assert crash(server) is False
    assert processes().keys().isdisjoint(before)

    assert server.start() is True
    assert server.conninfo == address
    database.execute("INSERT INTO t VALUES (2)")
    assert database.execute("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    inserts = [row for (row,) in database.execute(DECODED) if row.startswith("table")]
    assert inserts == [f"table public.t: INSERT: id[integer]:{number}" for number in (1, 2)]


def test_pgbench_fills_and_runs(database: Database) -> None:
    pgbench = str(EmbeddedPostgres.bin("pgbench"))

    def run(*words: str) -> str:
        done = subprocess.run([pgbench, *words, database.conninfo], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-i", "-s", "1", "-q")
    said = run("-c", "2", "-t", "50")
    assert re.search(r"actually processed: 100/100", said), said
    assert database.execute("SELECT count(*) FROM pgbench_history") == [(100,)]


def test_a_database_goes_with_its_slots_and_its_readers(postgres_server: EmbeddedPostgres) -> None:
    database = Database(postgres_server)
    slot = f"slot_of_{database.name}"
    database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    # not a context of psycopg's own: that would commit, which a broken connection cannot
    with closing(psycopg.connect(f"{database.conninfo} replication=database", autocommit=True)) as reader:
        started = reader.pgconn.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0".encode())
        assert started.status == psycopg.pq.ExecStatus.COPY_BOTH
        database.drop()
    with psycopg.connect(postgres_server.conninfo) as connection:
        slots = connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchall()
        databases = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database.name]).fetchall()
    assert (slots, databases) == ([], [])


def test_two_starts_at_once_make_one_server(new_postgres: NewPostgres) -> None:
    handles = [new_postgres(), new_postgres()]
    started: list[bool] = []
    threads = [threading.Thread(target=lambda h=h: started.append(h.start())) for h in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False, True]
    assert handles[0].pid == handles[1].pid
    assert handles[0].conninfo == handles[1].conninfo


def test_settings_are_read_anew_at_a_restart(new_postgres: NewPostgres) -> None:
    """Also values with quotes, and all of it whatever the server before had."""

    def shown(server: EmbeddedPostgres, name: str) -> str:
        with psycopg.connect(server.conninfo) as connection:
            row = connection.execute(f"SHOW {name}".encode()).fetchone()
        assert row is not None
        return str(row[0])

    first = new_postgres(settings={"fsync": "off", "search_path": '"it\'s", public'})
    first.start()
    assert (shown(first, "fsync"), shown(first, "search_path")) == ("off", '"it\'s", public')
    second = new_postgres()
    second.restart()
    assert (shown(second, "fsync"), shown(second, "search_path")) == ("on", '"$user", public')


def test_nothing_is_left_when_it_is_removed(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    server.start()
    data = server.data
    assert data.exists()
    server.remove()
    assert not data.exists()
    assert not server.is_running


def test_a_server_that_cannot_start_says_why(new_postgres: NewPostgres) -> None:
    with pytest.raises(LowwaterError, match="max_wal_senders"):
        new_postgres(settings={"max_wal_senders": "many"}).start()
    with pytest.raises(ConfigError, match="is of PostgreSQL 18, not 14"):
        new_postgres(version=14).start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is used by"):
            new_postgres(port=port).start()


def test_missing_programs_are_named_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOWWATER_JARS", str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        EmbeddedPostgres(tmp_path, 14).start()
    assert raised.value.hint is not None
    with pytest.raises(ConfigError, match="no embedded PostgreSQL 9"):
        EmbeddedPostgres(tmp_path, 9).start()
    assert list(tmp_path.glob("data*")) == []


def test_processes_that_unpack_at_once_do_not_disturb_one_another(tmp_path: Path) -> None:
    skip_unless_there(14)
    jars = tmp_path / "embedded-postgres"
    jars.mkdir()
    jar = next(find_install(14).root.parent.glob("*.jar"))
    (jars / jar.name).symlink_to(jar)
    code = "from lowwater_devkit.servers.postgres_install import find_install; print(find_install(14).bin('postgres'))"
    env = {**os.environ, "LOWWATER_JARS": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in "12"]
    told = {process.communicate()[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    (postgres,) = told
    said = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("postgres (PostgreSQL) 14.")
