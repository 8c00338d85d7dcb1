"""The live table of a running fleet: threads and marks, the holder of the watermark, releases and landings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lowwater_fleet.cli.console import out
from lowwater_fleet.runner.runner import Runner

#: interval of the lines printed if there is no terminal
LINE_SECONDS = 5.0
#: rates are averages over this time
RATE_SECONDS = 3.0
#: the rate of a landing is shown for this long
LANDING_SECONDS = 5.0
#: a thread that holds the watermark for less time is not shown as the holder
HOLD_SECONDS_MIN = 1.0

#: (source, thread)
ThreadId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all services at one moment."""

    threads: dict[ThreadId, Any]
    marks: dict[ThreadId, Any]
    holder: ThreadId | None
    holder_seconds: float
    waiting: int
    released: int
    released_per_second: float
    landed: int
    #: seconds since the release of the first transaction that has not landed
    lag_seconds: float
    rows_per_second: float
    is_spark_there: bool
    #: by source, from its extractor: tables, copied, waiting
    copies: dict[str, dict[str, int]]
    #: progress of Spark's current copies
    copying: str
    #: error of a service that waits for an operator
    error: str

    @property
    def held(self) -> str:
        if self.holder is None:
            return ""
        return f"{self.holder[0]}'s thread {self.holder[1]} holds the watermark for {self.holder_seconds:.0f} s"

    def copied(self, source: str) -> str:
        """Empty for a source without copies."""
        found = self.copies.get(source, {})
        tables = found.get("tables", 0) + found.get("waiting", 0)
        return f"{found['copied']} of {tables} tables copied" if tables else ""

    @property
    def lag(self) -> str:
        behind = self.released - self.landed
        return f"{behind:,} behind, {self.lag_seconds:.1f} s" if behind > 0 else "nothing behind"

    def __str__(self) -> str:
        landed = f"landed gsn {self.landed:,} ({self.lag}{'' if self.is_spark_there else '; Spark is starting'})"
        parts = [f"{self.released:,} released", f"{self.waiting:,} waiting", landed]
        said = [self.copying or f"{self.rows_per_second:,.0f} rows/s", self.held]
        return " · ".join([*parts, *filter(None, said)])


class Watch:
    """Polls the services. Keeps recent values to compute rates, and to have figures while a service is down."""

    def __init__(self, runner: Runner, sources: Sequence[str], group: str) -> None:
        self.runner = runner
        self._sources = sources
        self._group = group
        self._copies: dict[str, dict[str, int]] = {}
        self._releases: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._landed, self._landed_at = 0, 0.0

    def look(self) -> Figures:
        extractors = {source: self.runner.status(f"extractor-{source}") for source in self._sources}
        merger, spark = (self.runner.status(f"{kind}-{self._group}") for kind in ("merger", "spark"))
        merged = {source: merger.get("sources", {}).get(source, {}) for source in self._sources}
        now = time.monotonic()
        self._note(now, merger.get("next_gsn", 1) - 1, spark.get("gsn", 0))
        self._copies |= {source: status["copies"] for source, status in extractors.items() if status.get("copies")}
        holder = merger.get("holder") or {}
        is_held = holder.get("seconds", 0) >= HOLD_SECONDS_MIN
        is_landing = now - self._landed_at < LANDING_SECONDS
        copies = spark.get("copies") or {}
        errors = (status.get("error") for status in (*extractors.values(), *merged.values(), spark, copies))
        return Figures(
            threads=_by_thread(extractors),
            marks=_by_thread(merged),
            holder=(holder["source"], str(holder["thread"])) if is_held else None,
            holder_seconds=holder["seconds"] if is_held else 0.0,
            waiting=sum(source.get("waiting", 0) for source in merged.values()),
            released=self._releases[-1][1],
            released_per_second=self._rate(now),
            landed=self._landed,
            lag_seconds=next((now - at for at, released in self._releases if released > self._landed), 0.0),
            rows_per_second=spark.get("rows_per_second", 0) if is_landing else 0.0,
            is_spark_there="lake" in spark,
            copies=dict(self._copies),
            copying=_copying(copies.get("tables", [])),
            error=next((f"{error['what']} → {error.get('hint', '')}" for error in errors if error), ""),
        )

    def _note(self, now: float, released: int, landed: int) -> None:
        if released > self._releases[-1][1]:
            self._releases.append((now, released))
        if landed > self._landed:
            self._landed, self._landed_at = landed, now
        # drop entries that have landed and are too old for a rate
        while len(self._releases) > 1 and self._releases[1][1] <= self._landed and now - self._releases[1][0] > 5:
            self._releases.popleft()

    def _rate(self, now: float) -> float:
        recent = [released for at, released in self._releases if now - at < RATE_SECONDS]
        older = [released for at, released in self._releases if now - at >= RATE_SECONDS]
        return (recent[-1] - (older[-1] if older else 0)) / RATE_SECONDS if recent else 0.0


def _by_thread(sources: Mapping[str, dict[str, Any]]) -> dict[ThreadId, Any]:
    return {(source, t): shown for source, status in sources.items() for t, shown in status.get("threads", {}).items()}


def _copying(tables: Sequence[Mapping[str, Any]]) -> str:
    """Progress of the copies that have not landed completely."""
    if not tables:
        return ""
    done, chunks, rows = (sum(table[name] for table in tables) for name in ("chunks_done", "chunks", "rows"))
    return f"copies: {len(tables)} left, {done} of their {chunks} chunks done, {rows:,} rows"


def draw(runner: Runner, figures: Figures, caption: str) -> Group:
    return Group(_threads(figures), _services(runner, figures), Text(caption, style="bold cyan"))


def _threads(figures: Figures) -> Table:
    table = Table("source", "thread", "state", "published", "mark", "mark at the merger", "", expand=False)
    for id_, status in figures.threads.items():
        merged = figures.marks.get(id_, {})
        note = f"holds the watermark, {figures.holder_seconds:.0f} s" if id_ == figures.holder else ""
        said = "excluded" if merged.get("excluded") else note
        row = (*id_, status["state"], status["published"], status["mark"], merged.get("mark", ""), said)
        table.add_row(*row, style="yellow" if note else "")
    return table


def _services(runner: Runner, figures: Figures) -> Table:
    table = Table("service", "state", "restarts", "", expand=False)
    for name, service in runner.services.items():
        state, said = service.state, figures.copied(name.removeprefix("extractor-"))
        if name.startswith("merger"):
            rate = f"{figures.released_per_second:,.0f}/s"
            said = f"released {figures.released:,} · {rate} · {figures.waiting:,} waiting"
        elif name.startswith("spark"):
            state = state if figures.is_spark_there or not service.is_running else "starting"
            now = figures.copying or f"{figures.rows_per_second:,.0f} rows/s"
            said = f"landed gsn {figures.landed:,} · {figures.lag} · {now}"
        table.add_row(name, state, str(service.restarts or ""), said, style="red" if state.startswith("down") else "")
    return table


class Screen:
    """Shows progress: a live table on a terminal, else lines. Messages stay above the table."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._live: Live | None = None
        self._started = time.monotonic()
        self._caption = ""
        self._line_at = 0.0

    def __enter__(self) -> Screen:
        if out.is_terminal:
            # a new one each time: a reused one would overwrite what was printed since
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
        """Update the display; to be called repeatedly."""
        figures = self.watch.look()
        if self._live is not None:
            self._live.update(draw(self.watch.runner, figures, self._caption))
        elif time.monotonic() >= self._line_at:
            self._line_at += LINE_SECONDS
            self.note(str(figures))
        return figures

    def note(self, what: str) -> None:
        out.print(f"        {what}", markup=False)
