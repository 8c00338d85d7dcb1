"""`/v1/groups`: configs, status, commands and released transactions of groups."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response

from lowwater.control import commands
from lowwater.control.commands import GROUP
from lowwater.control.desired_state import WantedFleet, to_json
from lowwater.control.fold import ControlState
from lowwater.records.types import Skip, Wanted
from lowwater.runtime.config import GroupSettings
from lowwater.runtime.times import now_us
from lowwater.status.fleet_status import describe_group
from lowwater_control import models
from lowwater_control.dependencies import Limit, Parts, ReasonQuery, UseCaller, UseParts, accepted, known_group, send
from lowwater_control.problems import ConflictError, UnknownError, responses
from lowwater_control.routes.sources import NO_REASON, Why
from lowwater_control.source_specs import check_name
from lowwater_control.stores.ordered_topic import OrderedReader, applied_commands

router = APIRouter(prefix="/v1/groups", tags=["groups"])

GROUP_EXAMPLE = {"lake": {"uri": "s3://bucket/bank"}, "retention_hours": 168}
SettingsBody = Annotated[GroupSettings, Body(openapi_examples={"with a lake": {"value": GROUP_EXAMPLE}})]


def status_of(parts: Parts, name: str) -> dict[str, Any]:
    known_group(parts.control.fleet(), name)
    return parts.control.look(lambda fleet, fold, statuses: describe_group(fleet, fold, statuses, name, now_us()))


@router.get("", responses=responses())
def list_groups(parts: UseParts) -> list[str]:
    return list(parts.control.fleet().groups)


@router.get("/{name}/status", responses=responses(404))
def get_status(name: str, parts: UseParts) -> models.GroupStatus:
    """The watermark, the source and thread that hold it, waiting transactions, the last gsn, the lag."""
    return models.GroupStatus(**status_of(parts, name))


@router.get("/{name}/config", responses=responses(404), response_model_exclude_unset=True)
def get_config(name: str, parts: UseParts) -> GroupSettings:
    fleet = parts.control.fleet()
    known_group(fleet, name)
    return fleet.groups[name]


@router.put("/{name}/config", responses={201: {"model": models.Accepted}, **responses(409)})
def put_config(
    name: str, settings: SettingsBody, parts: UseParts, caller: UseCaller, response: Response
) -> models.Accepted:
    """Change the config, or create the group (201). Its sources are not set here: each source's config names its
    group."""
    check_name(name)
    before = parts.control.fleet().groups.get(name)
    if before is not None and to_json(before) == to_json(settings):
        return accepted(caller, parts.control.state(GROUP, name))
    if before is None:
        response.status_code = 201
        response.headers["Location"] = f"/v1/groups/{name}/status"
    reason = "made" if before is None else "its config was changed"
    return accepted(caller, parts.control.commit(GROUP, name, commands.configure(to_json(settings), reason)))


@router.delete("/{name}", status_code=204, responses=responses(404, 409))
def remove_group(name: str, parts: UseParts, caller: UseCaller, reason: ReasonQuery = "") -> None:
    """Remove a group that has no sources. Its topics and its lake are retained."""

    def check(fleet: WantedFleet, _last: ControlState) -> None:
        known_group(fleet, name)
        if sources := fleet.sources_of(name):
            raise ConflictError(f"{name} has the sources {', '.join(sources)}", hint="remove or move them first")

    accepted(caller, parts.control.commit(GROUP, name, commands.remove(reason), check))


# -- commands --------------------------------------------------------------------------------------------


@router.put("/{name}/pause", status_code=202, responses=responses(404, 409))
def pause(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Stop releasing transactions until the group is resumed."""
    return send(parts, caller, GROUP, name, commands.want(Wanted.PAUSED, why.reason))


@router.put("/{name}/resume", status_code=202, responses=responses(404, 409))
def resume(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    return send(parts, caller, GROUP, name, commands.want(Wanted.RUNNING, why.reason))


@router.put("/{name}/stop", status_code=202, responses=responses(404, 409))
def stop(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Stop the group's merger and its landing."""
    return send(parts, caller, GROUP, name, commands.want(Wanted.STOPPED, why.reason))


@router.post("/{name}/restart", status_code=202, responses=responses(404, 409))
def restart(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Restart the sessions of the merger and the landing, from their state in Kafka and in the lake."""
    return send(parts, caller, GROUP, name, commands.restart(uuid.uuid4().hex[:12], why.reason))


@router.post("/{name}/retry", status_code=202, responses=responses(404, 409))
def retry(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Read sources again that the merger stopped, after their error was fixed."""
    return send(parts, caller, GROUP, name, commands.retry(why.reason))


@router.post("/{name}/skips", status_code=202, responses=responses(404, 409))
def skip(name: str, new: models.NewSkip, parts: UseParts, caller: UseCaller) -> models.Accepted:
    """Skip one transaction. A `Skipped` record with the reason is released in its place."""
    fleet = parts.control.fleet()
    known_group(fleet, name)
    if new.source not in fleet.sources_of(name):
        known = ", ".join(fleet.sources_of(name)) or "none"
        raise UnknownError(f"{name} has no source {new.source!r}", hint=f"known: {known}")
    command = Skip(new.source, new.thread, new.txid, new.reason, uuid.uuid4().hex[:12], new.position)
    return send(parts, caller, GROUP, name, commands.skip(command))


@router.get("/{name}/commands", responses=responses(404))
def list_commands(name: str, parts: UseParts) -> list[dict[str, Any]]:
    """The operator commands, newest first, each with the gsn at which it took effect."""
    known_group(parts.control.fleet(), name)
    return applied_commands(parts.control.settings.kafka, parts.control.codec, name)


@router.get("/{name}/words", deprecated=True, responses=responses(404))
def list_words(name: str, parts: UseParts) -> list[dict[str, Any]]:
    """The former name of `/commands`: `word` is what is `command` there."""
    return [{"word": one["command"], **one} for one in list_commands(name, parts)]


# -- released transactions -------------------------------------------------------------------------------

Gsn = Annotated[int, Path(ge=1, le=2**63 - 1)]


def _ordered(parts: Parts, name: str) -> OrderedReader:
    known_group(parts.control.fleet(), name)
    return OrderedReader(parts.control.settings.kafka, parts.control.codec, parts.store, name)


@router.get("/{name}/transactions", tags=["transactions"], responses=responses(404))
def list_transactions(
    name: str,
    parts: UseParts,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="only transactions below this gsn")] = None,
) -> list[models.TransactionHead]:
    """The last released transactions, newest first."""
    with _ordered(parts, name) as reader:
        return reader.last(limit, before)


@router.get("/{name}/transactions/{gsn}", tags=["transactions"], responses=responses(404))
def get_transaction(
    name: str,
    gsn: Gsn,
    parts: UseParts,
    limit: Limit = 200,
    after_seq: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
) -> models.Transaction:
    """One transaction with its changes."""
    with _ordered(parts, name) as reader:
        found = reader.open(gsn, limit, after_seq)
    spec = parts.control.fleet().sources.get(found.source)
    found.masked = sorted(spec.columns.mask) if spec else []
    return found
