"""What all benchmarks share: a broker, peak memory, a table of results."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from lowwater.runtime import config
from lowwater.runtime.config import Settings

RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


@dataclass
class Result:
    """One line: what was measured, beside the ceiling of the same run."""

    name: str
    value: float
    unit: str
    ceiling: float | None = None
    #: what we aim at: a ratio to the ceiling, or an upper bound of the value
    goal: str = ""
    peak_mb: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.ceiling is None else self.value / self.ceiling


@dataclass
class Bench:
    """What a benchmark is given."""

    directory: Path
    bootstrap_servers: str
    scale: float
    results: list[Result] = field(default_factory=list)

    def say(self, what: str) -> None:
        console.print(f"[dim]· {what}[/dim]")

    def config(self, name: str, raw: dict[str, Any]) -> tuple[Settings, Path]:
        """A fleet's config on this bench's broker, as a file and as settings."""
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": self.bootstrap_servers}, **raw}))
        return config.load(path), path

    def add(self, result: Result) -> None:
        self.results.append(result)
        ratio = f" = {result.ratio:.2f} of {result.ceiling:,.0f}" if result.ratio is not None else ""
        console.print(f"  {result.name}: {result.value:,.2f} {result.unit}{ratio} {result.note}")


def peak_mb(pid: int) -> float:
    """The most memory that a process has ever had, by the kernel's own count; 0 of one that has just ended."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def best_of(times: int, measure: Callable[[], float]) -> float:
    """The median of several runs: neighbours on the machine make single ones lie."""
    return statistics.median(measure() for _ in range(times))


def wait_until(check: Callable[[], Any], seconds: float, what: str, every_seconds: float = 0.1) -> float:
    """When it was true, on the monotonic clock."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(every_seconds)
    return time.monotonic()


def show(results: list[Result]) -> None:
    table = Table("what", "measured", "ceiling", "ratio", "goal", "peak memory", title="lowwater bench")
    for r in results:
        table.add_row(
            r.name,
            f"{r.value:,.1f} {r.unit}",
            "" if r.ceiling is None else f"{r.ceiling:,.0f}",
            "" if r.ratio is None else f"{r.ratio:.2f}",
            r.goal,
            "" if r.peak_mb is None else f"{r.peak_mb:.0f} MB",
        )
    console.print(table)


def save(results: list[Result], seconds: float) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    lines = [{**asdict(r), "ratio": r.ratio} for r in results]
    path.write_text(json.dumps({"machine": machine, "seconds": round(seconds), "results": lines}, indent=1) + "\n")
    return path
