"""The processes of a fleet on one machine: started, supervised, restarted with backoff."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowwater.runtime.config import Settings

BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: the backoff is reset after a process has run this long
HEALTHY_SECONDS = 30.0
#: after this exit code a process is not started again: an operator has stopped it
STOPPED_CODE = 0


@dataclass
class Service:
    """One process of the fleet."""

    name: str
    command: list[str]
    log: Path
    http_port: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    last_code: int | None = None
    process: subprocess.Popen[bytes] | None = None
    _started_at: float = 0.0
    _next_start_at: float = 0.0
    _failures: int = 0
    _is_stopped: bool = False

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment, **(environment or {})},
                start_new_session=True,
            )
        self._started_at = time.monotonic()
        self._is_stopped = False
        self.last_code = None

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called since the last `start`."""
        return self._is_stopped

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def state(self) -> str:
        if self.is_running:
            return "running"
        return "stopped" if self._is_stopped else f"down ({self.last_code})"

    def supervise(self) -> None:
        """Restart the process, with backoff, if it has ended with an exit code other than 0."""
        if self.process is None or self.is_running or self._is_stopped:
            return
        if self.last_code is None:
            self.last_code = self.process.returncode
            ran_seconds = time.monotonic() - self._started_at
            self._failures = 1 if ran_seconds > HEALTHY_SECONDS else self._failures + 1
            self._next_start_at = time.monotonic() + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS)) - 1]
        if self.last_code == STOPPED_CODE or time.monotonic() < self._next_start_at:
            return
        self.last_code = None
        self.restarts += 1
        self.start()

    def kill(self) -> None:
        """`kill -9`; returns when the process has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, timeout_seconds: float = 20.0) -> None:
        """Stop the process, with SIGKILL after the timeout. It is not restarted until `start` is called."""
        self._is_stopped = True
        if self.process is None or not self.is_running:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait(self, timeout_seconds: float) -> int:
        assert self.process is not None
        return self.process.wait(timeout_seconds)

    def status(self) -> dict[str, Any] | None:
        """The body of its `/status`; None while it does not answer."""
        return get_json(self.http_port, "/status")


def get_json(port: int, path: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.URLError, OSError, json.JSONDecodeError):
        return None


def extractor(settings: Settings, config: Path, source: str, logs: Path) -> Service:
    port = settings.source(source).http.port
    command = [sys.executable, "-m", "lowwater_extractor", "--config", str(config), "--source", source]
    return Service(f"extractor-{source}", command, logs / f"extractor-{source}.log", port)


def merger(settings: Settings, config: Path, group: str, logs: Path) -> Service:
    port = settings.group(group).http.port
    command = [sys.executable, "-m", "lowwater_merger", "--config", str(config), "--group", group]
    return Service(f"merger-{group}", command, logs / f"merger-{group}.log", port)


def lander(settings: Settings, config: Path, group: str, logs: Path) -> Service:
    port = settings.group(group).land.http.port
    command = [sys.executable, "-m", "lowwater_spark", "--config", str(config), "--group", group]
    return Service(f"spark-{group}", command, logs / f"spark-{group}.log", port)


def control(settings: Settings, config: Path, logs: Path) -> Service:
    command = [sys.executable, "-m", "lowwater_control", "--config", str(config)]
    return Service("control", command, logs / "control.log", settings.control.port)
