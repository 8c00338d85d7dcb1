"""The plan of a runner: the services of the desired fleet, each with the part of the config that it needs. Pure.

The same plan is used for processes on one machine and for Deployments on Kubernetes. A service is restarted only if its
own part of the config has changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import yaml

from lowwater.control.desired_state import WantedFleet, services_of
from lowwater.control.fold import ControlFold
from lowwater.runtime.config import Settings

#: service → the option for its source or group
OPTIONS = {"extractor": "--source", "merger": "--group", "spark": "--group"}


@dataclass(frozen=True, slots=True)
class Planned:
    service: str
    #: the source or the group
    name: str
    is_up: bool
    #: hash of its part of the config: a different digest means a restart
    digest: str

    @property
    def key(self) -> str:
        return f"{self.service}-{self.name}"


def plan(fleet: WantedFleet, fold: ControlFold) -> dict[str, Planned]:
    found = {}
    for (service, name), is_up in services_of(fleet, fold).items():
        planned = Planned(service, name, is_up, _digest(part_of(fleet.settings, service, name)))
        found[planned.key] = planned
    return found


def part_of(settings: Settings, service: str, name: str) -> Settings:
    """The part of the config that one service needs: a source with its group, or a group with its sources."""
    if service == "extractor":
        groups = {g: group for g, group in settings.groups.items() if name in group.sources}
        # without the group's other sources: the extractor only needs the lake of its group
        groups = {g: group.model_copy(update={"sources": [name]}) for g, group in groups.items()}
        sources = {name: settings.sources[name]}
    else:
        groups = {name: settings.groups[name]}
        sources = {s: settings.sources[s] for s in settings.groups[name].sources}
    return settings.model_copy(update={"sources": sources, "groups": groups})


def config_text(settings: Settings) -> str:
    """The text of a config file. It contains references to secrets, not their values."""
    return yaml.safe_dump(_raw(settings), sort_keys=False)


def _raw(settings: Settings) -> dict[str, Any]:
    raw: dict[str, Any] = settings.model_dump(mode="json", exclude_none=True)
    return raw


def _digest(settings: Settings) -> str:
    raw = {name: value for name, value in _raw(settings).items() if name != "control"}
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:16]
