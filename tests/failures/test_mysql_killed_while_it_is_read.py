"""Extractor, merger and the server killed with -9, at random and at fail points: each transaction once, in order."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from lowwater_devkit.servers.mysql_install import Flavour
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.mysql import NEWEST_FIRST, MysqlDatabase, NewMysql
from tests.support.mysql_books import Books

_POINTS = ("extractor.after_init", "extractor.acknowledged")


@pytest.mark.parametrize("flavour", NEWEST_FIRST)
@pytest.mark.timeout(900)
def test_each_transaction_comes_once_whole_and_in_order(
    kafka: EmbeddedKafka, tmp_path: Path, unique: str, new_mysql: NewMysql, flavour: Flavour
) -> None:
    # a server that is killed has to come back with all that it has said was committed
    server = new_mysql(flavour=flavour, settings={"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1"})
    server.start()
    assert survives(Books(tmp_path, kafka.bootstrap_servers, unique, MysqlDatabase(server, "books")), kills=8) > 50


def survives(books: Books, kills: int, seconds: float = 120) -> int:
    seed = int(os.environ.get("LOWWATER_SEED", "1"))
    print(f"seed {seed}")
    rng = random.Random(seed)
    fleet, server = books.fleet, books.database.server
    try:
        extractor, merger = fleet.extractor(), fleet.merger()
        fleet.wait_for_capture()
        with books.written():
            for number in range(kills):
                time.sleep(rng.uniform(0.2, 1.0))
                match ("extractor", "server", "merger", "point")[number % 4]:
                    case "extractor":
                        extractor.kill()
                        extractor = fleet.extractor()
                    case "server":
                        server.kill()
                        server.start()
                    case "merger":
                        merger.kill()
                        merger = fleet.merger()
                    case _:
                        extractor.kill()
                        point = fleet.extractor(LOWWATER_FAIL_AT=_POINTS[number // 4 % len(_POINTS)])
                        assert point.wait(seconds) == -signal.SIGKILL, fleet.log_tails()
                        extractor = fleet.extractor()
            time.sleep(1)
        return books.assert_whole(seconds)
    finally:
        fleet.kill_all()
