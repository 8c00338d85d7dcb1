"""The live table of a running fleet: threads and marks, who holds the watermark, what is released and landed."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lowwater_fleet.console import out
from lowwater_fleet.runner import Runner

#: without a terminal, a line this often
LINE_SECONDS = 5.0
#: a rate is taken over this long
RATE_SECONDS = 3.0
#: a landing's rate is of no more interest after this
LANDING_SECONDS = 5.0
#: a thread that holds for less than this only comes a little later than the others
HOLD_SECONDS_MIN = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What the services show of themselves at one moment."""

    threads: dict[str, Any]
    marks: dict[str, Any]
    holder: str
    holder_seconds: float
    waiting: int
    released: int
    released_per_second: float
    landed: int
    #: since the first transaction that has not landed was released
    lag_seconds: float
    rows_per_second: float
    is_spark_there: bool
    #: of a service that waits for an operator
    error: str

    @property
    def held(self) -> str:
        return f"thread {self.holder} holds the watermark for {self.holder_seconds:.0f} s" if self.holder else ""

    @property
    def lag(self) -> str:
        behind = self.released - self.landed
        return f"{behind:,} behind, {self.lag_seconds:.1f} s" if behind > 0 else "nothing behind"

    def __str__(self) -> str:
        landed = f"landed gsn {self.landed:,} ({self.lag}{'' if self.is_spark_there else '; Spark is starting'})"
        parts = [f"{self.released:,} released", f"{self.waiting:,} waiting", landed]
        return " · ".join([*parts, f"{self.rows_per_second:,.0f} rows/s", *filter(None, [self.held])])


class Watch:
    """Asks the services, and remembers a little, so that there are rates, and figures while one of them is down."""

    def __init__(self, runner: Runner, source: str, group: str) -> None:
        self.runner = runner
        self._names = (f"extractor-{source}", f"merger-{group}", f"spark-{group}")
        self._source = source
        self._releases: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._landed, self._landed_at = 0, 0.0

    def look(self) -> Figures:
        extractor, merger, spark = (self.runner.status(name) for name in self._names)
        now = time.monotonic()
        self._note(now, merger.get("next_gsn", 1) - 1, spark.get("gsn", 0))
        source = merger.get("sources", {}).get(self._source, {})
        holder = merger.get("holder") or {}
        is_held = holder.get("seconds", 0) >= HOLD_SECONDS_MIN
        is_landing = now - self._landed_at < LANDING_SECONDS
        errors = (status.get("error") for status in (extractor, source, spark))
        return Figures(
            threads=extractor.get("threads", {}),
            marks=source.get("threads", {}),
            holder=str(holder["thread"]) if is_held else "",
            holder_seconds=holder["seconds"] if is_held else 0.0,
            waiting=source.get("waiting", 0),
            released=self._releases[-1][1],
            released_per_second=self._rate(now),
            landed=self._landed,
            lag_seconds=next((now - at for at, released in self._releases if released > self._landed), 0.0),
            rows_per_second=spark.get("rows_per_second", 0) if is_landing else 0.0,
            is_spark_there="lake" in spark,
            error=next((f"{error['what']} → {error['hint']}" for error in errors if error), ""),
        )

    def _note(self, now: float, released: int, landed: int) -> None:
        if released > self._releases[-1][1]:
            self._releases.append((now, released))
        if landed > self._landed:
            self._landed, self._landed_at = landed, now
        # one that has landed and is older than a rate needs is of no more use
        while len(self._releases) > 1 and self._releases[1][1] <= self._landed and now - self._releases[1][0] > 5:
            self._releases.popleft()

    def _rate(self, now: float) -> float:
        recent = [released for at, released in self._releases if now - at < RATE_SECONDS]
        older = [released for at, released in self._releases if now - at >= RATE_SECONDS]
        return (recent[-1] - (older[-1] if older else 0)) / RATE_SECONDS if recent else 0.0


def draw(runner: Runner, figures: Figures, caption: str) -> Group:
    return Group(_threads(figures), _services(runner, figures), Text(caption, style="bold cyan"))


def _threads(figures: Figures) -> Table:
    table = Table("thread", "state", "published", "mark", "mark at the merger", "", expand=False)
    for thread, status in figures.threads.items():
        merged = figures.marks.get(thread, {})
        note = f"holds the watermark, {figures.holder_seconds:.0f} s" if thread == figures.holder else ""
        said = "excluded" if merged.get("excluded") else note
        row = (thread, status["state"], status["published"], status["mark"], merged.get("mark", ""), said)
        table.add_row(*row, style="yellow" if note else "")
    return table


def _services(runner: Runner, figures: Figures) -> Table:
    table = Table("service", "state", "restarts", "", expand=False)
    for name, service in runner.services.items():
        state = "running" if service.is_running else f"down ({service.last_code})"
        said = ""
        if name.startswith("merger"):
            rate = f"{figures.released_per_second:,.0f}/s"
            said = f"released {figures.released:,} · {rate} · {figures.waiting:,} waiting"
        elif name.startswith("spark"):
            state = state if figures.is_spark_there or not service.is_running else "starting"
            said = f"landed gsn {figures.landed:,} · {figures.lag} · {figures.rows_per_second:,.0f} rows/s"
        table.add_row(name, state, str(service.restarts or ""), said, style="" if service.is_running else "red")
    return table


class Screen:
    """What goes on: the table where there is a terminal, lines elsewhere. What was said stays above the table."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._live: Live | None = None
        self._started = time.monotonic()
        self._caption = ""
        self._line_at = 0.0

    def __enter__(self) -> Screen:
        if out.is_terminal:
            # a new one each time: it would go up over what was printed since
            self._live = Live(console=out, refresh_per_second=5, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, what: str) -> None:
        self._caption = what
        out.print(f"{self.seconds:4.0f} s  {what}", markup=False, style="bold cyan")
        self._line_at = time.monotonic() + LINE_SECONDS

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def show(self) -> Figures:
        """To be called again and again."""
        figures = self.watch.look()
        if self._live is not None:
            self._live.update(draw(self.watch.runner, figures, self._caption))
        elif time.monotonic() >= self._line_at:
            self._line_at += LINE_SECONDS
            self.note(str(figures))
        return figures

    def note(self, what: str) -> None:
        out.print(f"        {what}", markup=False)
