"""More databases of the demo: a shop each on MySQL, MongoDB and Turso, with continuous sales.

A sale is one transaction: an order, and lines whose cents add up to the order's. Some orders are older than the log.
Databases without a server on this machine are left out.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from lowwater.errors import ConfigError, LowwaterError
from lowwater_devkit.servers import mongodb
from lowwater_devkit.servers.embedded import HOST
from lowwater_devkit.servers.mongodb import EmbeddedMongo
from lowwater_devkit.servers.mysql import USER, EmbeddedMysql
from lowwater_devkit.servers.mysql_install import find_install
from lowwater_devkit.servers.plain_user import plain_user

SALES_PER_SECOND = 8
OLD_SALES = 200
NAMESPACE = "shop"
TABLES = ("orders", "order_lines")
_MAKE = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)",
    "CREATE TABLE order_lines (id INTEGER PRIMARY KEY, order_id INTEGER, cents INTEGER)",
)

#: cents by order id; order and cents by line id
Rows = tuple[dict[int, int], dict[int, tuple[int, int]]]


def sale(number: int) -> tuple[int, list[tuple[int, int, int]]]:
    """The cents of an order, and its lines as (id, order, cents)."""
    lines = [(number * 10 + n, number, (number * 7 + n * 13) % 500 + 1) for n in range(1, 2 + number % 3)]
    return sum(cents for _, _, cents in lines), lines


def statements(number: int) -> list[str]:
    cents, lines = sale(number)
    values = ", ".join(str(line) for line in lines)
    return [f"INSERT INTO orders VALUES ({number}, {cents})", f"INSERT INTO order_lines VALUES {values}"]


class Shop(ABC):
    source: ClassVar[str]
    #: namespace in the names of its tables in the lake
    namespace: ClassVar[str] = NAMESPACE

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sold = 0
        self.error = ""
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    @abstractmethod
    def lacking(cls) -> str:
        """What is missing on this machine; empty if nothing is."""

    @abstractmethod
    def start(self) -> None:
        """Start the database, with empty tables."""

    @abstractmethod
    def source_config(self) -> dict[str, Any]: ...

    @abstractmethod
    def open(self) -> Callable[[int], None]:
        """Connect, for the calling thread. The returned function sells the order with the given number in one
        transaction."""

    @abstractmethod
    def rows(self) -> Rows:
        """The current rows of the database."""

    @abstractmethod
    def remove(self) -> None: ...

    def fill(self) -> None:
        """Make the sales that precede capture."""
        sell = self.open()
        for _ in range(OLD_SALES):
            self.sold += 1
            sell(self.sold)

    def begin(self) -> None:
        self._is_over.clear()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        try:
            sell = self.open()
            while not self._is_over.wait(1 / SALES_PER_SECOND):
                sell(self.sold + 1)
                self.sold += 1
        except Exception as error:  # noqa: BLE001  (of any driver: the demo reports it at the end)
            self.error = f"{self.source}: the shop failed: {error}"

    def lake_name(self, table: str) -> str:
        return f"{self.source}.{self.namespace}.{table}"


def _has(package: str) -> str:
    return "" if importlib.util.find_spec(package) else f"the package {package} is not installed"


class MysqlShop(Shop):
    source = "mysql"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._server = EmbeddedMysql(directory / self.source)

    @classmethod
    def lacking(cls) -> str:
        try:
            find_install("mysql-8.0")
            plain_user()
        except ConfigError as error:
            return error.what
        return _has("pymysql")

    def start(self) -> None:
        self._server.start()
        with self._connect(None) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {NAMESPACE}")
        with self._connect() as connection, connection.cursor() as cursor:
            for statement in _MAKE:
                cursor.execute(statement)

    def _connect(self, database: str | None = NAMESPACE) -> Any:
        import pymysql  # not a dependency of the command line

        return pymysql.connect(host=HOST, port=self._server.port, user=USER, database=database, autocommit=True)

    def source_config(self) -> dict[str, Any]:
        return {**self._server.config, "tables": [f"{NAMESPACE}.*"], "spill_directory": str(self.directory / "spill")}

    def open(self) -> Callable[[int], None]:
        connection = self._connect()

        def sell(number: int) -> None:
            with connection.cursor() as cursor:
                for statement in ("BEGIN", *statements(number), "COMMIT"):
                    cursor.execute(statement)

        return sell

    def rows(self) -> Rows:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, cents FROM orders")
            orders = dict(cursor.fetchall())
            cursor.execute("SELECT id, order_id, cents FROM order_lines")
            return orders, {id_: (order, cents) for id_, order, cents in cursor.fetchall()}

    def remove(self) -> None:
        self._server.remove()


class MongoShop(Shop):
    source = "mongodb"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._server = EmbeddedMongo(directory / self.source)

    @classmethod
    def lacking(cls) -> str:
        try:
            mongodb.find_mongod()
        except ConfigError as error:
            return error.what
        return _has("pymongo")

    def start(self) -> None:
        self._server.start()
        with self._server.client() as client:
            for table in TABLES:
                client[NAMESPACE].create_collection(table, changeStreamPreAndPostImages={"enabled": True})

    def source_config(self) -> dict[str, Any]:
        return {
            "hosts": self._server.hosts, "replica_set": self._server.name, "tables": [f"{NAMESPACE}.*"],
            "spill_directory": str(self.directory / "spill"),
        }  # fmt: skip

    def open(self) -> Callable[[int], None]:
        client = self._server.client()
        database = client[NAMESPACE]

        def sell(number: int) -> None:
            cents, lines = sale(number)

            def work(session: Any) -> None:
                database.orders.insert_one({"_id": number, "cents": cents}, session=session)
                documents = [{"_id": id_, "order_id": order, "cents": line} for id_, order, line in lines]
                database.order_lines.insert_many(documents, session=session)

            with client.start_session() as session:
                session.with_transaction(work)

        return sell

    def rows(self) -> Rows:
        with self._server.client() as client:
            orders = {one["_id"]: one["cents"] for one in client[NAMESPACE].orders.find()}
            return orders, {one["_id"]: (one["order_id"], one["cents"]) for one in client[NAMESPACE].order_lines.find()}

    def remove(self) -> None:
        self._server.remove()


class TursoShop(Shop):
    source = "turso"
    namespace = "main"

    @classmethod
    def lacking(cls) -> str:
        return _has("turso")

    @property
    def _file(self) -> Path:
        return self.directory / "shop.db"

    def _connect(self) -> Any:
        import turso  # not a dependency of the command line

        from lowwater.turso import FEATURES, capture

        connection = turso.connect(str(self._file), isolation_level=None, experimental_features=FEATURES)
        capture(connection)
        return connection

    def start(self) -> None:
        connection = self._connect()
        for statement in _MAKE:
            connection.execute(statement).fetchall()
        connection.close()

    def source_config(self) -> dict[str, Any]:
        spill = str(self.directory / "spill")
        return {"path": str(self._file), "tables": ["main.*"], "prune": True, "spill_directory": spill}

    def open(self) -> Callable[[int], None]:
        connection = self._connect()
        connection.execute("PRAGMA busy_timeout = 10000").fetchall()

        def sell(number: int) -> None:
            for statement in ("BEGIN IMMEDIATE", *statements(number), "COMMIT"):
                connection.execute(statement).fetchall()

        return sell

    def rows(self) -> Rows:
        connection = self._connect()
        try:
            orders = dict(connection.execute("SELECT id, cents FROM orders").fetchall())
            lines = connection.execute("SELECT id, order_id, cents FROM order_lines").fetchall()
            return orders, {id_: (order, cents) for id_, order, cents in lines}
        finally:
            connection.close()

    def remove(self) -> None:
        """Nothing to do: the file is in the demo's directory."""


SHOPS: tuple[type[Shop], ...] = (MysqlShop, MongoShop, TursoShop)


def open_shops(directory: Path, say: Callable[[str], None]) -> list[Shop]:
    """Start the shops whose servers are installed, and make their old sales."""
    found = []
    for kind in SHOPS:
        if lacking := kind.lacking():
            say(f"{kind.source} is left out: {lacking}")
            continue
        shop = kind(directory)
        say(f"starting {kind.source}, with {OLD_SALES} orders")
        try:
            shop.start()
            shop.fill()
        except LowwaterError:
            shop.remove()
            raise
        found.append(shop)
    return found


def remove_old(directory: Path) -> None:
    """Remove the servers of an earlier demo."""
    for kind in SHOPS:
        if (directory / kind.source).exists():
            kind(directory).remove()


def settle(shops: list[Shop]) -> list[str]:
    """End the sales. Returns the errors of the shops."""
    for shop in shops:
        shop.close()
    time.sleep(0.1)
    return [shop.error for shop in shops if shop.error]
