"""The servers of a test run, each started when first asked for: `open("postgres18")` is a new database on one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from lowwater_devkit.servers.mongodb import EmbeddedMongo
from lowwater_devkit.servers.mysql import EmbeddedMysql
from lowwater_devkit.servers.mysql_install import FLAVOURS, Flavour
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from tests.differential.mongodb import Mongo
from tests.differential.mysql import Mysql
from tests.differential.oracle import Oracle
from tests.differential.postgres import Postgres
from tests.differential.turso import Turso
from tests.differential.workload import Kind
from tests.support import mongodb, mysql, postgres
from tests.support.mongodb import MongoDatabase
from tests.support.mysql import MysqlDatabase
from tests.support.postgres import SHARED_SETTINGS, Database

KINDS = ("postgres14", "postgres18", *FLAVOURS, "turso", "mongodb", "oracle")
#: in every run the same: statements name it, and are to be run again. A server has one run at a time
DATABASE = "differential"


class Servers:
    """Of their own, not those that other tests share: they have settings that the workloads need."""

    def __init__(self, new_directory: Callable[[str], Path]) -> None:
        self._new_directory = new_directory
        self._postgres: dict[int, EmbeddedPostgres] = {}
        self._mysql: dict[Flavour, EmbeddedMysql] = {}
        self._mongo: EmbeddedMongo | None = None
        self._stack = ExitStack()

    def open(self, kind: str) -> Kind:
        if kind.startswith("postgres"):
            return Postgres(Database(self._postgres_of(int(kind.removeprefix("postgres"))), DATABASE))
        if kind in FLAVOURS:
            return Mysql(MysqlDatabase(self._mysql_of(kind), DATABASE), kind)
        if kind == "turso":
            return Turso(self._new_directory("turso") / "app.db")
        if kind == "oracle":
            return Oracle(self._new_directory("oracle"))
        if kind == "mongodb":
            server = self._mongo_server()
            return Mongo(MongoDatabase(server, DATABASE), MongoDatabase(server, f"{DATABASE}_x"))
        raise ValueError(f"unknown kind {kind!r}")

    def close(self) -> None:
        self._stack.close()

    def _postgres_of(self, version: int) -> EmbeddedPostgres:
        if version not in self._postgres:
            postgres.skip_unless_there(version)
            settings = {**SHARED_SETTINGS, "max_prepared_transactions": "20"}
            server = EmbeddedPostgres(self._new_directory(f"postgres{version}"), version, settings=settings)
            self._stack.callback(server.remove)
            server.start()
            self._postgres[version] = server
        return self._postgres[version]

    def _mysql_of(self, flavour: Flavour) -> EmbeddedMysql:
        if flavour not in self._mysql:
            mysql.skip_unless_there(flavour)
            server = EmbeddedMysql(self._new_directory(flavour), flavour)
            self._stack.callback(server.remove)
            server.start()
            self._mysql[flavour] = server
        return self._mysql[flavour]

    def _mongo_server(self) -> EmbeddedMongo:
        if self._mongo is None:
            mongodb.skip_without_mongod()
            self._mongo = EmbeddedMongo(self._new_directory("mongodb"))
            self._stack.callback(self._mongo.remove)
            self._mongo.start()
        return self._mongo
