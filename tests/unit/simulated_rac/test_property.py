"""Random scripts, read in random pieces with random restarts, give exactly the cluster's own history."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.simulated_rac.shop import TABLES, Shop
from tests.unit.simulated_rac.test_kit import Runtime, check_all, run_script

from lowwater_devkit.simulated_rac.cluster import Cluster


@pytest.mark.parametrize("block", [*range(10), *(pytest.param(b, marks=pytest.mark.long) for b in range(10, 100))])
def test_any_script_is_read_exactly(tmp_path: Path, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run_script(directory, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(min_value=1 << 20, max_value=1 << 40), steps=st.integers(min_value=1, max_value=120))
def test_any_seed(tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int) -> None:
    run_script(tmp_path_factory.mktemp("rac"), seed, steps)


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_all_shapes_with_restarts(tmp_path: Path, seed: int) -> None:
    """Wide rows and long ones lie in pieces, which may be in several LWNs, with a restart in between."""
    rng = random.Random(seed)
    cluster = Cluster(
        tmp_path,
        2,
        tables=TABLES,
        log_bytes=60_000,
        lwn_bytes=rng.choice([2000, 20_000, 1 << 18]),
        migrate_bytes=rng.choice([0, 30, 100]),
        noise=rng.choice([0, 2, 5]),
    )
    shop = Shop(cluster, seed)
    for _ in range(rng.randrange(10)):
        shop.step()
    spill = rng.choice([0, 5000, 1 << 20])
    runtime = Runtime(tmp_path, read_bytes=rng.choice([4096, 1 << 20]), spill_bytes_max=spill, spill_directory=tmp_path)
    for _ in range(40):
        shop.step()
        for _ in range(rng.randrange(3)):
            runtime.poll(crash_after=rng.randrange(3) if rng.random() < 0.1 else None)
        if rng.random() < 0.1:
            runtime.restart()
    shop.finish()
    cluster.heartbeat()
    runtime.drain()
    runtime.stream.close()
    cluster.close()
    check_all(runtime, cluster.history)
