"""Common base of the database servers for tests, benchmarks and the demo.

    <directory>/<name>.json  port and home: chosen once, the same after restarts
    <directory>/<name>.log   the server's log
    <directory>/<name>.pid
    <home>/data/             the server's data

A server is a separate process that outlives the command that started it. `home` is described in `server_home.py`;
programs that the server's user cannot run are copied there, too. `remove()` deletes it.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from lowwater.errors import ConfigError, LowwaterError
from lowwater_devkit.servers.plain_user import as_plain_user, give_to_plain_user
from lowwater_devkit.servers.server_home import ServerHome
from lowwater_fleet.runner.ports import is_free
from lowwater_fleet.runner.process import Daemon, StartStop

HOST = "127.0.0.1"
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0


class EmbeddedDatabase(StartStop):
    """`port`: 0 is the port stored in the directory, or a free one the first time; any other number is that port."""

    def __init__(
        self, directory: Path, name: str, title: str, port: int, settings: Mapping[str, str] | None,
        known_by: Sequence[str], programs: str = "programs", scratch: str = "",
    ) -> None:  # fmt: skip
        self.directory = directory
        self.log = directory / f"{name}.log"
        self._title = title
        self._settings = dict(settings or {})
        self._kept = ServerHome(directory, name, port, lambda: self.is_running)
        self._daemon = Daemon(directory / f"{name}.pid", tuple(known_by))
        self._programs_name = programs
        self._parts = [part for part in ("data", programs, scratch) if part]

    @abstractmethod
    def _launch(self) -> None: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    @abstractmethod
    def _reason(self, said: str) -> str:
        """The reason why the server ended, from its output."""

    @property
    def pid(self) -> int | None:
        """None if the server does not run."""
        return self._daemon.pid

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    @property
    def port(self) -> int:
        return self._kept.port

    @property
    def data(self) -> Path:
        return self._kept.path / "data"

    @property
    def _programs(self) -> Path:
        return self._kept.path / self._programs_name

    def start(self, *, timeout_seconds: float = START_SECONDS_MAX) -> bool:
        """Start the server and wait until it serves. True if this call started it, False if it was already running."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._kept.one_start_at_a_time():
            started = not self.is_running
            said_before = self.log.stat().st_size if self.log.exists() else 0
            if started:
                self._check_port()
                self._kept.keep()
                self._launch()
            self._wait_until_serving(timeout_seconds, said_before)
        return started

    def kill(self) -> bool:
        """`kill -9`. False if it was not running."""
        return self._daemon.kill()

    def stop(self, *, timeout_seconds: float = STOP_SECONDS_MAX) -> bool:
        """Stop the server; it is killed after the timeout. False if it was not running."""
        return self._daemon.stop(timeout_seconds=timeout_seconds)

    def remove(self) -> None:
        """Kill the server and delete its data, also below /tmp."""
        self.kill()
        self._kept.remove(*self._parts)

    def _check_port(self) -> None:
        if not is_free(self.port, HOST):
            raise ConfigError(
                f"port {self.port} is used by another program, so {self._title} cannot listen on it",
                hint="stop that program (`ss -ltnp` shows it), or choose another port",
            )

    def _new_data(self) -> Path:
        """An empty directory with a temporary name, renamed when complete: a killed start leaves no partial data."""
        part = self.data.with_name("data.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        give_to_plain_user(part)
        return part

    def _fill_data(self, part: Path, command: list[str], text: str | None = None) -> None:
        done = subprocess.run(as_plain_user(command), input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LowwaterError(
                f"{self._title} could not create its data: {self._reason(done.stdout + done.stderr)}",
                hint="fix the cause, then start again",
            )
        part.rename(self.data)

    def _wait_until_serving(self, timeout_seconds: float, said_before: int) -> None:
        end = time.monotonic() + timeout_seconds
        while not self._is_ready():
            if not self.is_running:
                said = self.log.read_bytes()[said_before:].decode(errors="replace")
                raise LowwaterError(f"{self._title} ended during startup: {self._reason(said)}", hint=f"see {self.log}")
            if time.monotonic() > end:
                raise LowwaterError(
                    f"{self._title} did not serve within {timeout_seconds:.0f} s", hint=f"see {self.log}"
                )  # fmt: skip
            time.sleep(0.02)
