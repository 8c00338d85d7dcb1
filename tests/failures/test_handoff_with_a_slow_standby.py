"""The handoff from copy to stream while transactions run on after their commit record: none is lost, none is double.

With a synchronous standby that answers late, a transaction is in the log before others can see it. A snapshot that is
taken beside the log's end would not have it, and a stream from there on would not either.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lowwater_fleet.cli import operate as operate_cli
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.integration.postgres.reading import reading
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.lake_beside import LakeBeside
from tests.support.postgres import Database, NewPostgres
from tests.support.postgres_fleet import postgres_fleet
from tests.support.postgres_standby import SlowStandby
from tests.support.versions import Transactions

ACCOUNTS, WRITERS = 200, 6
COPIES = 2
#: `seen` has no key: what comes twice is there twice, and what is lost is not there
_TABLES = f"""
CREATE TABLE accounts (id int PRIMARY KEY, cents int);
INSERT INTO accounts SELECT n, 0 FROM generate_series(1, {ACCOUNTS}) n;
CREATE TABLE seen (writer int, n int);
CREATE PUBLICATION bank FOR TABLE accounts, seen
"""


class Writers:
    """Each moves money inside of its own accounts, and writes down that it did."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_over = threading.Event()
        self.written = [0] * WRITERS

    def _work(self, writer: int) -> None:
        rng = random.Random(writer)
        with self._database.connect() as connection:
            while not self._is_over.is_set():
                # rows of its own: nobody waits for a lock that a hanging transaction holds
                one, other = rng.sample(range(writer + 1, ACCOUNTS + 1, WRITERS), 2)
                with connection.transaction():
                    connection.execute("UPDATE accounts SET cents = cents - 1 WHERE id = %s", (one,))
                    connection.execute("UPDATE accounts SET cents = cents + 1 WHERE id = %s", (other,))
                    connection.execute("INSERT INTO seen VALUES (%s, %s)", (writer, self.written[writer]))
                self.written[writer] += 1
                time.sleep(0.01)

    @contextmanager
    def working(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()


@pytest.fixture
def standby(request: pytest.FixtureRequest, new_postgres: NewPostgres) -> Iterator[SlowStandby]:
    skip_without_spark()
    made = SlowStandby(new_postgres, request.param)
    made.database.execute(_TABLES)
    yield made
    made.go_on()


@pytest.fixture
def fleet(standby: SlowStandby, kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Iterator[Fleet]:
    made = postgres_fleet(
        tmp_path, kafka.bootstrap_servers, unique, standby.database,
        publication="bank", manage_publication=False, without_key="insert_only", chunk_rows=2_000,
    )  # fmt: skip
    yield made
    made.kill_all()


def _check(lake: LakeBeside, writers: Writers) -> None:
    lake.assert_same("accounts", "seen")
    assert sum(lake.rows("seen").values()) == sum(writers.written)
    # at each version that a copy made readable, and now: what one account lost another has
    for copied in lake.lake.chain.copied:
        if lake.name("accounts") in copied.tables:
            state = lake.lake.at(copied.gsn).state(lake.name("accounts")).arrow()
            assert (state.num_rows, sum(state["cents"].to_pylist())) == (ACCOUNTS, 0), copied.gsn


@pytest.mark.timeout(600)
@pytest.mark.parametrize("standby", [18, pytest.param(14, marks=pytest.mark.long)], indirect=True)
def test_transactions_that_run_on_after_their_commit_record(standby: SlowStandby, fleet: Fleet) -> None:
    writers, lake = Writers(standby.database), LakeBeside(fleet, standby.database)
    standby.hang()
    with writers.working():
        wait_until("all writers to hang", lambda: standby.hanging() == WRITERS)
        # capture and copy begin now: the server makes no slot before these are through
        fleet.extractor()
        fleet.merger()
        fleet.lander()
        made = "SELECT 1 FROM pg_replication_slots WHERE active AND confirmed_flush_lsn IS NULL"
        wait_until("a slot that is being made", lambda: standby.database.execute(made))
        assert standby.hanging() == WRITERS
        standby.go_on()
        with standby.slow():
            for number in range(1, COPIES + 1):
                lake.wait_for_copies(number, "accounts", "seen")
                if number < COPIES:
                    for table in ("public.accounts", "public.seen"):
                        operate_cli.copy(fleet.sources[0], table, "a test", fleet.config)
    print(f"{sum(writers.written)} transactions, {COPIES} copies of each table")
    _check(lake, writers)


@pytest.mark.parametrize("standby", [18], indirect=True)
def test_a_type_that_nobody_can_see_yet_is_waited_for(standby: SlowStandby) -> None:
    """The stream has the transaction that made it before the catalogue shows it."""
    altered = """
        BEGIN; CREATE DOMAIN cents AS int; ALTER TABLE accounts ADD COLUMN limited cents;
        UPDATE accounts SET limited = 5 WHERE id = 1; COMMIT"""
    with reading(standby.database, without_key="insert_only") as read:
        standby.hang()
        writer = threading.Thread(target=standby.database.execute, args=(altered,))
        writer.start()
        wait_until("it to hang", lambda: standby.hanging() == 1)
        later = threading.Timer(1.0, standby.go_on)
        later.start()
        found: Transactions = []
        while not found:
            found = [[read.encoders.change(frame) for frame in t.changes] for t in read.poll()]
        writer.join()
        later.join()
    ((change,),) = found
    assert change.after == {"id": 1, "cents": 0, "limited": 5}
