"""Extensions that other installed distributions register as entry points.

Groups: `lowwater.source_kinds` (the class of a source), `lowwater.commands` (a function: a command of `lowwater`),
`lowwater.examples` (a fleet for `lowwater up` without a config), `lowwater.doctor_checks` (a function: what it finds),
`lowwater.maintenance` (the work of `lowwater lake compact`).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lowwater.errors import ConfigError

SOURCE_KINDS = "lowwater.source_kinds"
COMMANDS = "lowwater.commands"
EXAMPLES = "lowwater.examples"
DOCTOR_CHECKS = "lowwater.doctor_checks"
MAINTENANCE = "lowwater.maintenance"


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, not loaded. ConfigError: two distributions register one name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            names = " and ".join(str(p.dist.name if p.dist else p.value) for p in (other, point))
            raise ConfigError(f"{names} both register {point.name} in {group}", hint="uninstall one of them")
    return found


def load_plugin(group: str, name: str) -> Any:
    """Return what an entry point names. ConfigError: it cannot be imported."""
    point = plugins(group)[name]
    try:
        return point.load()
    except Exception as error:
        raise ConfigError(
            f"{name} of {group} ({point.value}) cannot be loaded: {type(error).__name__}: {error}",
            hint="install its distribution again, with the version that fits this lowwater",
        ) from error
