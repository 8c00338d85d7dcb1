"""Tables that are read by their cursors, the extractor killed with -9 at each step: lost 0, duplicated 0.

A row version is one (table, id, stamp): it may be overtaken by the next one before it is read, but it never comes
twice, and the last one always comes.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lowwater.errors import BusError, LakeError
from lowwater.lake import Lake
from lowwater.runtime.failpoints import FAIL_POINTS
from lowwater_devkit.verify.history import Decoder
from lowwater_extractor.incremental.cursors import Cursors
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.beside import beside
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.postgres import Database
from tests.support.postgres_fleet import source_config

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)

TABLES = ("accounts", "orders")
CURSORS = {f"public.{table}": {"primary": "stamp", "secondary": "id"} for table in TABLES}
POINTS = [name for name in FAIL_POINTS if name.startswith("incremental.")]
#: those of every source, at the batches of a sync
OF_ALL = ("batch_produced", "marks_produced", "position_produced", "committed", "acknowledged", "prefix_committed")
#: a sync is larger than a batch
BATCH = {"count_max": 50, "milliseconds_max": 10}
ROWS = 300

#: table, id → stamp in microseconds, n
State = dict[tuple[str, int], tuple[int, int]]


class Work:
    """Inserts and updates, each with a stamp of its own."""

    def __init__(self, database: Database, seed: int = 1) -> None:
        self.database = database
        self._rng = random.Random(seed)
        for table in TABLES:
            database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, stamp timestamptz, n int)")
            database.execute(f"CREATE INDEX ON {table} (stamp, id)")

    def put(self, count: int) -> None:
        """In transactions of several rows over both tables."""
        with self.database.connect() as connection:
            while count > 0:
                size = self._rng.randrange(1, 8)
                with connection.transaction():
                    for _ in range(size):
                        table = self._rng.choice(TABLES)
                        connection.execute(
                            f"INSERT INTO {table} VALUES (%s, clock_timestamp(), %s) ON CONFLICT (id) "
                            "DO UPDATE SET stamp = excluded.stamp, n = excluded.n".encode(),
                            (self._rng.randrange(ROWS), self._rng.randrange(1000)),
                        )
                count -= size

    def going_on(self) -> AbstractContextManager[None]:
        def work(is_over: threading.Event) -> None:
            while not is_over.wait(0.02):
                self.put(20)

        return beside(work)

    def state(self) -> State:
        found: State = {}
        for table in TABLES:
            rows = self.database.execute(f"SELECT id, (extract(epoch FROM stamp) * 1000000)::int8, n FROM {table}")
            found |= {(f"public.{table}", id_): (stamp, n) for id_, stamp, n in rows}
        return found


@pytest.fixture
def work(database: Database) -> Work:
    seed = int(os.environ.get("LOWWATER_SEED", "1"))
    print(f"seed {seed}")
    return Work(database, seed)


@pytest.fixture
def fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str, work: Work) -> Iterator[Fleet]:
    made = incremental_fleet(kafka, tmp_path, unique, work.database)
    yield made
    made.kill_all()


def incremental_fleet(kafka: EmbeddedKafka, directory: Path, name: str, database: Database, **lake: Any) -> Fleet:
    config = source_config(
        database, mode="incremental", cursors=CURSORS, poll_seconds=0.05, settle_seconds=0.5, spill_bytes_max=2000,
        spill_directory=str(directory / "spill"), read_bytes=2000,
    )  # fmt: skip
    source = {"kind": "postgres", "batch": BATCH, "config": config}
    return Fleet(directory, kafka.bootstrap_servers, name, source=source, **lake)


def published(fleet: Fleet) -> list[tuple[str, int, int, int]]:
    """Every change of the ordered topic, in its order: table, id, stamp, n."""
    decode = Decoder(fleet.store)
    found = []
    ordered = fleet.ordered()
    assert [t.gsn for t in ordered] == list(range(1, len(ordered) + 1))
    for transaction in ordered:
        assert not transaction.torn, transaction.torn
        for value in transaction.values:
            op, table, before, after = decode(value)
            assert (op, before) == ("r", None)
            found.append((table, *after))
    return found


def state_of(changes: list[tuple[str, int, int, int]]) -> State:
    return {(table, id_): (stamp, n) for table, id_, stamp, n in changes}


def check(fleet: Fleet, work: Work) -> None:
    """The last versions are those of the database, and none came twice."""
    wanted = work.state()

    def is_there() -> bool:
        try:
            return state_of(published(fleet)) == wanted
        except BusError:
            return False  # the topic is not there yet

    try:
        wait_until("the ordered topic to be the database", is_there, 60)
    except AssertionError as error:
        found = state_of(published(fleet))
        wrong = {key for key in wanted | found if wanted.get(key) != found.get(key)}
        raise AssertionError(f"{error}: {len(wrong)} rows differ, {sorted(wrong)[:5]}; {fleet.log_tails()}") from error
    versions = Counter((table, id_, stamp) for table, id_, stamp, _ in published(fleet))
    twice = [version for version, count in versions.items() if count > 1]
    assert not twice, f"{len(twice)} row versions came twice: {twice[:5]}"


def die_at(fleet: Fleet, point: str) -> None:
    service = fleet.extractor(LOWWATER_FAIL_AT=point)
    code = service.wait(60)
    assert code == -signal.SIGKILL, f"{point} was not reached: exit code {code}; {fleet.log_tails()}"


@newest
@pytest.mark.parametrize(
    "point", [*POINTS, *(pytest.param(f"extractor.{name}", marks=pytest.mark.long) for name in OF_ALL)]
)
def test_killed_at(point: str, fleet: Fleet, work: Work) -> None:
    work.put(400)
    fleet.merger()
    with work.going_on():
        for number in (1, 2) if point in POINTS else (3,):
            die_at(fleet, f"{point}:{number}")
    fleet.extractor()
    work.put(50)
    check(fleet, work)


@newest
def test_killed_with_a_part_published_and_its_rows_changed_since(fleet: Fleet, work: Work) -> None:
    work.put(400)
    fleet.merger()
    die_at(fleet, "extractor.prefix_committed:2")
    open_ = fleet.position().in_progress
    assert open_ is not None
    assert open_.changes >= 50
    # every row of the part moves on above the sync's bounds
    work.database.execute("UPDATE accounts SET stamp = clock_timestamp(), n = n + 1")
    die_at(fleet, "extractor.abandon_produced")
    fleet.extractor()
    check(fleet, work)


@newest
def test_killed_when_the_sync_is_committed_and_its_cursors_are_not_yet(fleet: Fleet, work: Work) -> None:
    """199 rows and their commit are exactly four batches: the last one is committed before the position moves on."""
    fleet.merger()
    work.database.execute("INSERT INTO accounts SELECT n, clock_timestamp(), 0 FROM generate_series(1, 199) n")
    time.sleep(0.6)
    die_at(fleet, "extractor.prefix_committed:3")
    # a session marks at its start, and then, with so much time between marks, when a batch is full
    fleet.change_source(mark_seconds=60)
    die_at(fleet, "extractor.acknowledged:2")
    fleet.change_source(mark_seconds=0.2)
    position = fleet.position()
    (thread,) = position.threads
    cursors = Cursors.unpack(thread.resume)
    assert position.in_progress is None
    assert thread.published == cursors.order, "it is published"
    assert cursors.is_open, "and its cursors have not moved"
    fleet.extractor()
    check(fleet, work)
    assert len(published(fleet)) == 199


def wait_for_session(fleet: Fleet, number: int) -> None:
    wait_until(f"session {number}; {fleet.log_tails()}", lambda: fleet.position().epoch >= number)


@pytest.mark.parametrize("postgres_server", [18, pytest.param(14, marks=pytest.mark.long)], indirect=True)
@pytest.mark.timeout(600)
def test_killed_at_random_while_rows_are_written(fleet: Fleet, work: Work) -> None:
    rng = random.Random(int(os.environ.get("LOWWATER_SEED", "1")))
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    with work.going_on():
        for number in range(1, 9):
            # each one gets as far as to work
            wait_for_session(fleet, number)
            time.sleep(rng.uniform(0, 1.5))
            if number % 3 == 0:
                merger.kill()
                merger = fleet.merger()
            extractor.kill()
            extractor = fleet.extractor()
        before = fleet.position().threads[0].published
        wait_until("another sync", lambda: fleet.position().threads[0].published > before)
    check(fleet, work)
    assert len(fleet.ordered()) > 3


@newest
@pytest.mark.timeout(600)
def test_the_lakes_state_is_the_database(kafka: EmbeddedKafka, tmp_path: Path, unique: str, work: Work) -> None:
    """A row that comes again takes the place of the one before it."""
    skip_without_spark()
    uri = str(tmp_path / "lake")
    fleet = incremental_fleet(kafka, tmp_path, unique, work.database, lake={"uri": uri, "compact_seconds": -1})
    try:
        services = [fleet.extractor(), fleet.merger(), fleet.lander()]
        work.put(200)
        with work.going_on():
            time.sleep(1)
            services[0].kill()
            fleet.extractor()
        check(fleet, work)
        last = fleet.ordered()[-1].gsn
        wait_until(f"gsn {last} in the lake; {fleet.log_tails()}", lambda: lake_gsn(uri) >= last, 120)
        assert lake_state(uri, fleet.sources[0]) == work.state()
    finally:
        fleet.kill_all()


def lake_gsn(uri: str) -> int:
    try:
        return Lake.open(uri).chain.head.gsn
    except LakeError:
        return 0  # nothing has landed yet


def lake_state(uri: str, source: str) -> State:
    found: State = {}
    for table in TABLES:
        rows = Lake.open(uri).at().state(f"{source}.public.{table}").rows()
        for row in rows:
            found[f"public.{table}", row["id"]] = (int(row["stamp"].timestamp() * 1_000_000 + 0.5), row["n"])
    return found
