"""Real PostgreSQL servers for the tests: the oldest and the newest version, and a database of each test's own.

Tests that need a server which is not there are skipped, with the reason.
A test that is for one version only says so: `@pytest.mark.parametrize("postgres_server", [18], indirect=True)`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from lowwater.errors import ConfigError
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_devkit.servers.postgres_install import VERSION_NEWEST, VERSION_OLDEST, find_client, find_install

#: the newest in every run, the oldest with the long tests; conformance runs on both every time
NEWEST_FIRST = [VERSION_NEWEST, pytest.param(VERSION_OLDEST, marks=pytest.mark.long)]
NewPostgres = Callable[..., EmbeddedPostgres]

#: nothing here survives the loss of power anyway, and `kill -9` loses nothing without it
SHARED_SETTINGS = {"fsync": "off"}


class Database:
    """A new database on `server`; `drop` takes it away with its replication slots, whoever is connected."""

    def __init__(self, server: EmbeddedPostgres, name: str | None = None) -> None:
        self.server = server
        self.name = name or f"t{uuid.uuid4().hex[:12]}"
        self._execute_at_server(f'CREATE DATABASE "{self.name}"')

    @property
    def conninfo(self) -> str:
        return make_conninfo(self.server.conninfo, dbname=self.name)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Autocommit; close it, or use it as a context."""
        return psycopg.connect(self.conninfo, autocommit=True)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """On a connection of its own. Gives the rows of the last statement, if that has rows."""
        return _execute(self.conninfo, sql)

    def drop(self) -> None:
        mine = f"FROM pg_replication_slots WHERE database = '{self.name}'"
        # a reader that is alive would hold its slot; 10 s, in milliseconds, to let go of it
        self._execute_at_server(f"SELECT pg_terminate_backend(active_pid, 10000) {mine} AND active")
        self._execute_at_server(f"SELECT pg_drop_replication_slot(slot_name) {mine}")
        self._execute_at_server(f'DROP DATABASE "{self.name}" WITH (FORCE)')

    def _execute_at_server(self, sql: str) -> None:
        _execute(self.server.conninfo, sql)


def _execute(conninfo: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []


def skip_unless_there(version: int) -> None:
    try:
        find_install(version)
        find_client("pgbench")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgres_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """`postgres_servers(14)`: the one server of that version of the test run, started when first asked for."""
    servers: dict[int, EmbeddedPostgres] = {}

    def server_of(version: int) -> EmbeddedPostgres:
        if version not in servers:
            skip_unless_there(version)
            directory = tmp_path_factory.mktemp(f"postgres{version}")
            servers[version] = EmbeddedPostgres(directory, version, settings=SHARED_SETTINGS)
            servers[version].start()
        return servers[version]

    yield server_of
    for server in servers.values():
        server.remove()


@pytest.fixture(scope="session", params=NEWEST_FIRST, ids=lambda version: f"postgres{version}")
def postgres_server(
    request: pytest.FixtureRequest, postgres_servers: Callable[[int], EmbeddedPostgres]
) -> EmbeddedPostgres:
    """One of each version for the whole test run. Do not stop or kill it: take `new_postgres` for that."""
    return postgres_servers(request.param)


@pytest.fixture
def database(postgres_server: EmbeddedPostgres) -> Iterator[Database]:
    """An empty database that no other test uses, on each version in turn."""
    mine = Database(postgres_server)
    yield mine
    mine.drop()


@pytest.fixture
def new_postgres(tmp_path: Path) -> Iterator[NewPostgres]:
    """`new_postgres(**options)`: a server of the test's own, not started yet, gone when the test ends.

    `name` is its directory, in `tmp_path`; the other options are those of EmbeddedPostgres. The same name again
    is another handle on the same server.
    """
    made: list[EmbeddedPostgres] = []

    def make(name: str = "postgres", **options: Any) -> EmbeddedPostgres:
        made.append(EmbeddedPostgres(tmp_path / name, **options))
        skip_unless_there(made[-1].version)
        return made[-1]

    yield make
    for server in made:
        server.remove()
