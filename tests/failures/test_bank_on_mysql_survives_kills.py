"""A bank on a real MySQL and MariaDB: copy, then stream; extractor, merger, Spark and the server killed with -9."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lowwater_devkit.servers.mysql_install import FLAVOURS, Flavour
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service
from tests.support.harness import skip_without_spark
from tests.support.mysql import MysqlDatabase, NewMysql
from tests.support.mysql_bank import Bank, bank_fleet, check, readable_from


def _run(
    kafka: EmbeddedKafka, directory: Path, name: str, new_mysql: NewMysql, flavour: Flavour, kills: int, rate: float,
    versions: int,
) -> None:  # fmt: skip
    skip_without_spark()
    seed = int(os.environ.get("LOWWATER_SEED", "1"))
    print(f"seed {seed}")
    rng = random.Random(seed)
    # a server that is killed has to come back with all that it has said was committed
    server = new_mysql(flavour=flavour, settings={"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1"})
    server.start()
    database = MysqlDatabase(server, "bank")
    bank = Bank(database)
    fleet = bank_fleet(directory, kafka.bootstrap_servers, name, database, chunk_rows=40)
    starts: dict[str, Callable[[], Service]] = {
        "extractor": fleet.extractor, "merger": fleet.merger, "spark": fleet.lander
    }  # fmt: skip
    try:
        running = {part: start() for part, start in starts.items()}
        fleet.wait_for_capture()
        with bank.working(rate):
            for number in range(kills):
                time.sleep(rng.uniform(0.5, 6))
                # the first ones in any case: they fall into the copy
                order = ("extractor", "spark", "server", "merger")
                part = order[number] if number < len(order) else rng.choice(order)
                if part == "server":
                    server.kill()
                    server.start()
                else:
                    running[part].kill()
                    running[part] = starts[part]()
            fleet.wait_for_versions(lambda: readable_from(fleet, database), versions)
        assert check(fleet, database) > versions
    finally:
        fleet.kill_all()


@pytest.mark.long
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.timeout(900)
def test_the_lake_is_the_server_and_every_version_is_in_balance(
    kafka: EmbeddedKafka, tmp_path: Path, unique: str, new_mysql: NewMysql, flavour: Flavour
) -> None:
    _run(kafka, tmp_path, unique, new_mysql, flavour, kills=4, rate=60, versions=50)


@pytest.mark.long
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.timeout(3600)
def test_the_same_with_many_kills(
    kafka: EmbeddedKafka, tmp_path: Path, unique: str, new_mysql: NewMysql, flavour: Flavour
) -> None:
    _run(kafka, tmp_path, unique, new_mysql, flavour, kills=40, rate=150, versions=500)
