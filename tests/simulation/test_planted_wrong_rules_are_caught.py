"""Tests of the checker: each wrong rule, planted on purpose, is caught within a few hundred seeds."""

from __future__ import annotations

import pytest
from tests.simulation.schedule import SimulationError
from tests.simulation.simulate import simulate
from tests.simulation.wrong_rules import WRONG_RULES, WrongRule

SEEDS_MAX = 300


@pytest.mark.parametrize("rule", WRONG_RULES, ids=lambda rule: rule.test_name)
def test_the_checker_catches(rule: WrongRule, monkeypatch: pytest.MonkeyPatch) -> None:
    rule.plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            simulate(seed, lwn_scn_is_mark=rule.lwn_scn_is_mark)
        except SimulationError as caught:
            print(f"{rule.test_name}: {caught}")
            return
    pytest.fail(f"{rule.test_name} passed {SEEDS_MAX} seeds: the checker does not see it")
