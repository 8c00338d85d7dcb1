"""`/v1/groups/{name}/landings` and `lake`: landings, tables and rows, read from the manifests of the lake."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query

from lowwater.codec.json_values import plain
from lowwater.runtime.config import LakeConfig
from lowwater_control import models
from lowwater_control.dependencies import Parts, UseParts, known_group
from lowwater_control.problems import UnknownError, responses

if TYPE_CHECKING:
    from lowwater.lake.chain.manifest import Manifest
    from lowwater.lake.reader import Lake

router = APIRouter(prefix="/v1/groups/{name}", tags=["lake"])

#: memory limit of a query over rows
MEMORY = "256MiB"
#: transactions before the newest change that are searched first for the newest rows
WINDOW = 64


class Lakes:
    """Open lakes, one for each config. A lake that is open reads only new manifests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Lake] = {}

    def get(self, config: LakeConfig) -> Lake:
        from lowwater.lake.reader import Lake

        key = config.model_dump_json()
        with self._lock:
            lake = self._open.get(key)
            if lake is None:
                lake = self._open[key] = Lake.open(config, MEMORY)
            else:
                lake.refresh()
            return lake


def _lake(parts: Parts, name: str) -> Lake:
    fleet = parts.control.fleet()
    known_group(fleet, name)
    config = fleet.groups[name].lake
    if config is None:
        raise UnknownError(
            f"{name} has no lake", hint=f"its transactions are only in Kafka; set groups.{name}.lake.uri"
        )
    lake: Lake = parts.lakes.get(config)
    return lake


def _landing(manifest: Manifest) -> models.Landing:
    return models.Landing(
        n=manifest.n,
        kind=manifest.kind.value,
        at_us=manifest.at_us,
        from_gsn=manifest.from_gsn,
        gsn=manifest.gsn,
        transactions=manifest.transactions,
        rows=sum(file.rows for file in manifest.files),
        bytes=sum(file.bytes for file in manifest.files),
        files=len(manifest.files),
        tables=sorted({file.table for file in manifest.files}),
        skipped=[skipped.model_dump() for skipped in manifest.skipped],
        copied=[copied.model_dump(exclude={"lows"}) for copied in manifest.copied],
        stale=[stale.model_dump() for stale in manifest.stale],
    )


@router.get("/landings", responses=responses(404))
def landings(
    name: str,
    parts: UseParts,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="only landings below this number")] = None,
) -> models.Landings:
    """The landings, newest first."""
    chain = _lake(parts, name).chain
    last = chain.head.n if before is None else min(before - 1, chain.head.n)
    first = max(1, last - limit + 1)
    found = [_landing(manifest) for manifest in chain.log(first, last)][::-1] if last >= 1 else []
    return models.Landings(landings=found, next=first if found and first > 1 else None)


@router.get("/lake/tables", responses=responses(404))
def tables(name: str, parts: UseParts) -> list[models.LakeTable]:
    """All tables, with the rows, files and bytes that are current."""
    return [
        models.LakeTable(
            table=info.name, version=info.version, versions=list(info.versions), rows=info.rows, files=info.files,
            bytes=info.bytes, gsn=info.gsn,
            stale=None if info.stale is None else models.LakeStale(gsn=info.stale.gsn, reason=info.stale.reason),
        )
        for info in _lake(parts, name).tables()
    ]  # fmt: skip


@router.get("/lake/tables/{table}/rows", responses=responses(404, 409))
def rows(
    name: str,
    table: str,
    parts: UseParts,
    of: Annotated[
        Literal["changes", "state"], Query(description="the newest changes, or rows of the state")
    ] = "changes",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    allow_stale: Annotated[bool, Query(description="also return the state of a stale table")] = False,
) -> models.LakeRows:
    """The newest rows of a table. For the state of a stale table the answer is 409, unless `allow_stale` is set."""
    lake = _lake(parts, name)
    full = lake.name(table)
    found = _state(lake, full, limit, allow_stale) if of == "state" else _changes(lake, full, limit)
    columns = list(found[0]) if found else []
    return models.LakeRows(table=full, gsn=lake.gsn, columns=columns, rows=[plain(row) for row in found])


def _state(lake: Lake, table: str, limit: int, allow_stale: bool) -> list[dict[str, Any]]:
    from lowwater.lake.read.scans import asking, connect

    with connect(MEMORY) as con, asking(lake.store):
        state = lake.state(table, allow_stale=allow_stale).duckdb(con)
        found: list[dict[str, Any]] = state.limit(limit).to_arrow_table().to_pylist()
    return found


def _changes(lake: Lake, table: str, limit: int) -> list[dict[str, Any]]:
    """The newest changes: searches back from the table's last change, with growing windows, until there are enough."""
    newest = lake.chain.summary(table).gsn_max
    first = lake.chain.head.history_from
    window = WINDOW
    while True:
        after = max(first, newest - window)
        found = _tail(lake, table, after, limit)
        if len(found) >= limit or after == first:
            return found
        window *= 16


def _tail(lake: Lake, table: str, after: int, limit: int) -> list[dict[str, Any]]:
    kept: list[Any] = []
    with lake.changes(table, after).batches() as reader:
        for batch in reader:
            kept.append(batch)
            while sum(b.num_rows for b in kept[1:]) >= limit:
                kept.pop(0)
    found: list[dict[str, Any]] = [row for batch in kept for row in batch.to_pylist()]
    return found[-limit:][::-1]
