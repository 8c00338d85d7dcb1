"""Checks before capture: tables, server settings, foreign keys and the position to start or continue from."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from lowwater.errors import IncarnationError, LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater.runtime.times import now_us
from lowwater_extractor.modes import is_wanted
from lowwater_extractor.sources.mysql.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.ddl.apply import Keys
from lowwater_extractor.sources.mysql.ddl.foreign_keys import (
    HINT,
    ChildKey,
    ForeignKeys,
    find_keys,
    is_done_by_server,
)
from lowwater_extractor.sources.mysql.ddl.statements import Xid
from lowwater_extractor.sources.mysql.position import PendingGtids, Resume, file_number
from lowwater_extractor.sources.mysql.server import Server, log_end, logged_only, read_from_now
from lowwater_extractor.sources.mysql.types import Wanted
from lowwater_extractor.sources.mysql.wire.gtid import GtidSet

#: name of the note with `PendingGtids`
AHEAD = "ahead"

#: TABLE_TYPEs in information_schema.TABLES that are not tables
NO_TABLES = ("VIEW", "SYSTEM VIEW", "SEQUENCE")

_log = structlog.get_logger()


def tables_of(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> list[CatalogueTable]:
    """Return the configured tables. Raises if one is missing or cannot be captured."""
    found = [t for t in catalogue.tables(lambda name: is_wanted(config.tables, name)) if t.kind not in NO_TABLES]
    names = {table.name for table in found}
    missing = [name for name in config.tables if not name.endswith(".*") and name not in names]
    if missing or not found:
        raise SourceError(
            f"no such table: {', '.join(missing or config.tables)}", source=source,
            hint="tables are `database.table` or `database.*`; a view has no log: mode: incremental reads it",
        )  # fmt: skip
    if dotted := sorted({table.map.namespace for table in found if "." in table.map.namespace}):
        raise StartRefusedError(
            f"the database {dotted[0]} has a dot in its name", source=source,
            hint="the names of its tables would be ambiguous: remove them from `tables`",
        )  # fmt: skip
    if versioned := [table.name for table in found if table.kind == "SYSTEM VERSIONED"]:
        raise StartRefusedError(
            f"{', '.join(versioned)}: system-versioned tables cannot be captured yet", source=source,
            hint="name the tables one by one, without these",
        )  # fmt: skip
    keyless = [table.name for table in found if not table.key]
    if keyless and config.without_key == "refuse":
        raise StartRefusedError(
            f"no primary key: {', '.join(keyless)}", source=source,
            hint="add one; or set without_key: stream_only, and they are captured from now on, and not copied",
        )  # fmt: skip
    return found


def keys_of(
    config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, tables: list[CatalogueTable],
    notes: Mapping[str, bytes],
) -> Keys:  # fmt: skip
    """Return the foreign keys whose actions change captured rows. Raises StartRefusedError if these changes are not in
    the log, unless `foreign_key_actions` is recopy. `notes`: the source's, with the keys known at the last read."""
    asked: set[str] = set()
    listed = find_keys(catalogue, [table.name for table in tables], source, asked)
    found = ForeignKeys(listed, lambda name: is_wanted(config.tables, name), notes)
    is_refused, is_logged = config.foreign_key_actions == "refuse", is_done_by_server(catalogue.server)
    if is_refused and not is_logged and (keys := found.captured()):
        raise StartRefusedError(
            f"foreign keys change rows without the log: {', '.join(map(str, keys[:5]))}"
            f"{f' and {len(keys) - 5} more' if len(keys) > 5 else ''}",
            source=source, hint=HINT,
        )  # fmt: skip

    def above(table: str) -> list[ChildKey]:
        return find_keys(catalogue, [table], source, asked) if catalogue.server.is_mariadb else []

    return Keys(found, is_refused=is_refused, is_logged=is_logged, keys_of=above)


def check_settings(server: Server, source: str) -> None:
    """Raise if a server setting would make changes missing or wrong."""
    if server.get("log_bin").upper() not in ("ON", "1"):
        raise StartRefusedError("the server writes no binary log", source=source, hint="start it with log_bin")
    if server.get("lower_case_table_names") == "2":
        raise StartRefusedError(
            "lower_case_table_names is 2: the same table may have several names in the log", source=source,
            hint="capture a server that is not on macOS, where it is 0 or 1",
        )  # fmt: skip
    if server.get("binlog_format").upper() != "ROW":
        raise StartRefusedError(
            f"binlog_format is {server.get('binlog_format')}", source=source,
            hint="SET GLOBAL binlog_format = ROW; sessions that are open keep the old one until they reconnect",
        )  # fmt: skip


def check_logged(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> None:
    """Raise if the server does not log a database of captured tables."""
    only, never = logged_only(catalogue.connection, catalogue.server, source)
    spaces = {name.split(".", 1)[0] for name in config.tables}
    if lost := sorted(space for space in spaces if space in never or (only and space not in only)):
        raise StartRefusedError(
            f"the server leaves {', '.join(lost)} out of its log (binlog-do-db, binlog-ignore-db)", source=source,
            hint="start it without these options, only logged changes can be captured; or use mode: incremental",
        )  # fmt: skip
    if only or never:
        _log.warning(
            "statements of sessions whose current database is not logged are not in the log", source=source,
            logged=sorted(only) or "all", not_logged=sorted(never),
        )  # fmt: skip


def begin(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue) -> Resume:
    """Return the position for a capture that starts now.

    Raises SourceLostError while XA transactions are prepared, unless `xa_at_start` is leave_out.
    """
    server = catalogue.server
    gtids = server.uses_gtids(config, source)
    open_ = _prepared(catalogue, source)
    place = read_from_now(catalogue.connection, server, source, gtids=gtids)
    open_ += _prepared(catalogue, source)
    if open_ and config.xa_at_start == "wait":
        raise SourceLostError(
            f"prepared XA transactions whose changes are already in the log: {', '.join(open_[:3])}",
            source=source,
            hint="XA COMMIT or XA ROLLBACK them (XA RECOVER lists them): it is tried again; or xa_at_start: leave_out",
        )
    return Resume(now_us(), place, server.identity)


def _prepared(catalogue: DatabaseCatalogue, source: str) -> list[str]:
    return sorted(map(str, prepared(catalogue, source) or ()))


def prepared(catalogue: DatabaseCatalogue, source: str) -> frozenset[Xid] | None:
    """Return the XA transactions that the server has prepared; None if the user may not query them."""
    try:
        rows = catalogue.ask("XA RECOVER")
    except SourceLostError:
        raise
    except SourceError as error:
        _log.warning("prepared XA transactions cannot be queried", source=source, why=error.what)
        return None
    # both parts of an xid are returned concatenated, as bytes or as text
    named = [(format_, size, data if isinstance(data, bytes) else data.encode()) for format_, size, _, data in rows]
    return frozenset(Xid(format_, data[:size], data[size:]) for format_, size, data in named)


def go_on(resume: Resume, source: str, catalogue: DatabaseCatalogue, *, gtids: bool) -> None:
    """Raise if the log cannot be continued: it is a different log, or required log was purged."""
    server = catalogue.server
    if gtids != (resume.place.gtids is not None):
        raise StartRefusedError(
            f"the log was read by {'file and offset' if gtids else 'GTIDs'} before", source=source,
            hint=f"set position: {'file' if gtids else 'gtid'}; or reset the source's position",
        )  # fmt: skip
    end = log_end(catalogue.connection, server, source)
    is_same = resume.server == server.identity
    if is_same and file_number(end.file) < file_number(resume.place.file):
        raise IncarnationError(
            f"the server's log ends at {end.file}, but was read to {resume.place}", source=source,
            hint="its logs were reset, or it was restored: reset the source's position, its tables are copied again",
        )  # fmt: skip
    if not is_same:
        _log.info("another server", source=source, before=resume.server, now=server.identity)
    if gtids and not server.is_mariadb:
        _check_gtids(resume, source, catalogue)


def _check_gtids(resume: Resume, source: str, catalogue: DatabaseCatalogue) -> None:
    ((executed, purged),) = catalogue.ask("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")
    read = GtidSet.parse(resume.place.gtids or "")
    if not GtidSet.parse(purged) <= GtidSet.parse(resume.start.gtids or ""):
        raise LogGapError(
            "the server has purged log that is still needed", source=source, thread=1, position=str(resume.place),
            hint="reset the source's position, its tables are copied again; raise binlog_expire_logs_seconds",
        )  # fmt: skip
    if not read <= GtidSet.parse(executed):
        raise IncarnationError(
            "the server lacks transactions that were read before", source=source,
            hint="it lags behind, or was restored: wait for it, or reset the source's position to start again",
        )  # fmt: skip


def ahead_of(notes: Mapping[str, bytes], resume: Resume) -> PendingGtids:
    note = notes.get(AHEAD)
    return PendingGtids.unpack(note, resume.count) if note else PendingGtids()


def wanted_of(config: MysqlConfig) -> Wanted:
    return Wanted(frozenset(config.as_text), config.zero_dates == "null")
