"""Real MySQL and MariaDB servers for the tests, and a database of each test's own.

Tests that need a server which is not there are skipped, with the reason.
A test that is for some of them only says so: `@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.connections import Connection

from lowwater.errors import ConfigError
from lowwater_devkit.servers.embedded import HOST
from lowwater_devkit.servers.mysql import USER, EmbeddedMysql
from lowwater_devkit.servers.mysql_install import FLAVOURS, NEWEST, Flavour, find_install, is_mariadb

MYSQLS: list[Flavour] = [flavour for flavour in FLAVOURS if not is_mariadb(flavour)]
MARIADBS: list[Flavour] = [flavour for flavour in FLAVOURS if is_mariadb(flavour)]
#: the newest of each in every run, the oldest with the long tests; conformance runs on all of them every time
NEWEST_FIRST = [pytest.param(flavour, marks=[] if flavour in NEWEST else [pytest.mark.long]) for flavour in FLAVOURS]
NewMysql = Callable[..., EmbeddedMysql]


def connect(server: EmbeddedMysql, database: str | None = None) -> Connection[Any]:
    """Autocommit, in UTC; close it, or use it as a context."""
    return pymysql.connect(
        host=HOST, port=server.port, user=USER, database=database, autocommit=True, charset="utf8mb4",
        init_command="SET time_zone = '+00:00'",
    )  # fmt: skip


def run(connection: Connection[Any], statement: str, *values: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


class MysqlDatabase:
    """A new database on `server`."""

    def __init__(self, server: EmbeddedMysql, name: str | None = None) -> None:
        self.server = server
        self.name = name or f"t{uuid.uuid4().hex[:12]}"
        with connect(server) as connection:
            run(connection, f"CREATE DATABASE `{self.name}`")

    @property
    def is_mariadb(self) -> bool:
        return is_mariadb(self.server.flavour)

    def connect(self) -> Connection[Any]:
        return connect(self.server, self.name)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """On a connection of its own. Gives the rows of the last one."""
        found: list[tuple[Any, ...]] = []
        with self.connect() as connection:
            for statement in statements:
                found = run(connection, statement)
        return found

    def drop(self) -> None:
        with connect(self.server) as connection:
            run(connection, f"DROP DATABASE IF EXISTS `{self.name}`")


def skip_unless_there(flavour: Flavour) -> None:
    try:
        find_install(flavour)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mysql_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Flavour], EmbeddedMysql]]:
    """`mysql_servers("mariadb-11.8")`: the one server of that flavour of the test run, started when first asked for."""
    servers: dict[Flavour, EmbeddedMysql] = {}

    def server_of(flavour: Flavour) -> EmbeddedMysql:
        if flavour not in servers:
            skip_unless_there(flavour)
            servers[flavour] = EmbeddedMysql(tmp_path_factory.mktemp(flavour), flavour)
            servers[flavour].start()
        return servers[flavour]

    yield server_of
    for server in servers.values():
        server.remove()


@pytest.fixture(scope="session", params=NEWEST_FIRST)
def mysql_server(request: pytest.FixtureRequest, mysql_servers: Callable[[Flavour], EmbeddedMysql]) -> EmbeddedMysql:
    """One of each flavour for the whole test run. Do not stop or kill it: take `new_mysql` for that."""
    return mysql_servers(request.param)


@pytest.fixture
def mysql_database(mysql_server: EmbeddedMysql) -> Iterator[MysqlDatabase]:
    """An empty database that no other test uses, on each flavour in turn."""
    mine = MysqlDatabase(mysql_server)
    yield mine
    mine.drop()


@pytest.fixture
def new_mysql(tmp_path: Path) -> Iterator[NewMysql]:
    """`new_mysql(**options)`: a server of the test's own, not started yet, gone when the test ends."""
    made: list[EmbeddedMysql] = []

    def make(name: str = "mysql", **options: Any) -> EmbeddedMysql:
        made.append(EmbeddedMysql(tmp_path / name, **options))
        skip_unless_there(made[-1].flavour)
        return made[-1]

    yield make
    for server in made:
        server.remove()
