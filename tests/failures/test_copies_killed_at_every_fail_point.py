"""`kill -9` of Spark at each step of a copy, and a predecessor that was only paused: nothing twice, nothing lost."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lowwater.lake import Lake
from lowwater.lake.chain.manifest import ATTEMPTS, Layer, ManifestKind
from lowwater.lake.read.verify import verify
from lowwater.runtime.failpoints import FAIL_POINTS
from lowwater.runtime.times import now_us
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_devkit.servers.postgres_install import VERSION_NEWEST
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_spark.maintenance.sweep import sweep
from tests.support.bank_topic import until
from tests.support.copied_group import CopiedGroup
from tests.support.harness import skip_without_spark
from tests.support.postgres import Database

POINTS = [name for name in FAIL_POINTS if name.startswith("copy.")]
KILLED = -9
ROWS, CHUNKS = 900, 3


@pytest.fixture
def group(
    kafka: EmbeddedKafka, postgres_servers: Callable[[int], EmbeddedPostgres], tmp_path: Path, unique: str
) -> Iterator[CopiedGroup]:
    skip_without_spark()
    database = Database(postgres_servers(VERSION_NEWEST))
    made = CopiedGroup(tmp_path, kafka.bootstrap_servers, unique, database)
    yield made
    made.close()
    database.drop()


def _plan(group: CopiedGroup, number: int) -> None:
    """A new table, and a copy of it."""
    group.database.execute(
        f"CREATE TABLE t{number} (id int8 PRIMARY KEY, v text);"
        f"INSERT INTO t{number} SELECT n, repeat('x', 100) || n FROM generate_series(1, {ROWS}) n; ANALYZE t{number}"
    )
    assert len(group.plan(f"public.t{number}", f"c{number}", ROWS // CHUNKS)) == CHUNKS


def _wait_for_all(group: CopiedGroup) -> None:
    wanted = {(chunk.copy, chunk.chunk) for chunk in group.planned}
    until(lambda: set(group.landed_chunks()) >= wanted, 120, group.log())
    until(lambda: {(copy, chunk) for _, copy, chunk in group.mirrored_chunks()} >= wanted, 60, group.log())


def _check(group: CopiedGroup, tables: int) -> None:
    """Every chunk once, every row once; what was left behind goes, and nothing else."""
    assert Counter(group.landed_chunks()) == Counter((chunk.copy, chunk.chunk) for chunk in group.planned)
    for number in range(tables):
        group.copied(f"c{number}")
    service = group.start()
    until(lambda: group.chain().head.gsn >= group.topic.gsn, 120, group.log())
    service.stop()
    lake = Lake.open(group.lake)
    for number in range(tables):
        found = lake.at().state(f"t{number}").arrow().sort_by("id")
        assert found.equals(group.table(f"public.t{number}").streamed("id")), number
    config = group.settings.group(group.name).lake
    assert config is not None
    chain = group.chain()
    live = {file.path for manifest in group.manifests(ManifestKind.COPY) for file in manifest.files}
    sweep(chain, config, now_us() + 2 * 3600 * 10**6)
    assert {stored.path for stored in chain.store.list(Layer.COPY)} == live
    assert not list(chain.store.list(ATTEMPTS))
    assert not list(verify(chain.store))


@pytest.mark.timeout(900)
def test_killed_around_the_manifest_of_a_copy(group: CopiedGroup) -> None:
    _kill_at(group, ["copy.manifest_created"])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_every_fail_point_of_a_copy(group: CopiedGroup) -> None:
    _kill_at(group, POINTS)


def _kill_at(group: CopiedGroup, points: list[str]) -> None:
    for number, point in enumerate(points):
        _plan(group, number)
        service = group.start(LOWWATER_FAIL_AT=point)
        assert service.wait(120) == KILLED, f"{point}: {group.log()}"
    service = group.start()
    _wait_for_all(group)
    until(lambda: (service.status() or {}).get("copies", {}).get("state") == "idle", 30, str(service.status()))
    service.stop()
    _check(group, len(points))


@pytest.mark.long
def test_a_paused_copy_that_wakes_up_lands_nothing_twice(group: CopiedGroup) -> None:
    _plan(group, 0)
    paused = group.start(LOWWATER_STOP_AT="copy.files_written")
    assert paused.process is not None
    stopped = Path(f"/proc/{paused.process.pid}/stat")
    until(lambda: stopped.read_text().rpartition(")")[2].split()[0] == "T", 120, group.log())
    second = group.start()
    _wait_for_all(group)
    os.kill(paused.process.pid, signal.SIGCONT)
    # the landing of the first one has been fenced
    assert paused.wait(60) == 3, group.log()
    second.stop()
    _check(group, 1)
