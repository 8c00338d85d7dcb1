"""Server properties and queries about the binary log, for MySQL and MariaDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from lowwater.errors import SourceError, StartRefusedError
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import query
from lowwater_extractor.sources.mysql.position import Place, version_of

VARIABLES = (
    "version", "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_row_value_options",
    "gtid_mode", "server_id", "server_uuid", "binlog_checksum", "binlog_expire_logs_seconds", "expire_logs_days",
    "gtid_strict_mode", "gtid_domain_id", "lower_case_table_names", "innodb_native_foreign_keys",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Server:
    variables: dict[str, str]

    @property
    def version_text(self) -> str:
        return self.variables["version"]

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.version_text.lower()

    @property
    def version(self) -> tuple[int, int, int]:
        return version_of(self.version_text)

    @property
    def has_gtids(self) -> bool:
        return self.is_mariadb or self.variables.get("gtid_mode", "OFF").upper() == "ON"

    @property
    def identity(self) -> str:
        """Identifies the server that owns the log files."""
        return self.variables.get("server_uuid") or f"mariadb-{self.variables.get('server_id', '')}"

    @property
    def has_whole_rows(self) -> bool:
        return self.variables.get("binlog_row_image", "FULL").upper() in ("FULL", "FULL_NODUP")

    def get(self, name: str) -> str:
        return self.variables.get(name, "")

    def uses_gtids(self, config: MysqlConfig, source: str) -> bool:
        if config.position == "gtid" and not self.has_gtids:
            raise StartRefusedError(
                f"position: gtid, but gtid_mode is {self.get('gtid_mode')}", source=source,
                hint="SET GLOBAL gtid_mode = ON (by its steps), or position: file",
            )  # fmt: skip
        if config.position == "file" and self.is_mariadb:
            raise StartRefusedError("MariaDB is read by GTIDs", source=source, hint="position: auto")
        return self.has_gtids and config.position != "file"


def look(connection: Connection[Any], source: str) -> Server:
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    found = query(connection, source, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return Server({name.lower(): value for name, value in found})


def log_end(connection: Connection[Any], server: Server, source: str) -> Place:
    """Return file and offset after the last written event group."""
    row = _log_status(connection, server, source)
    return Place(row[0], int(row[1]))


def logged_only(connection: Connection[Any], server: Server, source: str) -> tuple[set[str], set[str]]:
    """Return the databases of binlog-do-db (empty: all) and of binlog-ignore-db."""
    row = _log_status(connection, server, source)
    only, never = (set(filter(None, str(text or "").split(","))) for text in row[2:4])
    return only, never


def _log_status(connection: Connection[Any], server: Server, source: str) -> tuple[Any, ...]:
    is_new = not server.is_mariadb and server.version >= (8, 2, 0)
    rows = query(connection, source, "SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS")
    if not rows:
        raise SourceError(
            "the server writes no binary log", source=source, hint="start it with log_bin; see docs/mysql.md, set up"
        )
    return tuple(rows[0])


def read_from_now(connection: Connection[Any], server: Server, source: str, *, gtids: bool) -> Place:
    """Return the current position. GTIDs are read before the offset, so that no transaction between them is lost."""
    names: str | None = None
    if gtids:
        variable = "@@GLOBAL.gtid_binlog_pos" if server.is_mariadb else "@@GLOBAL.gtid_executed"
        ((found,),) = query(connection, source, f"SELECT {variable}")
        names = found.replace("\n", "")
    end = log_end(connection, server, source)
    return Place(end.file, end.position, names)
