"""Real MongoDB replica sets for the tests, and a database of each test's own.

Tests that need a server which is not there are skipped, with the reason.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson.codec_options import CodecOptions, DatetimeConversion

from lowwater.errors import ConfigError
from lowwater_devkit.servers.mongodb import EmbeddedMongo, find_mongod

NewMongo = Callable[..., EmbeddedMongo]

IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


class MongoDatabase:
    """A new database on `server`; its collections have images."""

    def __init__(self, server: EmbeddedMongo, name: str | None = None) -> None:
        self.server = server
        self.name = name or f"t{uuid.uuid4().hex[:12]}"
        self.client = server.client()
        self.options: CodecOptions[Any] = CodecOptions(
            tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
        )
        self.db = self.client.get_database(self.name, codec_options=self.options)

    def create(self, *names: str, **options: Any) -> None:
        for name in names:
            self.db.create_collection(name, **{**IMAGES, **options})

    def transaction(self, work: Callable[[Any, Any], Any]) -> Any:
        """`work(session, db)`, committed; tried again as the driver does."""
        with self.client.start_session() as session:
            return session.with_transaction(lambda s: work(s, self.db))

    def drop(self) -> None:
        self.client.drop_database(self.name)
        self.client.close()


def source_config(database: MongoDatabase, **settings: Any) -> dict[str, Any]:
    return {
        "hosts": database.server.hosts,
        "replica_set": database.server.name,
        "tables": [f"{database.name}.*"],
        **settings,
    }


def skip_without_mongod() -> None:
    try:
        find_mongod()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongo]:
    """The one set (of one member) of the test run. Do not stop or kill it: take `new_mongo` for that."""
    skip_without_mongod()
    server = EmbeddedMongo(tmp_path_factory.mktemp("mongodb"))
    server.start()
    yield server
    server.remove()


@pytest.fixture
def mongo(mongo_server: EmbeddedMongo) -> Iterator[MongoDatabase]:
    """An empty database that no other test uses."""
    mine = MongoDatabase(mongo_server)
    yield mine
    mine.drop()


@pytest.fixture
def new_mongo(tmp_path: Path) -> Iterator[NewMongo]:
    """`new_mongo(**options)`: a set of the test's own, not started yet, gone when the test ends."""
    made: list[EmbeddedMongo] = []

    def make(name: str = "mongodb", **options: Any) -> EmbeddedMongo:
        skip_without_mongod()
        made.append(EmbeddedMongo(tmp_path / name, **options))
        return made[-1]

    yield make
    for server in made:
        server.remove()
