"""The live table of a running fleet."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowwater_fleet.runner import Runner


class LivePicture:
    """Drawn again and again from what the services show of themselves."""

    def __init__(self, runner: Runner, source: str, group: str) -> None:
        self._runner = runner
        self._source = source
        self._group = group
        self._last: tuple[float, int] = (time.monotonic(), 0)
        self._rate = 0.0
        self.caption = ""

    def draw(self) -> Group:
        extractor = self._runner.status(f"extractor-{self._source}")
        merger = self._runner.status(f"merger-{self._group}")
        return Group(self._threads(extractor, merger), self._totals(merger), Text(self.caption, style="bold cyan"))

    def line(self) -> str:
        """The same in one line, for where there is no terminal."""
        merger = self._runner.status(f"merger-{self._group}")
        holder = merger.get("holder") or {}
        held = (
            f", thread {holder['thread']} holds for {holder['seconds']:.0f} s" if holder.get("seconds", 0) >= 1 else ""
        )
        waiting = merger.get("sources", {}).get(self._source, {}).get("waiting", 0)
        return f"{merger.get('next_gsn', 1) - 1:,} released, {waiting:,} waiting{held}"

    def _threads(self, extractor: dict[str, Any], merger: dict[str, Any]) -> Table:
        table = Table("thread", "state", "published", "mark", "mark seen by the merger", "", expand=False)
        holder = merger.get("holder") or {}
        seen = merger.get("sources", {}).get(self._source, {}).get("threads", {})
        for thread, status in extractor.get("threads", {}).items():
            merged = seen.get(thread, {})
            holds = str(holder.get("thread")) == thread
            note = f"holds the watermark for {holder['seconds']:.0f} s" if holds and holder["seconds"] >= 1 else ""
            excluded = "excluded" if merged.get("excluded") else note
            table.add_row(
                thread, status["state"], status["published"], status["mark"], merged.get("mark", ""), excluded,
                style="yellow" if note else "",
            )  # fmt: skip
        return table

    def _totals(self, merger: dict[str, Any]) -> Table:
        released = merger.get("next_gsn", 1) - 1
        now = time.monotonic()
        before, count = self._last
        if now - before >= 1:
            self._rate = max(0.0, (released - count) / (now - before))
            self._last = (now, released)
        table = Table("service", "state", "restarts", "released", "per second", "waiting")
        source = merger.get("sources", {}).get(self._source, {})
        for name, service in self._runner.services.items():
            state = "running" if service.is_running else f"down ({service.last_code})"
            is_merger = name.startswith("merger")
            figures = (
                (f"{released:,}", f"{self._rate:,.0f}", f"{source.get('waiting', 0):,}") if is_merger else ("",) * 3
            )
            table.add_row(name, state, str(service.restarts or ""), *figures, style="" if service.is_running else "red")
        return table
