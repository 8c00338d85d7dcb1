"""A bank on a real MongoDB all the while: copy, handoff, stream; extractor, merger, Spark and the server killed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowwater_devkit.servers.mongodb import EmbeddedMongo
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service
from tests.support.harness import Fleet, skip_without_spark
from tests.support.mongodb import MongoDatabase, NewMongo
from tests.support.mongodb_fleet import Bank, check_every_version, check_last, mongo_fleet, readable_from


def _kill_server(server: EmbeddedMongo) -> None:
    member = server.wait_for_primary()
    server.kill(member)
    server.start_member(member)
    server.wait_for_primary()


def _run(fleet: Fleet, database: MongoDatabase, kills: int, versions: int) -> None:
    seed = int(os.environ.get("LOWWATER_SEED", "1"))
    print(f"seed {seed}")
    rng = random.Random(seed)
    bank = Bank(database)
    starts = {"extractor": fleet.extractor, "merger": fleet.merger, "spark": fleet.lander}
    running: dict[str, Service] = {}
    with bank.working():
        for name, start in starts.items():
            running[name] = start()
        fleet.wait_for_capture()
        for number in range(kills):
            time.sleep(rng.uniform(0.5, 4))
            # the first ones in any case: they fall into the copy
            names = ("extractor", "spark", "server", "merger")
            name = names[number] if number < 4 else rng.choice(names)
            if name == "server":
                _kill_server(database.server)
            else:
                running[name].kill()
                running[name] = starts[name]()
        fleet.wait_for_versions(lambda: readable_from(fleet, database), versions)
    check_last(fleet, bank)
    assert check_every_version(fleet, bank) > versions


@pytest.fixture
def bank_database(new_mongo: NewMongo, request: pytest.FixtureRequest) -> Iterator[MongoDatabase]:
    """On a set of the test's own, of one member or as many as it says."""
    server = new_mongo(members=getattr(request, "param", 1))
    server.start()
    database = MongoDatabase(server, "bank")
    yield database
    database.client.close()


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, bank_database: MongoDatabase) -> Iterator[Fleet]:
    skip_without_spark()
    made = mongo_fleet(tmp_path, kafka.bootstrap_servers, unique, bank_database, chunk_rows=200)
    yield made
    made.kill_all()


@pytest.mark.timeout(1800)
def test_every_version_is_in_balance_and_the_last_is_the_database(fleet: Fleet, bank_database: MongoDatabase) -> None:
    _run(fleet, bank_database, kills=4, versions=100)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bank_database", [1, 3], indirect=True)
def test_the_same_with_many_kills_also_of_a_set_of_three(fleet: Fleet, bank_database: MongoDatabase) -> None:
    _run(fleet, bank_database, kills=30, versions=1_000)
