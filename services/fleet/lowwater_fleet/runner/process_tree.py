"""Which process is whose child: for a server whose children each lead a process group of their own."""

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
    """`kill -9` of all, until there are none: also of those that are born meanwhile."""
    end = time.monotonic() + timeout_seconds
    while left := children(parent):
        if time.monotonic() > end:
            raise LowwaterError(f"processes outlive kill -9: {left}", hint="ps -o pid,stat,wchan,args tells why")
        for child in left:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def processes() -> dict[int, int]:
    """Each process and its parent. Zombies hold nothing any more, so they are left out."""
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
    return [pid, *rest.rpartition(") ")[2].split()[:2]]  # the name between the brackets may hold anything
