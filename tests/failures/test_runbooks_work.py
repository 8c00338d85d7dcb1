"""docs/operations/recover.md on a real PostgreSQL: after each of its remedies the lake equals the database again.

Each begins with a fleet that has landed some work. The gsn goes on after it, and nothing is repeated.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from lowwater.errors import LakeError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import topic_ends
from lowwater.lake import Lake
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.conftest import NewKafka
from tests.differential.fleet import OneSource, new_name
from tests.integration.postgres.test_another_log_is_noticed import SETTINGS, Restored
from tests.support.harness import skip_without_spark, wait_until
from tests.support.postgres import Database, NewPostgres
from tests.support.postgres_fleet import source_config

pytestmark = [pytest.mark.timeout(600)]
SECONDS = 180.0
Rows = dict[int, str]


class Group(OneSource):
    """Its lake can go to another place."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._place = self.fleet.directory / "lake"

    def use_lake(self, directory: Path) -> None:
        self.fleet.change_group(lake={"uri": str(directory), "compact_seconds": -1})
        self._place = directory
        self._lake = None

    def lake(self) -> Lake | None:
        try:
            self._lake = self._lake or Lake.open(str(self._place))
        except LakeError:
            return None
        return super().lake()


class Landed:
    """Two tables of a database, a fleet over them, and a lake that has what they have."""

    def __init__(self, restored: Restored, directory: Path, bootstrap_servers: str) -> None:
        self.restored, self.database = restored, restored.database
        self.database.execute("CREATE TABLE u (id int PRIMARY KEY, note text)")
        self.database.execute("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 50) n")
        config = source_config(self.database, tables=["public.*"])
        self.one = Group(directory, bootstrap_servers, new_name(), "postgres", config, {})
        self._next = 1000

    def begin(self) -> None:
        self.one.start()
        self.work()
        self.wait_until_equal()

    @property
    def source(self) -> str:
        return self.one.source

    @property
    def group(self) -> str:
        return self.one.fleet.group

    def work(self) -> None:
        """Transactions over both tables."""
        for _ in range(5):
            self._next += 1
            self.database.execute(
                f"BEGIN; INSERT INTO t VALUES ({self._next}, 'new'); INSERT INTO u VALUES ({self._next}, 'new'); "
                f"UPDATE t SET note = 'changed by {self._next}' WHERE id = {self._next % 50 + 1}; COMMIT"
            )

    def rows(self, table: str) -> Rows:
        return dict(self.database.execute(f"SELECT id, note FROM {table}"))

    def _landed(self, table: str) -> Rows | None:
        try:
            found = self.one.read(f"{self.source}.public.{table}").to_pylist()
        except LakeError:
            return None
        rows = {row["id"]: row["note"] for row in found}
        assert len(rows) == len(found), f"{table} has a key twice"
        return rows

    def wait_until_equal(self) -> None:
        wanted = {table: self.rows(table) for table in "tu"}

        def is_equal() -> bool:
            return all(self._landed(table) == wanted[table] for table in "tu")

        self.one.wait(f"the lake to equal the database; {self.one.states()}", is_equal, SECONDS)
        self._check_order()

    def _check_order(self) -> None:
        """No gsn is missing or there twice, and no source transaction came twice in one generation."""
        ordered = self.one.fleet.ordered()
        gsns = [transaction.gsn for transaction in ordered]
        assert gsns == list(range(gsns[0], gsns[0] + len(gsns)))
        assert not [transaction.torn for transaction in ordered if transaction.torn]
        ids = [(t.commit.generation, t.commit.thread, t.commit.txid) for t in ordered if t.commit is not None]
        assert len(set(ids)) == len(ids)

    def gsn(self) -> int:
        lake = self.one.lake()
        assert lake is not None
        return lake.gsn

    def wait_for_error(self, part: str, name: str) -> dict[str, Any]:
        def stopped() -> dict[str, Any] | None:
            error = (self.one.services[part].status() or {}).get("error")
            return error if error and error["error"] == name else None

        found: dict[str, Any] = wait_until(f"{part} to stop with {name}; {self.one.states()}", stopped, SECONDS)
        return found

    def stop(self, *parts: str) -> None:
        for part in parts:
            self.one.services[part].stop()

    def start(self, *parts: str) -> None:
        for part in parts:
            self.one.restart(part)

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.one.fleet.settings.kafka.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(30)
        wait_until(f"{topic} to be gone", lambda: topic not in admin.list_topics(timeout=10).topics)

    def delete_records(self, topic: str) -> None:
        """All that is there."""
        kafka = self.one.fleet.settings.kafka
        partitions = self.one.fleet.settings.source(self.source).partitions
        Admin(kafka).delete_records({(topic, p): topic_ends(kafka, topic, p)[1] for p in range(partitions)})

    def command(self, *arguments: str, module: str = "lowwater_fleet.cli.main") -> None:
        command = [sys.executable, "-m", module, *arguments, "--config", str(self.one.fleet.config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"


@pytest.fixture
def new_landed(
    new_postgres: NewPostgres, new_kafka: NewKafka, tmp_path: Path
) -> Iterator[tuple[Landed, EmbeddedKafka]]:
    """With a broker of its own: its topics are deleted, and so is all of it."""
    skip_without_spark()
    broker = new_kafka()
    broker.start()
    restored = Restored(new_postgres(version=18, settings=SETTINGS), tmp_path)
    landed = Landed(restored, tmp_path / "fleet", broker.bootstrap_servers)
    try:
        landed.begin()
        yield landed, broker
    finally:
        landed.one.close()


@pytest.fixture
def landed(new_landed: tuple[Landed, EmbeddedKafka]) -> Landed:
    return new_landed[0]


def test_database_restored_to_an_earlier_time(landed: Landed) -> None:
    landed.stop("extractor")
    landed.restored.back_up()
    landed.start("extractor")
    landed.work()
    landed.wait_until_equal()
    before = landed.gsn()
    landed.stop("extractor")
    landed.restored.restore()
    landed.work()
    landed.start("extractor")
    error = landed.wait_for_error("extractor", "IncarnationError")
    assert "reset" in error["hint"]
    landed.one.reset()
    landed.work()
    landed.wait_until_equal()
    assert landed.gsn() > before


@pytest.mark.long
def test_reset_without_a_reason(landed: Landed) -> None:
    before = landed.gsn()
    for _ in range(2):
        landed.work()
        landed.one.reset()
        landed.work()
        landed.wait_until_equal()
    assert landed.gsn() > before


@pytest.mark.long
def test_replication_slot_dropped(landed: Landed) -> None:
    landed.stop("extractor")
    landed.work()
    landed.database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    landed.start("extractor")
    error = landed.wait_for_error("extractor", "LogGapError")
    assert "reset" in error["hint"]
    landed.one.reset()
    landed.wait_until_equal()


@pytest.mark.long
def test_source_taken_out_of_its_group_reset_and_put_back(landed: Landed) -> None:
    fleet = landed.one.fleet
    other = f"{landed.source}-other"
    beside = Database(landed.restored.server)
    beside.execute("CREATE TABLE v (id int PRIMARY KEY)")
    fleet.add_source(other, "postgres", source_config(beside, tables=["public.*"]))
    fleet.extractor(other)
    landed.stop("extractor", "merger")
    fleet.change_group(sources=[other])
    landed.start("merger")
    fleet.wait_for_status(landed.one.services["merger"], "running", lambda s: s["state"] == "running")
    landed.work()
    landed.one.reset()
    landed.work()
    landed.stop("merger")
    fleet.change_group(sources=[other, *fleet.sources])
    landed.start("merger")
    landed.work()
    landed.wait_until_equal()


@pytest.mark.long
def test_changes_deleted_before_they_were_released(landed: Landed) -> None:
    landed.stop("merger")
    landed.work()
    landed.stop("extractor")
    landed.delete_topic(topics.changes(landed.source))
    landed.start("merger")
    error = landed.wait_for_error("merger", "TopicError")
    assert "source reset" in error["hint"]
    landed.one.reset()
    landed.command("group", "retry", landed.group)
    landed.work()
    landed.wait_until_equal()


@pytest.mark.long
def test_records_of_changes_deleted_before_they_were_released(landed: Landed) -> None:
    landed.stop("merger")
    landed.work()
    time.sleep(1)
    landed.delete_records(topics.changes(landed.source))
    landed.start("merger")
    error = landed.wait_for_error("merger", "DataGoneError")
    assert "source reset" in error["hint"]
    landed.one.reset()
    landed.command("group", "retry", landed.group)
    landed.work()
    landed.wait_until_equal()


@pytest.mark.long
def test_positions_topic_deleted(landed: Landed) -> None:
    landed.stop("extractor")
    landed.delete_topic(topics.positions(landed.source))
    landed.work()
    landed.start("extractor")
    landed.work()
    landed.wait_until_equal()


def test_progress_topic_deleted(landed: Landed) -> None:
    landed.stop("merger")
    landed.delete_topic(topics.progress(landed.group))
    landed.work()
    landed.start("merger")
    error = landed.wait_for_error("merger", "ProgressLostError")
    assert "--rebuild-progress" in error["hint"]
    landed.stop("merger")
    landed.command("--group", landed.group, "--rebuild-progress", module="lowwater_merger")
    landed.start("merger")
    landed.work()
    landed.wait_until_equal()


@pytest.mark.long
def test_ledger_topic_deleted(landed: Landed) -> None:
    landed.stop("spark", "extractor")
    landed.delete_topic(topics.ledger(landed.group))
    landed.start("spark", "extractor")
    landed.work()
    landed.wait_until_equal()


@pytest.mark.long
def test_lake_prefix_deleted(landed: Landed) -> None:
    landed.stop("spark")
    shutil.rmtree(landed.one.fleet.directory / "lake")
    landed.one.use_lake(landed.one.fleet.directory / "lake")
    landed.work()
    landed.start("spark")
    landed.wait_until_equal()


@pytest.mark.long
def test_ordered_topic_deleted(landed: Landed) -> None:
    """The group must never write gsn 1 again: its progress says how far it was."""
    landed.stop("merger", "spark")
    before = landed.gsn()
    landed.delete_topic(topics.transactions(landed.group))
    landed.one.use_lake(landed.one.fleet.directory / "second")
    landed.start("merger", "spark")
    landed.work()
    landed.wait_until_equal()
    assert landed.gsn() > before


@pytest.mark.long
def test_kafka_lost_with_its_data(new_landed: tuple[Landed, EmbeddedKafka]) -> None:
    landed, broker = new_landed
    landed.stop("extractor", "merger", "spark")
    broker.stop()
    shutil.rmtree(broker.directory / "data")
    broker.start()
    landed.one.use_lake(landed.one.fleet.directory / "second")
    landed.work()
    landed.command("source", "reset", landed.source, "--yes", "--reason", "Kafka was lost")
    landed.start("extractor", "merger", "spark")
    landed.work()
    landed.wait_until_equal()
