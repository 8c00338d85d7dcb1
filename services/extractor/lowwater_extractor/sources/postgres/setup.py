"""Publications, slot and lock of a source: created if missing, checked if they exist."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from lowwater.errors import IncarnationError, LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.modes import is_wanted
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect_replication
from lowwater_extractor.sources.postgres.publications import Publications
from lowwater_extractor.sources.postgres.slot_request import SlotRequest
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, format_lsn, parse_lsn

_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_HOLDERS = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::int8 << 32 | objid::int8) = hashtextextended(%s, 0)"""
_SLOT = """
SELECT plugin, database = current_database(), confirmed_flush_lsn::text, wal_status, active_pid
FROM pg_replication_slots WHERE slot_name = %s"""
_OLDEST = """
SELECT pid, xact_start FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"""

#: a slot is created once all running transactions have ended: how long one attempt waits
SLOT_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class SlotState:
    #: None for a slot that is still being created, and for some invalidated slots
    confirmed: Lsn | None
    active_pid: int | None
    is_lost: bool


class Setup:
    def __init__(self, config: PostgresConfig, source: str, catalogue: DatabaseCatalogue) -> None:
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self.slot = config.slot_of(source)
        self.publications = Publications(config, source, catalogue)

    # -- lock --------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take an advisory lock, held until the catalogue's connection is closed."""
        name = f"lowwater:{self.slot}"
        ((locked,),) = self._catalogue.ask(_LOCK, name)
        if not locked and self._config.when_locked == "take_over":
            self._catalogue.ask(_HOLDERS, name)
            for _ in range(50):
                ((locked,),) = self._catalogue.ask(_LOCK, name)
                if locked:
                    break
                self._catalogue.ask("SELECT pg_sleep(0.1)")
        if not locked:
            error = SourceError if self._config.when_locked == "stop" else SourceLostError
            raise error(
                "another extractor holds this source's lock",
                source=self._source,
                hint="it stops automatically once it is fenced; `when_locked` sets what to do: stop, wait or take_over",
            )

    # -- tables ------------------------------------------------------------------------------------------

    def tables(self) -> list[CatalogueTable]:
        """Return the configured tables. Raises if one is missing or cannot be captured."""
        found = self.wanted()
        names = {table.name for table in found}
        missing = [name for name in self._config.tables if not name.endswith(".*") and name not in names]
        if missing or not found:
            raise SourceError(
                f"no such table: {', '.join(missing or self._config.tables)}",
                source=self._source,
                hint="tables are `schema.table` or `schema.*`; name a partitioned table, not its partitions",
            )
        keyless = [table.name for table in found if not self.can_be_captured(table)]
        if keyless:
            raise self.without_identity(keyless)
        return found

    def wanted(self, oids: Sequence[int] | None = None) -> list[CatalogueTable]:
        """Return the tables that match the config, only those with these oids if given."""
        return [table for table in self._catalogue.tables(oids) if is_wanted(self._config.tables, table.name)]

    def can_be_captured(self, table: CatalogueTable) -> bool:
        return table.has_identity or self._config.without_key == "insert_only"

    def without_identity(self, tables: Sequence[str]) -> StartRefusedError:
        return StartRefusedError(
            f"updates and deletes of {', '.join(tables)} cannot be captured: no primary key, no replica identity",
            source=self._source,
            hint="add a primary key, or ALTER TABLE … REPLICA IDENTITY FULL, or set without_key: insert_only",
        )

    # -- slot --------------------------------------------------------------------------------------------

    def _slot(self) -> SlotState | None:
        rows = self._catalogue.ask(_SLOT, self.slot)
        if not rows:
            return None
        plugin, is_here, confirmed, wal_status, pid = rows[0]
        if plugin != "pgoutput" or not is_here:
            raise SourceError(
                f"slot {self.slot} belongs to another database or plugin: plugin {plugin}",
                source=self._source,
                hint="give this source another `slot`",
            )
        return SlotState(parse_lsn(confirmed) if confirmed else None, pid, wal_status == "lost")

    def create_slot(self) -> Lsn:
        """Create the slot and return its consistent point: transactions that commit after it are decoded completely."""
        connection = connect_replication(self._config, self._source)
        try:
            version = connection.info.server_version
            options = "SNAPSHOT 'nothing'" if version >= 150_000 else "NOEXPORT_SNAPSHOT"
            if version >= 170_000:
                options += ", FAILOVER"
            command = "CREATE_REPLICATION_SLOT {} LOGICAL pgoutput " + (
                f"({options})" if version >= 150_000 else options
            )
            request = SlotRequest(connection, self._source, sql.SQL(command).format(sql.Identifier(self.slot)))
            deadline = time.monotonic() + SLOT_SECONDS_MAX
            while (made := request.made()) is None:
                if time.monotonic() > deadline:
                    request.cancel()
                    raise self._transactions_are_running()
                time.sleep(0.02)
        finally:
            connection.close()
        return made.point

    def _transactions_are_running(self) -> SourceLostError:
        rows = self._catalogue.ask(_OLDEST)
        oldest = "; the oldest is of process {}, since {}".format(*rows[0]) if rows else ""
        return SourceLostError(
            f"slot {self.slot} waits for the transactions that are running{oldest}",
            source=self._source,
            hint="it is tried again; end the transaction if it was left open by mistake",
        )

    def _check_encoding(self) -> None:
        ((encoding,),) = self._catalogue.ask("SHOW server_encoding")
        if encoding == "SQL_ASCII":
            raise StartRefusedError(
                "the database's encoding is SQL_ASCII: the encoding of its texts is unknown",
                source=self._source,
                hint="move it to a database with an encoding, for example UTF8",
            )

    def _check_level(self) -> None:
        ((level,),) = self._catalogue.ask("SHOW wal_level")
        if level != "logical":
            raise StartRefusedError(
                f"the server's wal_level is {level}: its log cannot be decoded",
                source=self._source,
                hint="ALTER SYSTEM SET wal_level = logical; and restart the server; then resume the source",
            )

    def start(self, resume: Lsn | None) -> Lsn:
        """Return the LSN that reading starts at, at or before `resume`. Without `resume` the slot is created."""
        state = self._slot()
        if state is not None and state.active_pid and self._config.when_locked == "take_over":
            self._catalogue.ask("SELECT pg_terminate_backend(%s, 10000)", state.active_pid)
        if state is not None and resume is None:
            # there is no stored position (first start or reset): capture starts now, with a new slot
            self._catalogue.ask("SELECT pg_drop_replication_slot(%s)", self.slot)
            state = None
        if resume is None:
            self._check_level()
            self._check_encoding()
            return self.create_slot()
        self._check_end(resume)
        return self._check_slot(state, resume)

    def _check_end(self, resume: Lsn) -> None:
        """Raise if the log ends before `resume`: the server sends only flushed WAL, so this is a different log."""
        ((end,),) = self._catalogue.ask("SELECT pg_current_wal_insert_lsn()::text")
        if parse_lsn(end) < resume:
            raise IncarnationError(
                f"the server's log ends at {end}, before the position {format_lsn(resume)}",
                source=self._source,
                thread=1,
                position=format_lsn(resume),
                hint="the server was restored from an older backup: reset the source, and its tables are copied again",
            )

    def _check_slot(self, state: SlotState | None, resume: Lsn) -> Lsn:
        """Return the slot's confirmed LSN. Raises LogGapError if the slot no longer has the log from `resume` on."""
        if state is None:
            self._check_level()
            what = f"slot {self.slot} does not exist, so the log after {format_lsn(resume)} is lost"
            hint = "reset the source's position: a new slot is created and its tables are copied again"
        elif state.is_lost or state.confirmed is None:
            what = f"slot {self.slot} is invalidated: the server has removed log that was not captured"
            hint = "raise max_slot_wal_keep_size; then reset the source's position: its tables are copied again"
        elif state.confirmed > resume:
            moved = format_lsn(state.confirmed)
            what = f"slot {self.slot} was advanced to {moved}, the position is {format_lsn(resume)}"
            hint = "another reader used the slot: reset the source's position, its tables are copied again"
        else:
            return state.confirmed
        raise LogGapError(what, source=self._source, position=format_lsn(resume), hint=hint)
