"""A database snapshot with an exactly known LSN.

It is exported by creating a temporary slot: transactions that committed before the slot's consistent point are in the
snapshot, all others are in the stream. (pg_export_snapshot() with `pg_current_wal_lsn()` would lose transactions whose
commit record is already in the log while they are not yet visible.) A second session imports the snapshot and exports
it again, so that the slot can be dropped and retains no log.

Slot creation waits for all running transactions, so it runs asynchronously and is polled.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import psycopg
import structlog
from psycopg import sql

from lowwater.codec.table import TableSchema
from lowwater.errors import SourceError, SourceLostError
from lowwater.records.positions import Order
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.postgres import metrics
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect, connect_replication, named_errors, query
from lowwater_extractor.sources.postgres.slot_request import SlotRequest
from lowwater_extractor.sources.postgres.snapshot.chunks import plan_chunks

_KEEP_SECONDS = 5.0

_log = structlog.get_logger()


class SnapshotView:
    """Plans the copy of `tables` (full names) in one snapshot, and holds the snapshot open until `close`."""

    def __init__(self, config: PostgresConfig, source: str, tables: Sequence[str]) -> None:
        self._config = config
        self._source = source
        self._left = list(tables)
        self._holder: psycopg.Connection[Any] | None = None
        self._snapshot = ""
        #: LSN of the snapshot; None if no log is read
        self._low: Order | None = None
        self._made_at = time.monotonic()
        self._kept_at = self._made_at
        self._catalogue: DatabaseCatalogue | None = None
        self._tables: dict[str, CatalogueTable] = {}
        self._filenodes: dict[str, dict[int, int]] = {}
        self._maker: psycopg.Connection[Any] | None = connect_replication(config, source) if config.has_log else None
        self._request = self._ask_for_slot(self._maker) if self._maker is not None else None

    def _ask_for_slot(self, maker: psycopg.Connection[Any]) -> SlotRequest:
        name = f"lowwater_copy_{uuid.uuid4().hex[:16]}"
        export = "(SNAPSHOT 'export')" if maker.info.server_version >= 150_000 else "EXPORT_SNAPSHOT"
        command = sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput {}")
        return SlotRequest(maker, self._source, command.format(sql.Identifier(name), sql.SQL(export)))

    def _is_ready(self) -> bool:
        if self._holder is not None:
            return True
        if self._maker is None or self._request is None:
            # no log is read, so any snapshot is valid
            self._take_over("")
            return True
        made = self._request.made()
        if made is None:
            return False
        self._low = Order.mark(made.point)
        self._take_over(made.snapshot)
        self._maker.close()
        self._maker = None
        return True

    def _take_over(self, snapshot: str) -> None:
        holder = connect(self._config, self._source)
        for statement in (
            # the transaction stays open until the copy has finished
            "SET idle_in_transaction_session_timeout = 0",
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        ):
            query(holder, self._source, statement)
        if snapshot:
            query(holder, self._source, sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        ((self._snapshot,),) = query(holder, self._source, "SELECT pg_export_snapshot()")
        self._holder = holder
        # as of the snapshot: a table altered since then has a different version there than in the stream
        self._catalogue = DatabaseCatalogue(self._config, self._source, holder)
        self._tables = {table.name: table for table in self._catalogue.tables() if table.name in self._left}
        _log.info("snapshot", source=self._source, snapshot=self._snapshot, low=str(self._low))

    def plan(self, tables_max: int) -> list[PlannedTable]:
        if not self._left or not self._is_ready():
            return []
        now, self._left = self._left[:tables_max], self._left[tables_max:]
        assert self._catalogue is not None
        # as of the snapshot, so that `keep` detects rewrites since then
        self._filenodes |= self._catalogue.filenodes(now)
        return [self._plan(name) for name in now]

    def _plan(self, name: str) -> PlannedTable:
        assert self._holder is not None
        namespace, table = name.split(".", 1)
        known = self._tables.get(name)
        if known is None:
            # the table does not exist in the snapshot: return no chunks, so that the other tables are copied
            return PlannedTable(TableSchema(self._source, namespace, table, 0, (), ()), self._low, [])
        with named_errors(self._source, f"plan the copy of {name}"):
            try:
                planned = plan_chunks(
                    self._holder, namespace, table, known.schema.key, self._config.chunk_rows, snapshot=self._snapshot
                )
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                # the rename may be undone at any time: the next session plans with the names of that time
                raise SourceLostError(
                    f"{name} was renamed while its copy was planned", source=self._source, hint="it is tried again"
                ) from error
        chunks = [(chunk.bounds.encode(), chunk.rows_estimate) for chunk in planned]
        return PlannedTable(known.schema, self._low, chunks)

    def keep(self, tables: Sequence[str]) -> list[str]:
        """Keep the snapshot's session alive, and return the tables that were rewritten since the snapshot.

        Rows of a rewritten table have moved, or are invisible to this snapshot. Raises SourceLostError if the snapshot
        is lost.
        """
        now = time.monotonic()
        age_hours = (now - self._made_at) / 3600
        metrics.SNAPSHOT_SECONDS.labels(self._source).set(now - self._made_at)
        metrics.SNAPSHOT_ALARM.labels(self._source).set(age_hours > self._config.snapshot_hours_alarm)
        if self._holder is None or now - self._kept_at < _KEEP_SECONDS:
            return []
        self._kept_at = now
        try:
            query(self._holder, self._source, "SELECT 1")
        except SourceError as error:
            raise SourceLostError(f"the snapshot of a copy is lost: {error.what}", source=self._source) from error
        now_there = self._filenodes_now(tables)
        return [name for name in tables if now_there.get(name) != self._filenodes.get(name)]

    def _filenodes_now(self, tables: Sequence[str]) -> dict[str, dict[int, int]]:
        """Read the current filenodes in a separate session: the holder sees the catalogue as of the snapshot."""
        catalogue = DatabaseCatalogue(self._config, self._source)
        try:
            return catalogue.filenodes(tables)
        except SourceLostError as error:
            # the snapshot still exists; the next check follows in a few seconds
            _log.warning("tables that are being copied could not be checked", **error.fields())
            return self._filenodes
        finally:
            catalogue.close()

    def close(self) -> None:
        if self._request is not None and self._maker is not None:
            self._request.cancel()
        for connection in (self._maker, self._holder):
            if connection is not None:
                connection.close()
        metrics.SNAPSHOT_SECONDS.labels(self._source).set(0)
        metrics.SNAPSHOT_ALARM.labels(self._source).set(0)
