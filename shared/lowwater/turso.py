"""For those who write to a Turso database that lowwater captures. Needs `pyturso` only where it is used.

    connection = turso.connect("app.db", experimental_features=lowwater.turso.FEATURES)
    lowwater.turso.capture(connection)

Capture is a setting of each connection: what one without it writes is in no log.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from lowwater.errors import ConfigError, StartRefusedError

#: with these, several processes may have one file open. Without, the first one keeps it for itself
FEATURES = "multiprocess_wal"
MODES = ("full", "after", "before", "id")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Connection(Protocol):
    """As `turso.connect` makes them."""

    def execute(self, sql: str, /) -> Any: ...


def capture(connection: Connection, mode: str = "full", table: str = "turso_cdc") -> None:
    """From now on all that this connection writes is captured; what is refused here could not be told apart later."""
    if mode not in MODES:
        raise ConfigError(f"capture mode {mode!r}", hint=f"one of {', '.join(MODES)}")
    if not _NAME.fullmatch(table):
        raise ConfigError(f"capture into a table {table!r}", hint="letters, digits and underscores")
    ((journal,),) = connection.execute("PRAGMA journal_mode").fetchall()
    if journal == "mvcc":
        raise StartRefusedError(
            "the database is in MVCC mode, in which changes do not lie in the order of their commits",
            hint="PRAGMA journal_mode = wal",
        )
    attached = [name for _, name, _ in connection.execute("PRAGMA database_list").fetchall() if name != "main"]
    if attached:
        raise StartRefusedError(
            f"other files are attached: {', '.join(attached)}",
            hint="what is written to their tables would be captured as of this file: use another connection for them, "
            "and attach none to one that captures",
        )
    connection.execute(f"PRAGMA capture_data_changes_conn('{mode},{table}')").fetchall()
    ((now, _, version),) = connection.execute("PRAGMA capture_data_changes_conn").fetchall()
    if now != mode or version == "v1":
        connection.execute("PRAGMA capture_data_changes_conn('off')").fetchall()
        raise StartRefusedError(
            f"{table} is of version {version}, which does not tell transactions apart",
            hint=f"let lowwater read it to its end, then DROP TABLE {table} and capture again; or take another table",
        )
