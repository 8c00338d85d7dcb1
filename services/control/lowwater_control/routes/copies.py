"""`/v1/sources/{name}/copies`, `tables` and `validate`, and `/v1/source-types`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter

from lowwater.control import commands
from lowwater.control.commands import SOURCE
from lowwater.records.types import CopyRequest, TableCopy
from lowwater_control import models
from lowwater_control.dependencies import Parts, ReasonQuery, UseCaller, UseParts, known_source, send
from lowwater_control.problems import ConflictError, UnknownError, responses
from lowwater_control.source_specs import check_kind, config_errors, refuse
from lowwater_control.stores.positions import read_position

router = APIRouter(prefix="/v1")


# -- copies ----------------------------------------------------------------------------------------------


def _state(copy: TableCopy, is_copying: bool) -> models.CopyState:
    if copy.is_cancelled:
        return "cancelled"
    return "readable" if copy.is_copied else "copying" if is_copying else "planned"


def shown_copies(
    copies: Sequence[TableCopy], requests: Sequence[CopyRequest], progress: Mapping[str, Mapping[str, Any]]
) -> list[models.Copy]:
    """The last copy of each table, by table name. `progress`: the progress reported by Spark, by copy id. Pure."""
    found: dict[str, models.Copy] = {}
    for copy in copies:
        at = progress.get(copy.copy, {})
        done = copy.chunks if copy.is_copied else at.get("chunks_done")
        figures: dict[str, Any] = {name: at.get(name) for name in ("rows", "rows_per_second", "seconds_left")}
        found[copy.table] = models.Copy(
            table=copy.table, state=_state(copy, bool(at)), copy_id=copy.copy, request=copy.request, chunks=copy.chunks,
            chunks_done=done, waiting=at.get("waiting", ""), **figures,
        )  # fmt: skip
    for request in requests:
        answered = found.get(request.table)
        if not request.is_cancel and (answered is None or answered.request != request.request):
            found[request.table] = models.Copy(
                table=request.table,
                state="requested",
                copy_id="",
                request=request.request,
                chunks=0,
                reason=request.reason,
            )
    return sorted(found.values(), key=lambda c: c.table)


def _copies(parts: Parts, name: str) -> list[models.Copy]:
    fleet = parts.control.fleet()
    known_source(fleet, name)
    _, copies = read_position(parts.control.settings.kafka, parts.control.codec, name)
    group = fleet.group_of(name) or ""
    reported = parts.control.look(lambda _fleet, _fold, statuses: statuses.get("spark", group))
    tables = (reported.shown.get("copies") or {}).get("tables", []) if reported else []
    requests = parts.control.state(SOURCE, name).control.copies
    return shown_copies(copies, requests, {table["copy"]: table for table in tables})


@router.get("/sources/{name}/copies", tags=["copies"], responses=responses(404))
def list_copies(name: str, parts: UseParts) -> list[models.Copy]:
    """The last copy of each table, with its progress while Spark copies it."""
    return _copies(parts, name)


@router.post("/sources/{name}/copies", status_code=202, tags=["copies"], responses=responses(404, 409))
def start_copy(name: str, new: models.NewCopy, parts: UseParts, caller: UseCaller) -> models.Accepted:
    """Copy a table again while changes are captured. The new copy replaces the old one once it is complete."""
    fleet = parts.control.fleet()
    known_source(fleet, name)
    group = fleet.group_of(name)
    if group is None or fleet.groups[group].lake is None:
        raise ConflictError(f"{name} is not in a group with a lake: copies need a lake", source=name)
    return send(parts, caller, SOURCE, name, commands.copy(CopyRequest(new.table, uuid.uuid4().hex[:12], new.reason)))


@router.delete("/sources/{name}/copies/{table}", status_code=202, tags=["copies"], responses=responses(404, 409))
def cancel_copy(name: str, table: str, parts: UseParts, caller: UseCaller, reason: ReasonQuery = "") -> models.Accepted:
    """Cancel a copy. No more rows are read; the previous copy of the table stays readable."""
    copy = next((c for c in _copies(parts, name) if c.table == table), None)
    if copy is None:
        raise UnknownError(f"{name} has no copy of {table!r}", source=name, hint="GET …/copies lists them")
    if copy.state in ("readable", "cancelled"):
        raise ConflictError(f"the copy of {table} is already {copy.state}", source=name)
    request = CopyRequest(table, uuid.uuid4().hex[:12], reason, is_cancel=True)
    return send(parts, caller, SOURCE, name, commands.copy(request))


# -- the database ----------------------------------------------------------------------------------------


def _ask(parts: Parts, do: str, name: str, kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return parts.program.live({"do": do, "name": name, "kind": kind, "config": config})


def _checks(found: dict[str, Any]) -> models.Checks:
    checks = [models.Check(**one) for one in found["checks"]]
    return models.Checks(is_good=all(check.is_good for check in checks), checks=checks)


@router.post("/sources/{name}/validate", tags=["sources"], responses=responses(404, 424))
def validate_source(name: str, parts: UseParts) -> models.Checks:
    """Check the database for everything that capture needs; each failed check has a fix."""
    fleet = parts.control.fleet()
    known_source(fleet, name)
    spec = fleet.sources[name]
    return _checks(_ask(parts, "check", name, spec.kind, spec.config))


@router.get("/sources/{name}/tables", tags=["sources"], responses=responses(404, 424))
def source_tables(name: str, parts: UseParts) -> list[models.Table]:
    """The captured tables, as they currently are in the database."""
    fleet = parts.control.fleet()
    known_source(fleet, name)
    spec = fleet.sources[name]
    return [models.Table(**table) for table in _ask(parts, "tables", name, spec.kind, spec.config)["tables"]]


@router.get("/source-types", tags=["source types"], responses=responses())
def source_types(parts: UseParts) -> list[models.SourceType]:
    """The source kinds, each with the JSON Schema of its config."""
    return [_type(kind, found) for kind, found in parts.program.kinds().items()]


def _type(kind: str, found: dict[str, Any]) -> models.SourceType:
    return models.SourceType(
        kind=kind, is_available="schema" in found, why=found.get("error", ""), config_schema=found.get("schema", {})
    )


@router.get("/source-types/{kind}", tags=["source types"], responses=responses(404))
def source_type(kind: str, parts: UseParts) -> models.SourceType:
    check_kind(parts, kind)
    return _type(kind, parts.program.kinds()[kind])


def _check_candidate(parts: Parts, kind: str, candidate: models.Candidate) -> None:
    check_kind(parts, kind)
    refuse(config_errors(parts, candidate.name, kind, candidate.config, "config"))


@router.post("/source-types/{kind}/validate", tags=["source types"], responses=responses(404, 424))
def validate_candidate(kind: str, candidate: models.Candidate, parts: UseParts) -> models.Checks:
    """Check a config against its database before it is added: connection, privileges, log settings, tables."""
    _check_candidate(parts, kind, candidate)
    return _checks(_ask(parts, "check", candidate.name, kind, candidate.config))


@router.post("/source-types/{kind}/tables", tags=["source types"], responses=responses(404, 424))
def candidate_tables(kind: str, candidate: models.Candidate, parts: UseParts) -> list[models.Table]:
    """The tables that a source with this config would capture."""
    _check_candidate(parts, kind, candidate)
    found = _ask(parts, "tables", candidate.name, kind, candidate.config)["tables"]
    return [models.Table(**table) for table in found]
