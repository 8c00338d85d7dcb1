"""A real PostgreSQL server for the tests, the benchmarks and the demo: logical decoding on, loopback only.

    <directory>/postgres.json  port and home: chosen once, kept over restarts
    <directory>/postgres.log   what it says
    <directory>/postgres.pid
    <home>/data/               the server's own

`home` is the directory itself, but for one case. PostgreSQL refuses to run as root, so for root it runs as `nobody`,
who has to pass through every directory above its data. A directory that `nobody` cannot reach (pytest's, below
/tmp/pytest-of-root, is 0700) gets its home in one of our own below /tmp; the same for programs that `nobody` cannot
run. `remove()` takes it away.

The server is a process of its own and outlives the command that started it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from lowwater.errors import ConfigError, LowwaterError
from lowwater_fleet.ports import free_port, is_free
from lowwater_fleet.postgres_install import (
    VERSION_NEWEST,
    Install,
    as_plain_user,
    find_client,
    find_install,
    give_to_plain_user,
    is_reachable,
)
from lowwater_fleet.process import Daemon
from lowwater_fleet.process_tree import kill_children

HOST = "127.0.0.1"
USER = "postgres"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
HOMES = Path("/tmp")  # not TMPDIR, which may be the private directory of one user

#: what postmaster.pid says of a server that serves; the other word is that of a standby
SERVING = ("ready", "standby")

StopMode = Literal["fast", "immediate"]
SIGNALS: Mapping[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# What every embedded server has; `settings` of EmbeddedPostgres overrides.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # TCP is enough, and a socket's path may not be longer than 107 bytes
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "fsync": "on",
    "log_line_prefix": "%m [%p] %d ",
}


@dataclass(frozen=True)
class _Identity:
    port: int
    home: str


class EmbeddedPostgres:
    """One server of `version` with its data below `directory`; superuser `postgres`, no password.

    `port`: 0 is the port kept in the directory, or a free one the first time; any other number is that port.
    `settings` go into postgresql.conf, which is written anew at every start; ALTER SYSTEM overrides them.
    """

    def __init__(
        self,
        directory: Path | str,
        version: int = VERSION_NEWEST,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = Path(directory).resolve()
        self.version = version
        self.log = self.directory / "postgres.log"
        self._wanted_port = port
        self._settings = dict(settings or {})
        self._chosen_port: int | None = None
        self._identity_file = self.directory / "postgres.json"
        # The server knows nothing of this setting: it makes our process known by its command line.
        self._mark = f"lowwater.directory={self.directory}"
        self._daemon = Daemon(self.directory / "postgres.pid", ("postgres", self._mark))

    @property
    def pid(self) -> int | None:
        """The postmaster's; None when the server does not run."""
        return self._daemon.pid

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    @property
    def port(self) -> int:
        return self._identity().port

    @property
    def conninfo(self) -> str:
        """For libpq, and all that is made of it; the database is `postgres`."""
        return f"host={HOST} port={self.port} user={USER} dbname=postgres"

    @property
    def data(self) -> Path:
        return self._home / "data"

    @property
    def _home(self) -> Path:
        return Path(self._identity().home)

    @property
    def _programs(self) -> Path:
        return self._home / f"programs{self.version}"

    @staticmethod
    def bin(name: str) -> Path:
        """A client program of the newest version, for instance pgbench; it works with every server here."""
        return find_client(name)

    def start(self, *, timeout_seconds: float = START_SECONDS_MAX) -> bool:
        """Returns when the server serves: True if this call started it, False if it was running already."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._one_start_at_a_time():
            started = not self.is_running
            said_before = self.log.stat().st_size if self.log.exists() else 0
            if started:
                self._launch()
            self._wait_until_serving(timeout_seconds, said_before)
        return started

    def stop(self, mode: StopMode = "fast", *, timeout_seconds: float = STOP_SECONDS_MAX) -> bool:
        """False when it was not running. What does not end in time is killed.

        `fast` rolls back, writes a checkpoint, and first waits until a client that reads a slot has acknowledged
        everything. `immediate` does none of this: the next start recovers, as after a crash.
        """
        pid = self.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):  # it ended by itself between the two lines
            os.kill(pid, SIGNALS[mode])
        if not self._daemon.wait_until_gone(timeout_seconds):
            self.kill()
        return True

    def kill(self) -> bool:
        """`kill -9` of the postmaster and of all its children. False when it was not running."""
        pid = self.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # so that it starts no others in their place
        # A child that still holds the shared memory would make the next start refuse.
        kill_children(pid, STOP_SECONDS_MAX)
        self._daemon.kill()
        return True

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Kill it and delete its data, also below /tmp."""
        self.kill()
        if not self._identity_file.exists():
            return
        if self._home == self.directory:
            for ours in (self.data, self._programs):
                if ours.exists():
                    shutil.rmtree(ours)
        else:
            shutil.rmtree(self._home)
        self._identity_file.unlink()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- starting ------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        found = find_install(self.version)
        if not is_free(self.port, HOST):
            raise ConfigError(
                f"port {self.port} is taken by another program, so PostgreSQL cannot listen there",
                hint="stop that program (ss -ltnp names it), or choose another port",
            )
        self._keep()
        install = found if is_reachable(found.bin("postgres")) else found.copy_to(self._programs)
        if not self.data.exists():
            self._make_data(install)
        self._check_version()
        conf = {**SETTINGS, "port": str(self.port), **self._settings}
        (self.data / "postgresql.conf").write_text("".join(f"{name} = {_quoted(conf[name])}\n" for name in conf))
        command = [str(install.bin("postgres")), "-D", str(self.data), "-c", self._mark]
        self._daemon.start(as_plain_user(command), log=self.log)

    def _make_data(self, install: Install) -> None:
        """Under another name until it is whole: a start that is killed half-way leaves nothing that looks like data."""
        part = self.data.with_name("data.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        give_to_plain_user(part)
        how = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        done = subprocess.run(
            as_plain_user([str(install.bin("initdb")), "-D", str(part), *how]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LowwaterError(
                f"initdb of PostgreSQL {self.version} failed: {_reason(done.stdout + done.stderr)}",
                hint="mend what it names, then start again",
            )
        part.rename(self.data)

    def _check_version(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text().strip()
        if made_by != str(self.version):
            raise ConfigError(
                f"the data in {self.directory} is of PostgreSQL {made_by}, not {self.version}",
                hint="choose another directory, or that version",
            )

    def _wait_until_serving(self, timeout_seconds: float, said_before: int) -> None:
        end = time.monotonic() + timeout_seconds
        while not self._is_ready():
            if not self.is_running:
                said = self.log.read_bytes()[said_before:].decode(errors="replace")
                raise LowwaterError(f"PostgreSQL ended at its start: {_reason(said)}", hint=f"see {self.log}")
            if time.monotonic() > end:
                raise LowwaterError(f"PostgreSQL did not serve within {timeout_seconds:.0f} s", hint=f"see {self.log}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        """As pg_ctl finds out: the first line of this file is the pid, the eighth is the state."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() in SERVING and lines[0].strip() == str(self.pid)

    # -- what is kept in the directory ---------------------------------------------------------------------

    def _identity(self) -> _Identity:
        """What the directory holds, else what it will hold after the first start."""
        if self._identity_file.exists():
            kept = _Identity(**json.loads(self._identity_file.read_text()))
            if self._wanted_port in (0, kept.port) or self.is_running:
                return kept
            return _Identity(self._wanted_port, kept.home)
        if self._chosen_port is None:
            self._chosen_port = self._wanted_port or free_port()
        return _Identity(self._chosen_port, str(self.directory))

    def _keep(self) -> None:
        identity = self._identity()
        if not self._identity_file.exists() and not is_reachable(self.directory):
            identity = _Identity(identity.port, str(_new_home()))
        unfinished = self._identity_file.with_suffix(".tmp")
        unfinished.write_text(json.dumps(vars(identity)))
        unfinished.replace(self._identity_file)

    @contextmanager
    def _one_start_at_a_time(self) -> Iterator[None]:
        """Two commands at once must not start two servers. The kernel's lock dies with its holder."""
        with (self.directory / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _new_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="lowwater-postgres-", dir=HOMES))
    home.chmod(0o755)  # the data inside is 0700
    if not is_reachable(home):
        home.rmdir()
        raise ConfigError(f"the user of PostgreSQL's server cannot enter {HOMES}", hint=f"chmod o+x {HOMES}")
    return home


def _quoted(value: str) -> str:
    """As postgresql.conf wants it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _reason(said: str) -> str:
    """The first line that names a failure and the one before it, which may tell its cause; else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if "FATAL:" in line or "PANIC:" in line or "error:" in line:
            return "; ".join(lines[max(number - 1, 0) : number + 1])
    return (lines or ["it said nothing"])[-1]
