"""A PostgreSQL server for tests, benchmarks and the demo: logical decoding enabled, loopback only."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from lowwater.errors import ConfigError
from lowwater_devkit.servers.embedded import HOST, STOP_SECONDS_MAX, EmbeddedDatabase
from lowwater_devkit.servers.plain_user import as_plain_user, is_reachable
from lowwater_devkit.servers.postgres_install import VERSION_NEWEST, Install, find_client, find_install
from lowwater_fleet.runner.process_tree import kill_children

USER = "postgres"

#: status in postmaster.pid of a server that accepts connections: a primary, or a standby
SERVING = ("ready", "standby")

StopMode = Literal["fast", "immediate"]
SIGNALS: Mapping[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# Settings of all embedded servers; `settings` of EmbeddedPostgres overrides them.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # TCP is enough, and the path of a socket is limited to 107 bytes
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "fsync": "on",
    "log_line_prefix": "%m [%p] %d ",
}


class EmbeddedPostgres(EmbeddedDatabase):
    """A server of `version`; superuser `postgres`, no password.

    `settings` are written to postgresql.conf at every start; ALTER SYSTEM overrides them.
    """

    def __init__(
        self,
        directory: Path | str,
        version: int = VERSION_NEWEST,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        home = Path(directory).resolve()
        self.version = version
        # Not used by the server: it identifies our process by its command line.
        self._mark = f"lowwater.directory={home}"
        known_by = ("postgres", self._mark)
        super().__init__(home, "postgres", f"PostgreSQL {version}", port, settings, known_by, f"programs{version}")

    @property
    def conninfo(self) -> str:
        """Connection string for libpq; the database is `postgres`."""
        return f"host={HOST} port={self.port} user={USER} dbname=postgres"

    @staticmethod
    def bin(name: str) -> Path:
        """A client program of the newest version, for example pgbench; works with all server versions."""
        return find_client(name)

    def stop(self, mode: StopMode = "fast", *, timeout_seconds: float = STOP_SECONDS_MAX) -> bool:
        """Stop the server; it is killed after the timeout. False if it was not running.

        `fast` rolls back transactions, waits until replication clients have received all WAL, and writes a
        checkpoint. `immediate` does none of this: the next start recovers, as after a crash.
        """
        pid = self.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(pid, SIGNALS[mode])
        if not self._daemon.wait_until_gone(timeout_seconds):
            self.kill()
        return True

    def kill(self) -> bool:
        """`kill -9` of the postmaster and all its children. False if it was not running."""
        pid = self.pid
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # so that it starts no new children
        # The next start fails while a child still holds the shared memory.
        kill_children(pid, STOP_SECONDS_MAX)
        self._daemon.kill()
        return True

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def _launch(self) -> None:
        found = find_install(self.version)
        install = found if is_reachable(found.bin("postgres")) else found.copy_to(self._programs)
        if not self.data.exists():
            self._make_data(install)
        self._check_version()
        conf = {**SETTINGS, "port": str(self.port), **self._settings}
        (self.data / "postgresql.conf").write_text("".join(f"{name} = {_quoted(conf[name])}\n" for name in conf))
        command = [str(install.bin("postgres")), "-D", str(self.data), "-c", self._mark]
        self._daemon.start(as_plain_user(command), log=self.log)

    def _make_data(self, install: Install) -> None:
        part = self._new_data()
        how = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        self._fill_data(part, [str(install.bin("initdb")), "-D", str(part), *how])

    def _check_version(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text().strip()
        if made_by != str(self.version):
            raise ConfigError(
                f"the data in {self.directory} is of PostgreSQL {made_by}, not {self.version}",
                hint=f"choose another directory, or version {made_by}",
            )

    def _is_ready(self) -> bool:
        """As in pg_ctl: the first line of postmaster.pid is the pid, the eighth is the status."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() in SERVING and lines[0].strip() == str(self.pid)

    def _reason(self, said: str) -> str:
        """The first line with an error and the line before it, which may contain the cause; else the last line."""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        for number, line in enumerate(lines):
            if "FATAL:" in line or "PANIC:" in line or "error:" in line:
                return "; ".join(lines[max(number - 1, 0) : number + 1])
        return (lines or ["there is no output"])[-1]


def _quoted(value: str) -> str:
    """Quoted for postgresql.conf."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
