"""The actual and the desired state of the fleet: one document for the API, the page and the command line. Pure."""

from __future__ import annotations

from typing import Any

from lowwater.control.commands import GROUP, SOURCE
from lowwater.control.desired_state import WantedFleet
from lowwater.control.fold import ControlFold
from lowwater.records.types import Wanted
from lowwater.status.reporter import LastStatus, Statuses

#: a thread that holds the watermark for less than this is not shown as its holder
HOLD_SECONDS_MIN = 1.0


def describe_fleet(fleet: WantedFleet, fold: ControlFold, statuses: Statuses, now_us: int) -> dict[str, Any]:
    groups = {name: describe_group(fleet, fold, statuses, name, now_us) for name in fleet.groups}
    return {
        "at_us": now_us,
        "sources": {name: describe_source(fleet, fold, statuses, name, now_us) for name in fleet.sources},
        "groups": groups,
        "runners": {
            name: {**reported.shown, "at_us": reported.at_us}
            for name, reported in sorted(statuses.of("runner").items())
            if reported.is_fresh(now_us)
        },
    }


def _wanted(fold: ControlFold, kind: str, name: str) -> dict[str, Any]:
    state = fold.get(kind, name)
    control = state.control
    return {
        "wanted": control.wanted.value,
        "reason": control.reason,
        "version": state.version,
        "changed_at_us": control.at_us,
    }


def _state(reported: LastStatus | None, wanted: Wanted, now_us: int) -> str:
    """The last reported state. Without recent status: `stopped` if nothing is to run, else `unreachable`."""
    if reported is None or not reported.is_fresh(now_us):
        return "stopped" if wanted.is_at_rest else "unreachable"
    return reported.state


def _error(shown: dict[str, Any], state: str) -> dict[str, Any] | None:
    return shown.get("error") if state in ("failed", "stalled") else None


def _stalled(shown: dict[str, Any], state: str) -> dict[str, Any] | None:
    """Since when the service has made no progress, and why, as it reports."""
    return shown.get("stalled") if state == "stalled" else None


def _heard(reported: LastStatus | None, now_us: int) -> dict[str, Any]:
    """The age of the last status, and the rate of the service."""
    if reported is None:
        return {"heard_seconds_ago": None, "per_second": 0.0}
    is_fresh = reported.is_fresh(now_us)
    rate = round(reported.per_second, 1) if is_fresh else 0.0
    return {"heard_seconds_ago": round(reported.age_seconds(now_us), 1), "per_second": rate}


def describe_source(
    fleet: WantedFleet, fold: ControlFold, statuses: Statuses, name: str, now_us: int
) -> dict[str, Any]:
    spec = fleet.sources[name]
    reported = statuses.get("extractor", name)
    shown = reported.shown if reported else {}
    merger = statuses.get("merger", spec.group) if spec.group else None
    merged = merger.shown.get("sources", {}).get(name, {}) if merger and merger.is_fresh(now_us) else {}
    holder = _holder(merger, now_us)
    wanted = fold.get(SOURCE, name).control.wanted
    state = _state(reported, wanted, now_us)
    error = _error(shown, state)
    return {
        "name": name,
        "kind": spec.kind,
        "group": spec.group,
        "state": "failed" if merged.get("error") and state == "running" else state,
        **_wanted(fold, SOURCE, name),
        **_heard(reported, now_us),
        "error": error or merged.get("error"),
        "stalled": _stalled(shown, state),
        "epoch": shown.get("epoch"),
        "transactions": shown.get("transactions", 0),
        "changes": shown.get("changes", 0),
        "in_progress": shown.get("in_progress"),
        "watermark": merged.get("watermark"),
        "released": merged.get("released"),
        "waiting": merged.get("waiting", 0),
        "is_out": merged.get("is_out", False),
        "copies": shown.get("copies") or {},
        "threads": _threads(name, shown, merged, holder, fold.excluded(name)),
    }


def _threads(
    source: str, shown: dict[str, Any], merged: dict[str, Any], holder: dict[str, Any] | None, excluded: frozenset[int]
) -> list[dict[str, Any]]:
    own, at_merger = shown.get("threads", {}), merged.get("threads", {})
    found = []
    for thread in sorted({*own, *at_merger}, key=int):
        mine, its = own.get(thread, {}), at_merger.get(thread, {})
        is_holder = holder is not None and (holder["source"], str(holder["thread"])) == (source, thread)
        found.append(
            {
                "thread": int(thread),
                "state": mine.get("state") or its.get("state", "unknown"),
                "published": mine.get("published"),
                "mark": mine.get("mark"),
                "merger_mark": its.get("mark"),
                "is_at_end": mine.get("at_end", False),
                "is_held": mine.get("held", False),
                "lead_bytes": mine.get("lead_bytes", 0),
                "is_excluded": int(thread) in excluded,
                "holds_seconds": holder["seconds"] if is_holder and holder else None,
            }
        )
    return found


def _holder(merger: LastStatus | None, now_us: int) -> dict[str, Any] | None:
    if merger is None or not merger.is_fresh(now_us):
        return None
    holder: dict[str, Any] | None = merger.shown.get("holder")
    return holder if holder and holder["seconds"] >= HOLD_SECONDS_MIN else None


def describe_group(fleet: WantedFleet, fold: ControlFold, statuses: Statuses, name: str, now_us: int) -> dict[str, Any]:
    reported = statuses.get("merger", name)
    is_fresh = reported is not None and reported.is_fresh(now_us)
    shown = reported.shown if reported else {}
    sources = fleet.sources_of(name)
    merged = shown.get("sources", {})
    first = [merged[s]["first_waiting"]["commit_ts_us"] for s in sources if merged.get(s, {}).get("first_waiting")]
    wanted = fold.get(GROUP, name).control.wanted
    state = _state(reported, wanted, now_us) if sources else "empty"
    return {
        "name": name,
        "sources": sources,
        "state": state,
        **_wanted(fold, GROUP, name),
        **_heard(reported, now_us),
        "error": _error(shown, state),
        "stalled": _stalled(shown, state),
        "gsn": max(0, shown.get("next_gsn", 1) - 1),
        "clock_us": shown.get("clock_us"),
        "holder": _holder(reported, now_us),
        "waiting": sum(source.get("waiting", 0) for source in merged.values()),
        "waiting_bytes": shown.get("size_bytes", 0),
        "memory_bytes": shown.get("memory_bytes", 0),
        "lag_seconds": round(max(0.0, (now_us - min(first)) / 1e6), 1) if first and is_fresh else 0.0,
        "watermarks": {s: merged[s].get("watermark") for s in sources if s in merged},
        "first_waiting": {s: merged[s].get("first_waiting") for s in sources if s in merged},
        "exclusions": [
            {"source": e.source, "thread": e.thread, "reason": e.reason}
            for e in fold.get(GROUP, name).control.exclusions
        ],
        "landing": _landing(fleet, statuses, name, wanted, now_us),
    }


def _landing(fleet: WantedFleet, statuses: Statuses, name: str, wanted: Wanted, now_us: int) -> dict[str, Any] | None:
    """None for a group without a lake."""
    if fleet.groups[name].lake is None:
        return None
    reported = statuses.get("spark", name)
    shown = reported.shown if reported else {}
    state = _state(reported, wanted, now_us)
    return {
        "state": state,
        **_heard(reported, now_us),
        "error": _error(shown, state) or (shown.get("copies") or {}).get("error"),
        "stalled": _stalled(shown, state),
        "n": shown.get("n", 0),
        "gsn": shown.get("gsn", 0),
        "behind_records": shown.get("behind_records", 0),
        "rows_per_second": shown.get("rows_per_second", 0),
        "commit_ts_us": shown.get("commit_ts_us"),
        "copies": shown.get("copies") or {},
    }
