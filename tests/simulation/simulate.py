"""One seed, whole: its topics, several schedules over them, every promise checked."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.checker import check
from tests.simulation.order import make_group
from tests.simulation.schedule import Run, SimulationError

from lowwater.errors import LowwaterError

SCHEDULES = 3
#: a real spool on disk is slow: every so many seeds
DISK_EVERY = 20


def simulate(seed: int, directory: Path | None = None, *, lwn_scn_is_mark: bool = False) -> None:
    """Raises SimulationError, with the seed, if a promise is broken."""
    group = make_group(seed, lwn_scn_is_mark=lwn_scn_is_mark)
    for schedule in range(SCHEDULES):
        on_disk = directory if schedule == 1 and seed % DISK_EVERY == 0 else None
        run = Run(group, schedule, on_disk)
        try:
            run.run()
            check(group, run)
        except (SimulationError, LowwaterError) as error:
            raise SimulationError(
                f"seed {seed}, schedule {schedule}: {error}\nagain with: LOWWATER_SEED={seed} pytest tests/simulation"
            ) from error
