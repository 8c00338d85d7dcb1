"""The demo's PostgreSQL: an embedded server with a continuous pgbench (TPC-B) workload."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowwater.errors import ConfigError, LowwaterError
from lowwater_devkit.servers.embedded import HOST
from lowwater_devkit.servers.plain_user import plain_user
from lowwater_devkit.servers.postgres import USER, EmbeddedPostgres
from lowwater_devkit.servers.postgres_install import VERSION_NEWEST, find_client, find_install
from lowwater_fleet.runner.runner import wait_for
from lowwater_fleet.runner.services import Service

SOURCE = "postgres"
TABLES = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history")
CLIENTS, RATE = 4, 50
#: small, so that the copy of the 100,000 accounts has several chunks
CHUNK_ROWS = 20_000
#: practically unlimited: the demo stops pgbench
SECONDS_MAX = 30 * 24 * 3600


def lake_name(table: str) -> str:
    return f"{SOURCE}.public.{table}"


def check() -> str:
    """For `lowwater doctor`. The demo also runs without PostgreSQL."""
    if why := lacking():
        return f"not installed; the demo runs without it: {why}"
    return f"{VERSION_NEWEST} with pgbench, for the demo ({find_client('pgbench').parent})"


def lacking() -> str:
    """What is missing on this machine; empty if nothing is."""
    try:
        find_install(VERSION_NEWEST)
        find_client("pgbench")
        plain_user()
    except ConfigError as error:
        return error.what
    return "" if importlib.util.find_spec("psycopg") else "the package psycopg is not installed"


class DemoPostgres:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._server = EmbeddedPostgres(directory / SOURCE, VERSION_NEWEST)

    def start(self, say: Callable[[str], None]) -> None:
        """Start the server and load pgbench's tables. These rows are older than the captured log."""
        say(f"starting PostgreSQL {VERSION_NEWEST}")
        self._server.start()
        say("loading pgbench's tables")
        done = subprocess.run(self._pgbench("-i", "-q", "-s", "1"), capture_output=True, text=True, check=False)
        if done.returncode:
            raise LowwaterError(f"pgbench -i failed: {done.stderr.strip()}", hint=f"see {self._server.log}")
        # pgbench creates this table without a key, but rows can only be compared by a key
        self.execute("ALTER TABLE pgbench_history ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")

    def remove(self) -> None:
        """Delete the server, also that of an earlier run."""
        self._server.remove()

    def _pgbench(self, *arguments: str) -> list[str]:
        where = ["-h", HOST, "-p", str(self._server.port), "-U", USER]
        return [str(find_client("pgbench")), *where, *arguments, "postgres"]

    def source_config(self) -> dict[str, Any]:
        return {
            "host": HOST,
            "port": self._server.port,
            "database": "postgres",
            "user": USER,
            "tables": ["public.*"],
            "chunk_rows": CHUNK_ROWS,
            "spill_directory": str(self.directory / "spill"),
        }

    def pgbench(self, logs: Path) -> Service:
        options = ["-n", "-c", str(CLIENTS), "-j", "1", "-R", str(RATE), "-T", str(SECONDS_MAX)]
        return Service("pgbench", self._pgbench(*options), logs / "pgbench.log")

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        import psycopg  # not a dependency of the command line

        with psycopg.connect(self._server.conninfo, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def rows(self, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
        return self.execute(f"SELECT {', '.join(columns)} FROM {table}")

    def close_the_books(self, word: str) -> None:
        """Commit a final update with `word` after pgbench's last transaction. Amounts are not changed.

        pgbench must have been stopped.
        """
        mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'"
        wait_for("pgbench's last transaction", lambda: self.execute(mine) == [(0,)], 30)
        self.execute("UPDATE pgbench_branches SET filler = %s WHERE bid = 1", word)


def remove_old(directory: Path) -> None:
    """Remove the server of an earlier demo. Its data may be below /tmp; the path is stored in the directory."""
    if (directory / SOURCE).exists():
        DemoPostgres(directory).remove()
