"""Shared dependencies of the routes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from fastapi import Depends, Query, Request

from lowwater.control.commands import SOURCE, Change
from lowwater.control.desired_state import WantedFleet
from lowwater.control.fold import ControlState
from lowwater.records.schemas import SchemaStore
from lowwater_control.auth import Caller
from lowwater_control.models import Accepted
from lowwater_control.problems import unknown
from lowwater_control.stores.control_store import ControlStore
from lowwater_control.stores.extractor_rpc import ExtractorProgram

_log = structlog.get_logger()


@dataclass(slots=True)
class Parts:
    control: ControlStore
    store: SchemaStore
    program: ExtractorProgram
    lakes: Any


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


UseParts = Annotated[Parts, Depends(_parts)]
UseCaller = Annotated[Caller, Depends(_caller)]
Limit = Annotated[int, Query(ge=1, le=1000)]
ReasonQuery = Annotated[str, Query(max_length=1000, description="why; is recorded")]


def known_source(fleet: WantedFleet, name: str) -> None:
    if name not in fleet.sources:
        raise unknown("source", name, fleet.sources)


def known_group(fleet: WantedFleet, name: str) -> None:
    if name not in fleet.groups:
        raise unknown("group", name, fleet.groups)


def send(parts: Parts, caller: Caller, kind: str, name: str, change: Change) -> Accepted:
    """Write a command for an existing source or group. Raises UnknownError if there is none with this name."""

    def check(fleet: WantedFleet, _last: ControlState) -> None:
        (known_source if kind == SOURCE else known_group)(fleet, name)

    state = parts.control.commit(kind, name, change, check)
    return accepted(caller, state)


def accepted(caller: Caller, state: ControlState) -> Accepted:
    command = state.control
    _log.info(
        "command", who=caller.name, kind=command.kind, name=command.name, wanted=command.wanted.value,
        reason=command.reason, version=state.version,
    )  # fmt: skip
    return Accepted(name=command.name, wanted=command.wanted.value, version=state.version, reason=command.reason)
