"""A snapshot of the database, at a place in its log that is known exactly.

It comes from creating a slot, a temporary one: what committed before the slot's consistent point is in the snapshot,
everything else is in the stream. (A snapshot that is exported beside `pg_current_wal_lsn()` would lose transactions
whose commit is in the log already while they are still running for others.) A session of our own then takes the
snapshot over and exports it again, so that the slot can go and holds no log back.

Making a slot waits for every transaction that is running; so it is asked for, and looked at now and then.
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
    """`tables`: full names of those that are to be planned."""

    def __init__(self, config: PostgresConfig, source: str, tables: Sequence[str]) -> None:
        self._config = config
        self._source = source
        self._left = list(tables)
        self._holder: psycopg.Connection[Any] | None = None
        self._snapshot = ""
        #: none where nothing is followed from here on
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
            # there is no log to fit it to: any snapshot will do
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
            # it stays open for as long as the copy takes
            "SET idle_in_transaction_session_timeout = 0",
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        ):
            query(holder, self._source, statement)
        if snapshot:
            query(holder, self._source, sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        ((self._snapshot,),) = query(holder, self._source, "SELECT pg_export_snapshot()")
        self._holder = holder
        # as the snapshot shows them: one that was altered since has another version there than in the stream
        self._catalogue = DatabaseCatalogue(self._config, self._source, holder)
        self._tables = {table.name: table for table in self._catalogue.tables() if table.name in self._left}
        _log.info("snapshot", source=self._source, snapshot=self._snapshot, low=str(self._low))

    def plan(self, tables_max: int) -> list[PlannedTable]:
        if not self._left or not self._is_ready():
            return []
        now, self._left = self._left[:tables_max], self._left[tables_max:]
        assert self._catalogue is not None
        # of the snapshot, not of now: a rewrite since then is seen by `keep`
        self._filenodes |= self._catalogue.filenodes(now)
        return [self._plan(name) for name in now]

    def _plan(self, name: str) -> PlannedTable:
        assert self._holder is not None
        namespace, table = name.split(".", 1)
        known = self._tables.get(name)
        if known is None:
            # dropped since, or never there: the others are copied all the same
            return PlannedTable(TableSchema(self._source, namespace, table, 0, (), ()), self._low, [])
        with named_errors(self._source, f"plan the copy of {name}"):
            try:
                planned = plan_chunks(
                    self._holder, namespace, table, known.schema.key, self._config.chunk_rows, snapshot=self._snapshot
                )
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                # it may have its old name again before anybody looks: the next session finds what there is then
                raise SourceLostError(
                    f"{name} was renamed while its copy was planned", source=self._source, hint="it is tried again"
                ) from error
        chunks = [(chunk.bounds.encode(), chunk.rows_estimate) for chunk in planned]
        return PlannedTable(known.schema, self._low, chunks)

    def keep(self, tables: Sequence[str]) -> list[str]:
        """A table that was rewritten has its rows in other places, or seems empty to this snapshot."""
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
        """By a session of its own: the holder sees the catalogue as it was."""
        catalogue = DatabaseCatalogue(self._config, self._source)
        try:
            return catalogue.filenodes(tables)
        except SourceLostError as error:
            # the snapshot is there; the next look is soon
            _log.warning("tables that are copied could not be looked at", **error.fields())
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
