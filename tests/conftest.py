"""What all tests share: a real broker, and names that no other test uses.

Tests that need a broker are skipped, with the reason, where Java or the jars are missing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from lowwater.errors import ConfigError
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.kafka.jars import find_jars, find_java
from tests.support.harness import SHORT_LIVED, Fleet
from tests.support.mongodb import mongo, mongo_server, new_mongo  # noqa: F401  fixtures
from tests.support.mysql import mysql_database, mysql_server, mysql_servers, new_mysql  # noqa: F401  fixtures
from tests.support.postgres import database, new_postgres, postgres_server, postgres_servers  # noqa: F401  fixtures
from tests.support.s3 import SECRET_VARIABLE, S3Server

# how long an example takes says nothing here: two processes share the machine with servers
settings.register_profile("lowwater", deadline=None)
settings.load_profile("lowwater")

NewKafka = Callable[..., EmbeddedKafka]
NewFleet = Callable[..., Fleet]

#: small, so that a short workload makes many Kafka transactions and some transactions are larger than one
SMALL_BATCHES = {"batch": {"count_max": 50, "milliseconds_max": 10}}
SMALL_RELEASES = {"release_bytes_max": 8192, "delete_seconds": 0.3, "progress_seconds": 1.0}


@pytest.fixture(scope="session")
def kafka_can_run() -> None:
    try:
        find_java()
        find_jars("kafka")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(kafka_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """The one broker of the test run. Do not stop or kill it: take `new_kafka` for that."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), port=0, java_options=[SHORT_LIVED]) as broker:
        yield broker


@pytest.fixture
def new_kafka(kafka_can_run: None, tmp_path: Path) -> Iterator[NewKafka]:
    """`new_kafka(**options)`: a broker of the test's own, not started yet, gone when the test ends.

    `name` is its directory, in `tmp_path`; the other options are those of EmbeddedKafka. The same name again
    is another handle on the same broker.
    """
    made: list[EmbeddedKafka] = []

    def make(name: str = "kafka", **options: Any) -> EmbeddedKafka:
        made.append(EmbeddedKafka(tmp_path / name, **{"port": 0, "java_options": [SHORT_LIVED], **options}))
        return made[-1]

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The one S3 endpoint of the test run: `s3.lake_config()` is a lake of the test's own."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
    except ConfigError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET_VARIABLE, server.secret)
        yield server
    server.stop()


@pytest.fixture
def unique() -> str:
    """A prefix for topics, sources and groups of one test: the broker is shared, its topics must not be."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def new_fleet(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[NewFleet]:
    """`new_fleet(**options)` on the shared broker, or on `bootstrap_servers`."""
    made: list[Fleet] = []

    def make(bootstrap_servers: str | None = None, **options: Any) -> Fleet:
        if bootstrap_servers is None:
            broker: EmbeddedKafka = request.getfixturevalue("kafka")
            bootstrap_servers = broker.bootstrap_servers
        options = {"source": SMALL_BATCHES, "group": SMALL_RELEASES, **options}
        made.append(Fleet(tmp_path, bootstrap_servers, f"{unique}{len(made)}", **options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.kill_all()
