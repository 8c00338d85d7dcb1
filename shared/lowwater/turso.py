"""For applications that write to a Turso database which lowwater captures. `pyturso` is imported by the caller only.

    connection = turso.connect("app.db", experimental_features=lowwater.turso.FEATURES)
    lowwater.turso.capture(connection)

Capture is a setting of each connection: changes made through a connection without it are not logged.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from lowwater.errors import ConfigError, StartRefusedError

#: allows several processes to open the same file; without it the first process locks the file exclusively
FEATURES = "multiprocess_wal"
MODES = ("full", "after", "before", "id")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Connection(Protocol):
    """A connection as returned by `turso.connect`."""

    def execute(self, sql: str, /) -> Any: ...


def capture(connection: Connection, mode: str = "full", table: str = "turso_cdc") -> None:
    """Enables capture for this connection.

    Raises ConfigError for an invalid mode or table name, and StartRefusedError for a database whose log would not be
    usable: MVCC mode, attached databases, or a capture table without transaction ids.
    """
    if mode not in MODES:
        raise ConfigError(f"capture mode {mode!r}", hint=f"one of {', '.join(MODES)}")
    if not _NAME.fullmatch(table):
        raise ConfigError(f"capture into a table {table!r}", hint="letters, digits and underscores")
    ((journal,),) = connection.execute("PRAGMA journal_mode").fetchall()
    if journal == "mvcc":
        raise StartRefusedError(
            "the database is in MVCC mode, in which changes are not logged in commit order",
            hint="PRAGMA journal_mode = wal",
        )
    attached = [name for _, name, _ in connection.execute("PRAGMA database_list").fetchall() if name != "main"]
    if attached:
        raise StartRefusedError(
            f"other files are attached: {', '.join(attached)}",
            hint="changes of their tables would be logged as changes of this file: use another connection for them, "
            "and attach no file to a connection that captures",
        )
    connection.execute(f"PRAGMA capture_data_changes_conn('{mode},{table}')").fetchall()
    ((now, _, version),) = connection.execute("PRAGMA capture_data_changes_conn").fetchall()
    if now != mode or version == "v1":
        connection.execute("PRAGMA capture_data_changes_conn('off')").fetchall()
        raise StartRefusedError(
            f"{table} is of version {version}, which has no transaction ids",
            hint=f"let lowwater read it to its end, then DROP TABLE {table} and capture again; or use another table",
        )
