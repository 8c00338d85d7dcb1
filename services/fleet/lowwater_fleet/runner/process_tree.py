"""Child processes, for servers whose children each have their own process group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from lowwater.errors import LowwaterError


def children(parent: int) -> list[int]:
    return [pid for pid, above in processes().items() if above == parent]


def kill_children(parent: int, timeout_seconds: float) -> None:
    """`kill -9` all children until there are none, including those started meanwhile."""
    end = time.monotonic() + timeout_seconds
    while left := children(parent):
        if time.monotonic() > end:
            raise LowwaterError(f"processes still run after kill -9: {left}", hint="see ps -o pid,stat,wchan,args")
        for child in left:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def processes() -> dict[int, int]:
    """The parent of each process, by pid. Without zombies: they hold no resources."""
    if Path("/proc/self/stat").exists():
        rows = [row for stat in Path("/proc").glob("[0-9]*/stat") if (row := _row(stat)) is not None]
    else:  # macOS
        ps = subprocess.run(["ps", "-A", "-o", "pid=,stat=,ppid="], capture_output=True, text=True, check=True)
        rows = [line.split() for line in ps.stdout.splitlines()]
    return {int(pid): int(above) for pid, state, above in rows if not state.startswith("Z")}


def _row(stat: Path) -> list[str] | None:
    """pid, state, parent; None for a process that has just ended."""
    try:
        pid, _, rest = stat.read_text(errors="replace").partition(" (")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return [pid, *rest.rpartition(") ")[2].split()[:2]]  # the name in brackets may contain any character
