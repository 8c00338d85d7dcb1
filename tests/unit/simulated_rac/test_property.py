"""Random scripts, read in random pieces with random restarts, give exactly the cluster's own history."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.simulated_rac.test_kit import run_script


@pytest.mark.parametrize("block", range(10))
def test_any_script_is_read_exactly(tmp_path: Path, block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run_script(directory, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(min_value=1 << 20, max_value=1 << 40), steps=st.integers(min_value=1, max_value=120))
def test_any_seed(tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int) -> None:
    run_script(tmp_path_factory.mktemp("rac"), seed, steps)
