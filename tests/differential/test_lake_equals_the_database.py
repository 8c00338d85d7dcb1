"""Random workloads on real databases: the lake holds what the database holds, at every gsn, or says that it cannot.

`LOWWATER_SEED=n` runs one of them again, `LOWWATER_STATEMENTS=n` makes it longer. See README.md.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.differential.drive import Driver, Plan, seed_of_run
from tests.differential.servers import KINDS, Servers
from tests.support.harness import skip_without_spark
from tests.support.server_versions import record

SHORT = Plan(statements=80, check_every=20, versions=6, shrink_seconds=300)
#: files are merged, and history older than some minutes is folded: what that gives must be equal, too
KEPT = {"compact_seconds": 20, "retention_hours": 0.1, "grace_hours": 0.05}
#: a landing takes seconds, however much it lands: seldom, and then many versions are compared
LONG = Plan(statements=20_000, check_every=200, versions=24, fleet_share=0.01, lake=KEPT, shrink_seconds=1800)


def _drive(kind: str, plan: Plan, default: int, kafka: EmbeddedKafka, directory: Path, servers: Servers) -> None:
    skip_without_spark()
    statements = int(os.environ.get("LOWWATER_STATEMENTS") or plan.statements)
    seconds = float(os.environ.get("LOWWATER_SHRINK_SECONDS") or plan.shrink_seconds)
    plan = replace(plan, statements=statements, shrink_seconds=seconds)
    driver = Driver(directory, kafka.bootstrap_servers, lambda: servers.open(kind))
    driver.drive(seed_of_run(default), plan)
    record("differential", kind, driver.version)


#: a run takes a minute: the oldest servers only with the long tests
LATER = {"postgres14", "mysql-8.0", "mariadb-10.11"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.long if k in LATER else ()) for k in KINDS])
def test_lake_equals_the_database_after_a_short_random_workload(
    kind: str, kafka: EmbeddedKafka, tmp_path: Path, servers: Servers
) -> None:
    _drive(kind, SHORT, 1, kafka, tmp_path, servers)


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("kind", KINDS)
def test_lake_equals_the_database_after_a_long_random_workload(
    kind: str, kafka: EmbeddedKafka, tmp_path: Path, servers: Servers
) -> None:
    _drive(kind, LONG, time.time_ns() % 1_000_000, kafka, tmp_path, servers)
