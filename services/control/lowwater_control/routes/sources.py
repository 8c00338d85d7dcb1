"""`/v1/sources`: configs, status, commands and positions of sources, similar to the API of Kafka Connect."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from lowwater.control import commands
from lowwater.control.commands import GROUP, SOURCE
from lowwater.control.desired_state import SourceSpec, WantedFleet, to_json
from lowwater.control.fold import ControlState
from lowwater.records.types import Exclusion, Position, Wanted
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater.status.fleet_status import describe_source
from lowwater_control import models
from lowwater_control.dependencies import Parts, ReasonQuery, UseCaller, UseParts, accepted, known_source, send
from lowwater_control.problems import ConflictError, UnknownError, responses
from lowwater_control.source_specs import check_change, check_spec
from lowwater_control.stores.positions import move_effects, read_position, reset_effects, shown

router = APIRouter(prefix="/v1/sources", tags=["sources"])

Why = Annotated[models.Why, Body()]
NO_REASON = models.Why()
SpecBody = Annotated[SourceSpec, Body(openapi_examples={"postgres": {"value": models.SPEC_EXAMPLE}})]


def status_of(parts: Parts, name: str) -> dict[str, Any]:
    known_source(parts.control.fleet(), name)
    return parts.control.look(lambda fleet, fold, statuses: describe_source(fleet, fold, statuses, name, now_us()))


@router.get("", responses=responses(), response_model=list[str] | dict[str, models.Expanded])
def list_sources(
    parts: UseParts,
    expand: Annotated[list[str] | None, Query(description="status or config; repeated, or separated by commas")] = None,
) -> Any:
    """The names of all sources; with `expand`, a mapping of each name to its status or config."""
    fleet = parts.control.fleet()
    wanted = {name for part in expand or [] for name in part.split(",")}
    if not wanted & {"status", "config"}:
        return list(fleet.sources)
    found: dict[str, dict[str, Any]] = {}
    for name in fleet.sources:
        found[name] = {"config": fleet.shown(name) if "config" in wanted else None}
        if "status" in wanted:
            found[name]["status"] = status_of(parts, name)
    return found


@router.post("", status_code=201, responses=responses(409))
def add_source(new: models.NewSource, parts: UseParts, caller: UseCaller, response: Response) -> models.Accepted:
    """Add a source. A runner starts its extractor, and it joins its group."""
    check_spec(parts, new.name, new.config, "config")

    def check(fleet: WantedFleet, _last: ControlState) -> None:
        if new.name in fleet.sources:
            raise ConflictError(f"source {new.name!r} already exists", hint="PUT its config to change it")

    state = parts.control.commit(SOURCE, new.name, commands.configure(to_json(new.config), "added"), check)
    response.headers["Location"] = f"/v1/sources/{new.name}"
    return accepted(caller, state)


@router.get("/{name}", responses=responses(404))
def get_source(name: str, parts: UseParts) -> models.Source:
    fleet = parts.control.fleet()
    known_source(fleet, name)
    return models.Source(name=name, config=fleet.shown(name), status=models.SourceStatus(**status_of(parts, name)))


@router.get("/{name}/config", responses=responses(404), response_model_exclude_unset=True)
def get_config(name: str, parts: UseParts) -> SourceSpec:
    """The config as it was written, with references to secrets instead of their values."""
    fleet = parts.control.fleet()
    known_source(fleet, name)
    return fleet.shown(name)


@router.put("/{name}/config", responses={201: {"model": models.Accepted}, **responses(404, 409)})
def put_config(name: str, spec: SpecBody, parts: UseParts, caller: UseCaller, response: Response) -> models.Accepted:
    """Change the config, or add the source (201). Idempotent."""
    check_spec(parts, name, spec, "")
    fleet = parts.control.fleet()
    before = fleet.sources.get(name)
    if before is not None:
        check_change(name, before, spec)
        if to_json(before) == to_json(spec):
            return accepted(caller, parts.control.state(SOURCE, name))
    else:
        response.status_code = 201
        response.headers["Location"] = f"/v1/sources/{name}"
    reason = "added" if before is None else "its config was changed"
    return accepted(caller, parts.control.commit(SOURCE, name, commands.configure(to_json(spec), reason)))


@router.delete("/{name}", status_code=204, responses=responses(404, 409))
def remove_source(name: str, parts: UseParts, caller: UseCaller, reason: ReasonQuery = "") -> None:
    """Remove a source: its extractor stops, and it leaves its group. Its topics are retained; if it is added again, it
    continues where it was."""
    send(parts, caller, SOURCE, name, commands.remove(reason))


@router.get("/{name}/status", responses=responses(404))
def get_status(name: str, parts: UseParts) -> models.SourceStatus:
    """The status of the source and its threads, with its error and hint if it failed."""
    return models.SourceStatus(**status_of(parts, name))


# -- running ---------------------------------------------------------------------------------------------


@router.put("/{name}/pause", status_code=202, responses=responses(404, 409))
def pause(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Stop reading its log. Its group waits for it."""
    return send(parts, caller, SOURCE, name, commands.want(Wanted.PAUSED, why.reason))


@router.put("/{name}/resume", status_code=202, responses=responses(404, 409))
def resume(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Continue reading its log, also after an error was fixed."""
    return send(parts, caller, SOURCE, name, commands.want(Wanted.RUNNING, why.reason))


@router.put("/{name}/stop", status_code=202, responses=responses(404, 409))
def stop(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Stop its extractor after the current batch."""
    return send(parts, caller, SOURCE, name, commands.want(Wanted.STOPPED, why.reason))


@router.post("/{name}/restart", status_code=202, responses=responses(404, 409))
def restart(name: str, parts: UseParts, caller: UseCaller, why: Why = NO_REASON) -> models.Accepted:
    """Restart its session: the previous session is fenced, and the position is read from Kafka."""
    return send(parts, caller, SOURCE, name, commands.restart(uuid.uuid4().hex[:12], why.reason))


# -- positions -------------------------------------------------------------------------------------------

DryRun = Annotated[bool, Query(description="only report the effects")]


@router.get("/{name}/positions", responses=responses(404))
def get_positions(name: str, parts: UseParts) -> models.Positions:
    """The position of each thread; no threads before the first start. `resume` and `mark` belong together."""
    known_source(parts.control.fleet(), name)
    position, _ = read_position(parts.control.settings.kafka, parts.control.codec, name)
    return shown(position or Position(name, "", 0, 0, None, ()))


@router.patch("/{name}/positions", responses=responses(404, 409, 424))
def patch_positions(
    name: str, patch: models.PositionsPatch, parts: UseParts, caller: UseCaller, dry_run: DryRun = False
) -> models.PositionsChanged:
    """Move threads to other positions. The source must be stopped."""
    known_source(parts.control.fleet(), name)
    position, _ = read_position(parts.control.settings.kafka, parts.control.codec, name)
    if position is None:
        raise UnknownError(f"{name} has no position yet", hint="it has not been started yet")
    effects = move_effects(position, patch.threads)
    if dry_run:
        return models.PositionsChanged(dry_run=True, effects=effects)
    threads = [place.model_dump() for place in patch.threads]
    return _change_position(parts, caller, name, {"do": "move", "threads": threads}, effects)


@router.delete("/{name}/positions", responses=responses(404, 409, 424))
def reset_positions(name: str, parts: UseParts, caller: UseCaller, dry_run: DryRun = False) -> models.PositionsChanged:
    """Delete the position: capture starts from scratch, and tables are copied again. The source must be stopped."""
    known_source(parts.control.fleet(), name)
    effects = reset_effects(*read_position(parts.control.settings.kafka, parts.control.codec, name))
    if dry_run:
        return models.PositionsChanged(dry_run=True, effects=effects)
    return _change_position(parts, caller, name, {"do": "reset"}, effects)


def _change_position(
    parts: Parts, caller: UseCaller, name: str, request: dict[str, Any], effects: list[str]
) -> models.PositionsChanged:
    if parts.control.state(SOURCE, name).control.wanted is not Wanted.STOPPED:
        raise ConflictError(f"{name} is not stopped", source=name, hint=f"PUT /v1/sources/{name}/stop first")
    settings = parts.control.fleet().settings.model_dump(mode="json")
    answer = parts.program.live({**request, "settings": settings, "name": name})
    fail_point("control.position_changed")
    # recorded in the control topic, as every command
    send(parts, caller, SOURCE, name, commands.retry("; ".join(effects)[:1000]))
    return models.PositionsChanged(dry_run=False, effects=effects, done=answer["done"])


# -- threads ---------------------------------------------------------------------------------------------


def _group_of(parts: Parts, name: str, thread: int) -> str:
    status = status_of(parts, name)
    if status["group"] is None:
        raise ConflictError(f"{name} is not in a group: no watermark depends on its threads", source=name)
    known = [t["thread"] for t in status["threads"]]
    if known and thread not in known:
        names = ", ".join(map(str, known))
        raise UnknownError(f"{name} has no thread {thread}", source=name, hint=f"known: {names}")
    return str(status["group"])


@router.post("/{name}/threads/{thread}/exclude", status_code=202, responses=responses(404, 409))
def exclude(name: str, thread: int, why: models.WhyGiven, parts: UseParts, caller: UseCaller) -> models.Accepted:
    """Exclude a thread from the watermark: the group no longer waits for it. If it later commits below the released
    order, that commit is late and stops the source."""
    group = _group_of(parts, name, thread)
    return send(parts, caller, GROUP, group, commands.exclude(Exclusion(name, thread, why.reason)))


@router.post("/{name}/threads/{thread}/include", status_code=202, responses=responses(404, 409))
def include(name: str, thread: int, why: models.WhyGiven, parts: UseParts, caller: UseCaller) -> models.Accepted:
    """Include the thread in the watermark again."""
    group = _group_of(parts, name, thread)
    return send(parts, caller, GROUP, group, commands.include(name, thread, why.reason))
