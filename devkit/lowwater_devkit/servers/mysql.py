"""A MySQL or MariaDB server for tests, benchmarks and the demo: row-based binary log, loopback only."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lowwater_devkit.servers.embedded import HOST, EmbeddedDatabase
from lowwater_devkit.servers.mysql_install import Flavour, Install, find_install, is_mariadb
from lowwater_devkit.servers.plain_user import as_plain_user, give_to_plain_user, is_reachable

USER = "root"
#: the server's temporary directory, in its home
SCRATCH = "tmp"

#: options of all embedded servers; `settings` of EmbeddedMysql overrides them
SETTINGS: Mapping[str, str] = {
    "bind-address": HOST,
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "server-id": "1",
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    # durability after a power failure is not needed, and `kill -9` loses nothing with these
    "innodb-flush-method": "nosync",
    "innodb-doublewrite": "OFF",
    "max-connections": "200",
    "performance-schema": "OFF",
    "character-set-server": "utf8mb4",
}
OF_MYSQL: Mapping[str, str] = {
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "binlog-row-metadata": "FULL",
    "mysqlx": "OFF",
    "log-error-verbosity": "2",
    "secure-file-priv": "NULL",
}
#: options that MySQL 9 no longer has, or that are its defaults
OF_MYSQL_8: Mapping[str, str] = {
    **OF_MYSQL,
    "default-authentication-plugin": "mysql_native_password",
    "innodb-log-file-size": "48M",
    "log-slave-updates": "ON",
}
OF_MYSQL_9: Mapping[str, str] = {**OF_MYSQL, "innodb-redo-log-capacity": "96M"}
OF_MARIADB: Mapping[str, str] = {
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "ON",
    "innodb-log-file-size": "48M",
    "log-slave-updates": "ON",
}


class EmbeddedMysql(EmbeddedDatabase):
    """A server with user `root`, no password. `settings`: options of the server."""

    def __init__(
        self,
        directory: Path | str,
        flavour: Flavour = "mysql-8.0",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        home = Path(directory).resolve()
        self.flavour: Flavour = flavour
        # not an option of the server (`loose` makes it ignore it): it identifies our process by its command line
        self._mark = f"--loose-lowwater-directory={home}"
        super().__init__(home, "mysql", flavour, port, settings, (self._mark,), scratch=SCRATCH)

    @property
    def config(self) -> dict[str, str | int]:
        """Connection settings for a source's config."""
        return {"host": HOST, "port": self.port, "user": USER}

    def pause(self) -> None:
        """Suspend the process; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def _launch(self) -> None:
        found = find_install(self.flavour)
        install = found if is_reachable(found.program) else found.copy_to(self._programs)
        self._scratch.mkdir(exist_ok=True)
        give_to_plain_user(self._scratch)
        if not self.data.exists():
            self._make_data(install)
        self._daemon.start(as_plain_user(self._command(install)), log=self.log)

    def _command(self, install: Install) -> list[str]:
        settings = {**SETTINGS, **self._own, "port": str(self.port), **self._settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        # relative to the data directory, because the path of a socket is limited to 107 bytes
        files = [f"--datadir={self.data}", "--socket=server.socket", "--pid-file=server.pid"]
        return [*install.command, "--no-defaults", *files, *self._base(install), *options, self._mark]

    @property
    def _own(self) -> Mapping[str, str]:
        if is_mariadb(self.flavour):
            return OF_MARIADB
        return OF_MYSQL_8 if self.flavour == "mysql-8.0" else OF_MYSQL_9

    @property
    def _scratch(self) -> Path:
        return self._kept.path / SCRATCH

    def _base(self, install: Install) -> list[str]:
        share = install.share
        return [
            f"--basedir={install.root}", f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets",
            # not shared: a server deletes all temporary tables in it when it starts
            f"--tmpdir={self._scratch}",
        ]  # fmt: skip

    def _make_data(self, install: Install) -> None:
        part = self._new_data()
        how = ["--no-defaults", f"--datadir={part}", *self._base(install)]
        if (lower := self._settings.get("lower-case-table-names")) is not None:
            # this setting is fixed when the data is created
            how.append(f"--lower-case-table-names={lower}")
        if is_mariadb(self.flavour):
            how, text = [*how, "--bootstrap", "--log-warnings=0"], _bootstrap(install)
        else:
            small = "--innodb-log-file-size=48M" if self.flavour == "mysql-8.0" else "--innodb-redo-log-capacity=96M"
            how, text = [*how, "--initialize-insecure", small, "--secure-file-priv=NULL"], None
        self._fill_data(part, [*install.command, *how], text)

    def _is_ready(self) -> bool:
        """A server that accepts connections sends a handshake packet."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                greeting = connection.recv(5)
                return len(greeting) == 5 and greeting[4] == 10
        except OSError:
            return False

    def _reason(self, said: str) -> str:
        """The first line with an error; else the last line."""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return next(
            (line for line in lines if "[ERROR]" in line or line.startswith("ERROR")),
            (lines or ["there is no output"])[-1],
        )


def _bootstrap(install: Install) -> str:
    """SQL for --bootstrap, as in Debian's install script: the system tables, and a user without a password."""
    share = install.share
    names = ("system_tables", "performance_tables", "system_tables_data")
    # in MariaDB 11 the names start with mariadb
    files = [share / f"{brand}_{name}.sql" for name in names for brand in ("mysql", "mariadb")]
    parts = [path.read_text() for path in files if path.exists()]
    # one statement per line
    users = [f"root@{host}" for host in ("localhost", f"`{HOST}`")]
    grants = [f"CREATE USER IF NOT EXISTS {u};\nGRANT ALL PRIVILEGES ON *.* TO {u} WITH GRANT OPTION;" for u in users]
    begin = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n"
    return begin + "\n".join([*parts, "FLUSH PRIVILEGES;", *grants, ""])
