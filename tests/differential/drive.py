"""A seeded run on a new database with a new fleet; when it fails, its steps are shrunk on others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lowwater.errors import LowwaterError
from tests.differential.fleet import OneSource, new_name
from tests.differential.run import DifferentialError, Report, Run, replay
from tests.differential.shrink import shrink
from tests.differential.workload import FLEET_SHARE, Kind, Step, shown

#: a new database of a kind, with nothing in it
OpenKind = Callable[[], Kind]


@dataclass(frozen=True)
class Plan:
    statements: int
    #: steps between two comparisons
    check_every: int
    #: older gsns that each comparison looks at
    versions: int
    fleet_share: float = FLEET_SHARE
    #: settings of the lake
    lake: Mapping[str, Any] = field(default_factory=dict)
    #: how long a failed run is shrunk
    shrink_seconds: float = 600.0


def seed_of_run(default: int) -> int:
    return int(os.environ.get("LOWWATER_SEED") or default)


class Driver:
    def __init__(self, directory: Path, bootstrap_servers: str, open_kind: OpenKind) -> None:
        self._directory, self._bootstrap = directory, bootstrap_servers
        self._open_kind = open_kind
        #: of the server that the last run was on
        self.version = ""

    @contextmanager
    def _run(self, seed: int, lake: Mapping[str, Any]) -> Iterator[Run]:
        kind = self._open_kind()
        self.version = kind.version()
        kind.set_up()
        name = new_name()
        fleet = OneSource(self._directory / name, self._bootstrap, name, kind.source_kind, kind.config(), lake)
        try:
            fleet.start()
            yield Run(kind, fleet, seed)
        finally:
            fleet.close()
            kind.close()

    def drive(self, seed: int, plan: Plan) -> Report:
        """Raises with the seed, the steps and the shrunk steps."""
        print(f"LOWWATER_SEED={seed}", flush=True)
        with self._run(seed, plan.lake) as run:
            try:
                run.begin()
                run.go(run.chosen(plan.statements, plan.fleet_share), plan.check_every, plan.versions)
            except (DifferentialError, LowwaterError) as error:
                failure = error
            else:
                print(run.report, flush=True)
                return run.report
            print(run.report, flush=True)
        steps = run.steps
        said = f"LOWWATER_SEED={seed}: {failure}\n"
        print(f"{said}\nsteps:\n{shown(steps)}", flush=True)
        few = self.shrunk(steps, failure, plan)
        pytest.fail(f"{said}{len(few)} of {len(steps)} steps fail so, too:\n{shown(few)}", pytrace=False)

    def shrunk(self, steps: Sequence[Step], failure: Exception, plan: Plan) -> list[Step]:
        category = category_of(failure)
        deadline = time.monotonic() + plan.shrink_seconds

        def fails(some: Sequence[Step]) -> bool:
            found = self.outcome(some, plan.versions * 4, plan.lake)
            print(f"shrink: {len(some)} steps: {found or 'equal'}"[:300], flush=True)
            return category_of(found) == category

        # mostly the steps that name the table are enough
        bare = failure.table.rpartition(".")[2] if isinstance(failure, DifferentialError) else ""
        about = [step for step in steps if step.action or bare in str(step.statements)]
        if bare and len(about) < len(steps) and fails(about):
            steps = about
        return shrink(steps, fails, deadline - time.monotonic())

    def outcome(self, steps: Sequence[Step], versions: int, lake: Mapping[str, Any]) -> Exception | None:
        """Of these steps on a new database."""
        with self._run(0, lake) as run:
            try:
                replay(run, steps, versions)
            except (AssertionError, LowwaterError) as error:
                return error
        return None


def category_of(error: Exception | None) -> str:
    if error is None:
        return ""
    return error.category if isinstance(error, DifferentialError) else type(error).__name__
