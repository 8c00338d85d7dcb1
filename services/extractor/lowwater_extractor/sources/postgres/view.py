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
from psycopg import pq, sql

from lowwater.errors import SourceError, SourceLostError
from lowwater.positions import Order
from lowwater_extractor.source import PlannedTable
from lowwater_extractor.sources.postgres import metrics
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.chunks import plan_chunks
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect, connect_replication, named_errors, query
from lowwater_extractor.sources.postgres.lsn import parse_lsn

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
        self._low = Order(0, 0)
        self._made_at = time.monotonic()
        self._kept_at = self._made_at
        self._catalogue: DatabaseCatalogue | None = None
        self._tables: dict[str, CatalogueTable] = {}
        self._filenodes: dict[str, dict[int, int]] = {}
        self._maker: psycopg.Connection[Any] | None = connect_replication(config, source)
        self._ask_for_slot(self._maker)

    def _ask_for_slot(self, maker: psycopg.Connection[Any]) -> None:
        name = f"lowwater_copy_{uuid.uuid4().hex[:16]}"
        export = "(SNAPSHOT 'export')" if maker.info.server_version >= 150_000 else "EXPORT_SNAPSHOT"
        command = sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput {}")
        text = command.format(sql.Identifier(name), sql.SQL(export)).as_string(maker)
        with named_errors(self._source, "make a slot for a copy"):
            maker.pgconn.send_query(text.encode())

    def _is_ready(self) -> bool:
        if self._holder is not None:
            return True
        assert self._maker is not None
        pg = self._maker.pgconn
        with named_errors(self._source, "make a slot for a copy"):
            pg.consume_input()
            if pg.is_busy():
                return False
            result = pg.get_result()
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            text = (result.error_message if result else b"no answer").decode().strip()
            raise SourceError(
                f"a slot for a copy: {text}",
                source=self._source,
                hint="raise max_replication_slots and max_wal_senders",
            )
        point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        assert point is not None
        assert snapshot is not None
        self._low = Order.mark(parse_lsn(point.decode()))
        self._take_over(snapshot.decode())
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
        assert self._holder is not None
        now, self._left = self._left[:tables_max], self._left[tables_max:]
        # before the plan: a rewrite in between is then seen by `keep`, too
        self._filenodes |= self._filenodes_of(now)
        found = []
        for name in now:
            table = self._tables.get(name)
            if table is None:
                raise SourceError(f"{name} is gone", source=self._source, hint="take it out of `tables`, and restart")
            with named_errors(self._source, f"plan the copy of {name}"):
                planned = plan_chunks(
                    self._holder,
                    table.schema.namespace,
                    table.schema.table,
                    table.schema.key,
                    self._config.chunk_rows,
                    snapshot=self._snapshot,
                )
            chunks = [(chunk.bounds.encode(), chunk.rows_estimate) for chunk in planned]
            found.append(PlannedTable(table.schema, self._low, self._low, chunks))
        return found

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
        now_there = self._filenodes_of(tables)
        return [name for name in tables if now_there.get(name) != self._filenodes.get(name)]

    def _filenodes_of(self, tables: Sequence[str]) -> dict[str, dict[int, int]]:
        assert self._catalogue is not None
        return self._catalogue.filenodes(tables)

    def close(self) -> None:
        for connection in (self._maker, self._holder):
            if connection is not None:
                connection.close()
        metrics.SNAPSHOT_SECONDS.labels(self._source).set(0)
        metrics.SNAPSHOT_ALARM.labels(self._source).set(0)
