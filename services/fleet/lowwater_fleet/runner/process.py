"""Processes that outlive the command that started them, identified by a pid file.

A pid can be reused by another program. A process is therefore recognized only if its command line also contains the
expected words.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class StartStop(ABC):
    """A context manager that starts on entry and stops on exit."""

    @abstractmethod
    def start(self) -> object: ...

    @abstractmethod
    def stop(self) -> object: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Daemon:
    """One background process, identified by its pid file and by words of its command line."""

    def __init__(self, pid_file: Path, words: Sequence[str]) -> None:
        self.pid_file = pid_file
        self._words = tuple(words)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running process; None if it does not run."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid  # a child that has not been waited for: its pid cannot be reused
        try:
            pid = int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        command = _command_line(pid)
        return pid if all(word in command for word in self._words) else None

    def start(self, command: Sequence[str], *, log: Path) -> None:
        """Start it in a new session, so that Ctrl-C in this terminal does not stop it."""
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                # The shell writes its pid before it executes the program, so that the process is found even if the
                # command that starts it is killed.
                ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.pid_file), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop(self, *, timeout_seconds: float) -> bool:
        """SIGTERM, and SIGKILL after the timeout. False if it was not running."""
        if self.pid is None:
            return False
        self._signal(signal.SIGTERM)
        if not self.wait_until_gone(timeout_seconds):
            self.kill()
        self.pid_file.unlink(missing_ok=True)
        return True

    def kill(self) -> bool:
        """SIGKILL; returns when the process has ended. False if it was not running."""
        if self.pid is None:
            return False
        self._signal(signal.SIGKILL)
        return self.wait_until_gone(30.0)

    def wait_until_gone(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return  # it ended meanwhile


def _command_line(pid: int) -> str:
    """Empty for a process that does not exist or is a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]  # macOS
    return subprocess.run(ps, capture_output=True, text=True, check=False).stdout
