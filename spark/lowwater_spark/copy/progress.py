"""Progress of the copies, for `/status` and the log. Written by the copies' thread, read by other threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lowwater_spark.copy.plan import CopyPlan

#: limit of the tables in the status; the sums include all tables
TABLES_SHOWN_MAX = 100


@dataclass
class _Copied:
    """Rows of one copy that this process has copied."""

    began: float
    rows: int = 0
    #: rows that had landed before this process began
    rows_before: int = 0


@dataclass(frozen=True)
class Waiting:
    """Why a copy, or all copies of a source, are on hold."""

    why: str
    until: float
    needs_plan: bool


class Progress:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._copied: dict[str, _Copied] = {}
        #: copy or source → why it is on hold
        self._waiting: dict[str, Waiting] = {}
        self._error: dict[str, Any] | None = None
        self._overview: dict[str, Any] = {"state": "idle"}

    # -- events ------------------------------------------------------------------------------------------

    def begin(self, copy: str, rows_before: int) -> None:
        if copy not in self._copied:
            self._copied[copy] = _Copied(self._clock(), rows_before=rows_before)

    def knows(self, copy: str) -> bool:
        return copy in self._copied

    def add(self, copy: str, rows: int) -> None:
        self._copied[copy].rows += rows
        self._waiting.pop(copy, None)

    def hold(self, name: str, why: str, seconds: float, *, needs_plan: bool = False) -> bool:
        """Puts a copy or source on hold. True if it was not on hold for the same reason before."""
        before = self._waiting.get(name)
        self._waiting[name] = Waiting(why, self._clock() + seconds, needs_plan)
        return before is None or before.why != why

    def held(self) -> set[str]:
        now = self._clock()
        return {name for name, waiting in self._waiting.items() if waiting.until > now}

    def fail(self, error: dict[str, Any]) -> bool:
        """Records an error. True if there was no success since the previous one."""
        is_again = self._error is not None
        self._error = error
        self._overview = {**self._overview, "state": "failed", "error": error}
        return is_again

    # -- status ------------------------------------------------------------------------------------------

    @property
    def overview(self) -> dict[str, Any]:
        return self._overview

    def show(self, active: Iterable[CopyPlan]) -> dict[str, Any]:
        """Builds a new status, which is not modified afterwards, and clears the last error."""
        self._error = None
        plans = list(active)
        names = {name for plan in plans for name in (plan.copy, plan.source)}
        for name in [n for n in self._waiting if n not in names]:
            del self._waiting[name]
        for copy in [c for c in self._copied if c not in names]:
            del self._copied[copy]
        tables = [self._table(plan) for plan in plans[:TABLES_SHOWN_MAX]]
        rate = sum(table["rows_per_second"] for table in tables)
        left = sum(plan.rows_left for plan in plans)
        self._overview = {
            "state": self._state(plans),
            "tables_left": len(plans),
            "chunks_left": sum(len(plan.waiting) for plan in plans),
            "rows_left": left,
            "seconds_left": round(left / rate) if rate else None,
            "waiting_for_a_plan": self.waiting_for_a_plan,
            "tables": tables,
        }
        return self._overview

    @property
    def waiting_for_a_plan(self) -> int:
        return sum(waiting.needs_plan for waiting in self._waiting.values())

    def _state(self, plans: list[CopyPlan]) -> str:
        if not plans:
            return "idle"
        is_waiting = all(plan.copy in self._waiting or plan.source in self._waiting for plan in plans)
        return "waiting" if is_waiting else "copying"

    def _table(self, plan: CopyPlan) -> dict[str, Any]:
        copied = self._copied.get(plan.copy)
        rows = copied.rows if copied else 0
        rate = rows / max(0.001, self._clock() - copied.began) if copied else 0.0
        waiting = self._waiting.get(plan.copy) or self._waiting.get(plan.source)
        return {
            "table": plan.lake_table,
            "copy": plan.copy,
            "chunks_done": plan.done,
            "chunks": plan.chunks,
            "rows": rows + (copied.rows_before if copied else 0),
            "rows_per_second": round(rate),
            "seconds_left": round(plan.rows_left / rate) if rate else None,
            **({"waiting": waiting.why} if waiting else {}),
        }
