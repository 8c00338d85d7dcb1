"""The desired state of the fleet: the config file, overridden by the control topic. Pure.

The config of a source in the control topic contains its group, so that a source is added to its group atomically, with
one record. Configs contain references to secrets, never values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from lowwater.control.commands import GROUP, SOURCE
from lowwater.control.fold import ControlFold
from lowwater.errors import ConfigError
from lowwater.records.types import Wanted
from lowwater.runtime.config import GroupConfig, GroupSettings, Name, Settings, SourceConfig
from lowwater.runtime.secrets import check_reference, check_url, redacted

M = TypeVar("M", bound=BaseModel)


class SourceSpec(SourceConfig):
    """The config of a source in the control topic."""

    group: Name | None = Field(
        default=None, description="the group that merges its changes; none: they stay in its own topic"
    )


@dataclass(frozen=True, slots=True)
class WantedFleet:
    """The desired state. `settings` is for the services and has only groups with sources; `groups` has all groups."""

    settings: Settings
    sources: dict[str, SourceSpec]
    groups: dict[str, GroupSettings]

    def shown(self, source: str) -> SourceSpec:
        """The config of a source without values of secrets."""
        spec = self.sources[source]
        return spec.model_copy(update={"config": shown(spec.config)})

    def group_of(self, source: str) -> str | None:
        return self.sources[source].group

    def sources_of(self, group: str) -> list[str]:
        return [name for name, spec in self.sources.items() if spec.group == group]


def to_json(spec: BaseModel) -> str:
    """JSON for the control topic: only fields that were set, so that others follow changed defaults."""
    return json.dumps(spec.model_dump(mode="json", exclude_unset=True), separators=(",", ":"), sort_keys=True)


def parse(model: type[M], raw: str, what: str) -> M:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise ConfigError(
            f"the config of {what} in the control topic is not valid in this version: " + "; ".join(lines),
            hint="upgrade the readers first, or PUT its config again",
        ) from None


def wanted_fleet(settings: Settings, fold: ControlFold) -> WantedFleet:
    sources: dict[str, SourceSpec] = {}
    in_file = {s: name for name, group in settings.groups.items() for s in group.sources}
    for name, config in settings.sources.items():
        spec = SourceSpec(**config.model_dump(exclude_unset=True), group=in_file.get(name))
        sources[name] = spec
    groups: dict[str, GroupSettings] = {
        name: GroupSettings(**group.model_dump(exclude_unset=True, exclude={"sources"}))
        for name, group in settings.groups.items()
    }
    for (kind, name), state in fold.states.items():
        model, where = (SourceSpec, sources) if kind == SOURCE else (GroupSettings, groups)
        if state.control.wanted is Wanted.REMOVED:
            where.pop(name, None)
        elif state.control.config:
            where[name] = parse(model, state.control.config, f"{kind} {name}")  # type: ignore[assignment]
    sources = dict(sorted(sources.items()))
    return WantedFleet(_settings(settings, sources, groups), sources, dict(sorted(groups.items())))


def _settings(settings: Settings, sources: Mapping[str, SourceSpec], groups: Mapping[str, GroupSettings]) -> Settings:
    members: dict[str, list[str]] = {}
    for name, spec in sources.items():
        if spec.group is not None:
            members.setdefault(spec.group, []).append(name)
    configs = {n: SourceConfig(**s.model_dump(exclude_unset=True, exclude={"group"})) for n, s in sources.items()}
    grouped = {
        name: GroupConfig(**group.model_dump(exclude_unset=True), sources=members[name])
        for name, group in sorted(groups.items())
        if name in members
    }
    return settings.model_copy(update={"sources": configs, "groups": grouped})


def check_secrets(data: Any, path: str = "") -> list[tuple[str, str]]:
    """Fields of a config that contain a secret's value instead of a reference: (field, what is wrong)."""
    found: list[tuple[str, str]] = []
    if isinstance(data, Mapping):
        for name, value in data.items():
            here = f"{path}.{name}" if path else str(name)
            if isinstance(value, str):
                try:
                    check_url(check_reference(str(name), value))
                except ValueError as error:
                    found.append((here, str(error)))
            else:
                found += check_secrets(value, here)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            found += check_secrets(value, f"{path}.{number}")
    return found


def shown(data: Any, name: str = "") -> Any:
    """A config for display, without values of secrets: a config file may contain some, which the API would refuse."""
    if isinstance(data, Mapping):
        return {key: shown(value, str(key)) for key, value in data.items()}
    if isinstance(data, list):
        return [shown(value, name) for value in data]
    return redacted(name, data) if isinstance(data, str) else data


def services_of(fleet: WantedFleet, fold: ControlFold) -> dict[tuple[str, str], bool]:
    """(service, source or group) → whether it is to run."""
    found: dict[tuple[str, str], bool] = {}
    for source in fleet.settings.sources:
        found[("extractor", source)] = not fold.get(SOURCE, source).control.wanted.is_at_rest
    for name, group in fleet.settings.groups.items():
        is_up = not fold.get(GROUP, name).control.wanted.is_at_rest
        found[("merger", name)] = is_up
        if group.lake is not None:
            found[("spark", name)] = is_up
    return found
