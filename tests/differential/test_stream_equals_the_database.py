"""Random workloads on real databases: what the source alone says is what the database holds. See README.md."""

from __future__ import annotations

import os
import time

import pytest

from lowwater_devkit.servers.mysql_install import FLAVOURS
from tests.differential.drive import seed_of_run
from tests.differential.servers import Servers
from tests.differential.stream_run import run_stream
from tests.support.server_versions import record

#: kinds whose streams are read so
KINDS = FLAVOURS


def _run(kind: str, statements: int, default_seed: int, servers: Servers) -> None:
    seed = seed_of_run(default_seed)
    statements = int(os.environ.get("LOWWATER_STATEMENTS") or statements)
    print(f"LOWWATER_SEED={seed}", flush=True)
    opened = servers.open(kind)
    try:
        version = opened.version()
        print(run_stream(opened, seed, statements), flush=True)
    finally:
        opened.close()
    record("differential", kind, version)


@pytest.mark.parametrize("kind", KINDS)
def test_stream_equals_the_database_after_a_short_random_workload(kind: str, servers: Servers) -> None:
    _run(kind, 250, 1, servers)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("kind", KINDS)
def test_stream_equals_the_database_after_a_long_random_workload(kind: str, servers: Servers) -> None:
    _run(kind, 20_000, time.time_ns() % 1_000_000, servers)
