"""The merger's status for `/status`, the metrics and the log, with the source and thread that hold the watermark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import structlog

from lowwater.records.positions import Order
from lowwater_merger import metrics
from lowwater_merger.core.merger import Merger
from lowwater_merger.core.release import SourceState
from lowwater_merger.core.watermark import mark_clock, thread_mark


class HoldWatch:
    """Measures how long the same thread has held back waiting transactions. After the alarm time it logs a warning; it
    has no other effect."""

    def __init__(self, group: str, alarm_seconds: float) -> None:
        self._group = group
        self._alarm_seconds = alarm_seconds
        self._held_by: tuple[str, int | None, Order, int] | None = None
        self._since = time.monotonic()
        self._is_alarmed = False
        self._log: Any = structlog.get_logger().bind(service="merger", group=group)

    def look(self, merger: Merger) -> dict[str, Any] | None:
        """The source and thread that hold the watermark; None if no transaction waits and no source is stopped."""
        waiting = sum(state.lanes.count for state in merger.sources.values())
        found = merger.holder() if waiting or any(s.error for s in merger.sources.values()) else None
        if found is None:
            self._held_by = None
            self._is_alarmed = False
            metrics.HELD_SECONDS.labels(self._group).set(0)
            return None
        floor, state = found
        watermark = state.watermark()
        # while any of these advances, the watermark is only late, not held
        held_by = (state.name, watermark.thread, watermark.order, floor.clock_us)
        if held_by != self._held_by:
            self._held_by, self._since, self._is_alarmed = held_by, time.monotonic(), False
        seconds = time.monotonic() - self._since
        metrics.HELD_SECONDS.labels(self._group).set(seconds)
        holder = {
            "source": state.name,
            "thread": watermark.thread,
            "partition": watermark.partition,
            "watermark": str(watermark.order),
            "seconds": round(seconds, 1),
            "waiting": waiting,
            "why": _why(state),
        }
        if seconds > self._alarm_seconds and not self._is_alarmed:
            self._is_alarmed = True
            self._log.warning("watermark held", **holder)
        return holder


def _why(state: SourceState) -> str:
    if state.error is not None:
        return f"stopped: {state.error}"
    watermark = state.watermark()
    if watermark.thread is None:
        return f"partition {watermark.partition} has no mark yet: check that the extractor is running"
    mark = state.marks[watermark.partition or 0]
    known = mark.states.get(watermark.thread, "unknown") if mark else "unknown"
    return f"the last mark of thread {watermark.thread} ({known}) is {watermark.order}"


def status(merger: Merger, holder: dict[str, Any] | None, hidden: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "group": merger.group,
        "state": "stopped" if any(s.error for s in merger.sources.values()) else "running",
        "next_gsn": merger.next_gsn,
        "clock_us": merger.clock_us,
        "holder": holder,
        "memory_bytes": merger.memory_bytes,
        "size_bytes": merger.size_bytes,
        "open_transactions": merger.open_count,
        "repeats_dropped": merger.repeats_dropped,
        "sources": {
            name: {**_source(state), "hidden_by_open_transaction": (hidden or {}).get(name, "")}
            for name, state in sorted(merger.sources.items())
        },
    }


def _source(state: SourceState) -> dict[str, Any]:
    first = state.lanes.first()
    shown = first and {"txid": first.key.txid, "order": str(first.key.order), "commit_ts_us": first.commit_ts_us}
    return {
        "watermark": str(state.watermark().order),
        "released": str(state.last_key.order),
        "clock_us": state.clock_us,
        "waiting": state.lanes.count,
        "first_waiting": shown,
        "is_out": state.is_out,
        "error": state.error.fields() if state.error else None,
        "threads": {
            str(thread): {
                "mark": str(thread_mark(thread, state.marks)[0]),
                "state": _thread_state(state, thread),
                "excluded": thread in state.excluded,
            }
            for thread in sorted(state.threads)
        },
    }


def _thread_state(state: SourceState, thread: int) -> str:
    states = [mark.states.get(thread) for mark in state.marks if mark is not None]
    return next((s for s in reversed(states) if s), "unknown")


class MarkWatch:
    """Measures how long each thread's mark has not advanced."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[Order, float]] = {}

    def age_seconds(self, source: str, thread: int, order: Order) -> float:
        now = time.monotonic()
        seen = self._seen.get((source, thread))
        if seen is None or seen[0] != order:
            self._seen[source, thread] = (order, now)
            return 0.0
        return now - seen[1]


def count(merger: Merger, holder: dict[str, Any] | None, watch: MarkWatch, now_us: int) -> None:
    """Set the gauges."""
    group = merger.group
    metrics.GSN.labels(group).set(merger.next_gsn - 1)
    metrics.MEMORY_BYTES.labels(group).set(merger.memory_bytes)
    metrics.WAITING_BYTES.labels(group).set(merger.size_bytes)
    for name, state in merger.sources.items():
        metrics.WAITING.labels(group, name).set(state.lanes.count)
        metrics.WATERMARK.labels(group, name).set(state.watermark().order.major)
        metrics.STOPPED.labels(group, name).set(state.error is not None)
        clock_us = mark_clock(state.marks)
        if clock_us is not None:
            metrics.WATERMARK_AGE.labels(group, name).set(max(0.0, (now_us - clock_us) / 1e6))
        is_holder = holder is not None and holder["source"] == name
        held_by = holder["thread"] if holder is not None and is_holder else None
        metrics.HOLDS.labels(group, name, "none").set(is_holder and held_by is None)
        marks = {thread: thread_mark(thread, state.marks)[0] for thread in state.threads}
        for thread, order in marks.items():
            labels = (group, name, str(thread))
            metrics.MARK.labels(*labels).set(order.major)
            metrics.MARK_AGE.labels(*labels).set(watch.age_seconds(name, thread, order))
            metrics.BEHIND.labels(*labels).set(max(marks.values()).major - order.major)
            metrics.EXCLUDED.labels(*labels).set(thread in state.excluded)
            metrics.HOLDS.labels(*labels).set(held_by == thread)
