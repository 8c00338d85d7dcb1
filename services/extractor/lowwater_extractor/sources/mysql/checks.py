"""Checks that a server is ready for capture, each with a fix."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.errors import LowwaterError
from lowwater_extractor.api import Check
from lowwater_extractor.sources.mysql.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import connect, quoted
from lowwater_extractor.sources.mysql.cursor.setup import check_cursors
from lowwater_extractor.sources.mysql.server import Server, log_end, logged_only
from lowwater_extractor.sources.mysql.setup import check_logged, keys_of, tables_of
from lowwater_extractor.sources.mysql.snapshot.visibility import WRITERS
from lowwater_extractor.sources.mysql.wire.replication import register

MYSQL_MIN, MARIADB_MIN = (8, 0, 1), (10, 6, 0)
#: with less retention, log may be purged during a long copy or an outage over night
RETENTION_HOURS_MIN = 24


def check_source(config: MysqlConfig, source: str) -> list[Check]:
    """Run all checks. A failed check does not stop the next ones, except for a failed connection."""
    catalogue = DatabaseCatalogue(config, source)
    try:
        server = catalogue.server
    except LowwaterError as error:
        return [Check("connection", False, error.what, error.hint or "")]
    try:
        return list(_checks(config, source, catalogue, server))
    finally:
        catalogue.close()


def _checks(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, server: Server) -> Iterator[Check]:
    yield Check("connection", True, f"{config.host}:{config.port} as {config.user}")
    least = MARIADB_MIN if server.is_mariadb else MYSQL_MIN
    wanted = ".".join(map(str, least))
    yield Check("version", server.version >= least, server.version_text, f"lowwater needs {wanted} or later")
    if config.mode == "incremental":
        yield from check_cursors(config, source, catalogue)
        return
    if config.has_log:
        yield from _settings(config, server)
        yield _position(config, source, server)
        yield _server_id(config, source, server)
        yield _replication(config, source, catalogue, server)
        yield _logged(config, source, catalogue, server)
        if config.copy_tables and not server.has_gtids:
            yield _visible(config, catalogue)
    yield from _tables(config, source, catalogue)


def _settings(config: MysqlConfig, server: Server) -> Iterator[Check]:
    is_on = server.get("log_bin").upper() in ("ON", "1")
    yield Check("log_bin", is_on, server.get("log_bin"), "start the server with --log-bin")
    format_ = server.get("binlog_format") or "ROW"
    yield Check("binlog_format", format_.upper() == "ROW", format_, "SET GLOBAL binlog_format = ROW; and in my.cnf")
    image = server.get("binlog_row_image") or "FULL"
    is_whole = server.has_whole_rows or not config.copy_tables
    yield Check(
        "binlog_row_image", is_whole, image,
        "SET GLOBAL binlog_row_image = FULL: copies need whole rows; or copy_tables: false",
    )  # fmt: skip
    metadata = server.get("binlog_row_metadata") or "NO_LOG"
    is_full = metadata.upper() == "FULL"
    yield Check(
        "binlog_row_metadata", True,
        metadata if is_full else f"{metadata}; advised: SET GLOBAL binlog_row_metadata = FULL, so that the log has the "
        "names of columns, and an altered table does not stop the source",
    )  # fmt: skip
    options = server.get("binlog_row_value_options")
    yield Check(
        "binlog_row_value_options", not options, options or "none", "SET GLOBAL binlog_row_value_options = ''"
    )  # fmt: skip
    yield _retention(server)


def _retention(server: Server) -> Check:
    seconds = float(server.get("binlog_expire_logs_seconds") or 0) or 86_400 * float(
        server.get("expire_logs_days") or 0
    )  # fmt: skip
    if not seconds:
        return Check("retention", True, "log is kept until it is purged manually")
    is_long = seconds >= 3600 * RETENTION_HOURS_MIN
    fix = f"SET GLOBAL binlog_expire_logs_seconds = {7 * 86_400}: a week"
    return Check("retention", is_long, f"log is kept for {seconds / 3600:.0f} hours", fix)


def _position(config: MysqlConfig, source: str, server: Server) -> Check:
    try:
        gtids = server.uses_gtids(config, source)
    except LowwaterError as error:
        return Check("position", False, error.what, error.hint or "")
    if gtids:
        return Check("position", True, "by GTIDs: another server that has them can take over")
    advice = "advised: gtid_mode = ON, so that another server can take over"
    return Check("position", True, f"by file and offset of this server; {advice}")


def _server_id(config: MysqlConfig, source: str, server: Server) -> Check:
    ours, theirs = config.server_id_of(source), server.get("server_id")
    if not int(theirs or 0):
        return Check("server_id", False, "the server has none", "SET GLOBAL server_id = 1; and in my.cnf")
    return Check(
        "server_id", str(ours) != theirs, f"ours {ours}, the server's {theirs}", "set server_id to another one"
    )


def _replication(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, server: Server) -> Check:
    """Check privileges by using them: SHOW GRANTS does not list privileges granted through roles."""
    name = "REPLICATION SLAVE, BINLOG MONITOR" if server.is_mariadb else "REPLICATION SLAVE, REPLICATION CLIENT"
    try:
        log_end(catalogue.connection, server, source)
        connection = connect(config, source)
        try:
            register(connection, config.server_id_of(source), source)
        finally:
            connection.close()
    except LowwaterError as error:
        return Check("privileges", False, error.what, f"GRANT {name} ON *.* TO {config.user}")
    return Check("privileges", True, "may read the log")


def _logged(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, server: Server) -> Check:
    try:
        check_logged(config, source, catalogue)
        only, never = logged_only(catalogue.connection, server, source)
    except LowwaterError as error:
        return Check("databases in the log", False, error.what, error.hint or "")
    if not only and not never:
        return Check("databases in the log", True, "all")
    what = f"only {', '.join(sorted(only))}" if only else f"all but {', '.join(sorted(never))}"
    advice = "statements on captured tables are lost if their session is in another one: TRUNCATE, ALTER, DROP"
    return Check("databases in the log", True, f"{what}; {advice}")


def _visible(config: MysqlConfig, catalogue: DatabaseCatalogue) -> Check:
    """Needed only without GTIDs: a copy queries the active write transactions."""
    try:
        catalogue.ask(f"{WRITERS} LIMIT 0")
    except LowwaterError as error:
        return Check("process", False, error.what, f"GRANT PROCESS ON *.* TO {config.user}; or copy_tables: false")
    return Check("process", True, "may read INNODB_TRX")


def _tables(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> Iterator[Check]:
    try:
        tables = tables_of(config, source, catalogue)
    except LowwaterError as error:
        yield Check("tables", False, error.what, error.hint or "")
        return
    yield _foreign_keys(config, source, catalogue, tables)
    keyless = sum(not table.key for table in tables)
    yield Check("tables", True, f"{len(tables)} tables{f', {keyless} of them not copied: no key' if keyless else ''}")
    yield _select(config, catalogue, tables)


def _foreign_keys(
    config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, tables: list[CatalogueTable]
) -> Check:
    """Foreign key actions matter only for a source that reads the log."""
    if not config.has_log:
        return Check("foreign keys", True, "rows are not read from the log")
    try:
        keys = keys_of(config, source, catalogue, tables, {})
    except LowwaterError as error:
        return Check("foreign keys", False, error.what, error.hint or "")
    count = len(keys.known.captured())
    if not count:
        return Check("foreign keys", True, "none changes rows of captured tables")
    what = "written to the log" if keys.is_logged else "not in the log: those tables are copied again"
    return Check("foreign keys", True, f"{count} change rows of captured tables, {what}")


def _select(config: MysqlConfig, catalogue: DatabaseCatalogue, tables: list[CatalogueTable]) -> Check:
    unread = []
    for table in tables:
        name = quoted(table.map.namespace, table.map.table)
        try:
            catalogue.ask(f"SELECT 1 FROM {name} LIMIT 0")
        except LowwaterError as error:
            unread.append(f"{table.name}: {error.what}")
    fix = f"GRANT SELECT ON … TO {config.user}"
    return Check("select", not unread, "; ".join(unread[:5]) or "may read them", fix if unread else "")
