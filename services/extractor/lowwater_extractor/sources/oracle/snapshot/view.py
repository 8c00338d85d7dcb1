"""A view of the database as of one SCN: transactions committed up to it are in the rows, later ones in the stream.

The view depends on undo, which the database retains only for a limited time. So the view is checked regularly. A
changed table definition (ORA-01466) is detected by a query that reads no rows; missing undo (ORA-01555) only by reading
rows. When the view is older than the default undo retention, each check reads one chunk, in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from lowwater.codec.table import TableSchema
from lowwater.errors import SnapshotGoneError
from lowwater.records.positions import Order
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import Database, quoted
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.dictionary.query import SqlDictionary
from lowwater_extractor.sources.oracle.discovery import SQL_SCN
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.snapshot.chunks import Bounds, Extent, chunk_count, cuts, pieces

#: a partition's segment has the table's name, and its own as PARTITION_NAME
SQL_EXTENTS = """
SELECT o.DATA_OBJECT_ID, e.RELATIVE_FNO, e.BLOCK_ID, e.BLOCKS, e.BYTES
FROM DBA_EXTENTS e
JOIN DBA_OBJECTS o ON o.OWNER = e.OWNER AND o.OBJECT_NAME = e.SEGMENT_NAME
  AND (o.SUBOBJECT_NAME = e.PARTITION_NAME OR (o.SUBOBJECT_NAME IS NULL AND e.PARTITION_NAME IS NULL))
WHERE e.OWNER = :owner AND e.SEGMENT_NAME = :name AND e.SEGMENT_TYPE LIKE 'TABLE%' AND o.OBJECT_TYPE LIKE 'TABLE%'
  AND o.DATA_OBJECT_ID IS NOT NULL"""
SQL_ROWS = "SELECT NUM_ROWS FROM DBA_TABLES WHERE OWNER = :owner AND TABLE_NAME = :name"

_KEEP_SECONDS = 5.0
#: the default of UNDO_RETENTION
_UNDO_SECONDS = 900.0

_log = structlog.get_logger()


class ScnView:
    """`tables`: full names of the tables to plan. `database` is a session in the captured container."""

    def __init__(
        self,
        config: OracleConfig,
        source: str,
        tables: Sequence[str],
        database: Database,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._source = source
        self._left = list(tables)
        self._database = database
        self._clock = clock
        self._made_at = self._kept_at = clock()
        ((scn,),) = database.ask(SQL_SCN)
        self._scn = Scn(int(scn))
        dictionary = SqlDictionary(database, config, source)
        self._tables = {version.full_name: version for version in dictionary.read(self._scn)}
        #: planned chunks, for checks that they can still be read
        self._planned: dict[str, list[Bounds]] = {}
        self._looked = 0
        _log.info("a view of the database", source=source, scn=self._scn, tables=len(self._left))

    def plan(self, tables_max: int) -> list[PlannedTable]:
        now, self._left = self._left[:tables_max], self._left[tables_max:]
        return [self._plan(name) for name in now]

    def _plan(self, name: str) -> PlannedTable:
        low = Order.mark(self._scn)
        version = self._tables.get(name)
        if version is None:
            # dropped, or it never existed: the other tables are copied nevertheless
            owner, _, table = name.partition(".")
            return PlannedTable(TableSchema(self._source, owner, table, 0, (), ()), low, [])
        rows, chunks = self._chunks(version)
        self._planned[name] = chunks
        return PlannedTable(version.schema, low, [(c.encode(), -(-rows // len(chunks))) for c in chunks])

    def _chunks(self, version: TableVersion) -> tuple[int, list[Bounds]]:
        """The estimated number of rows, and the chunks."""
        whole = Bounds(version.owner, version.table, self._scn)
        found = self._database.ask(SQL_ROWS, owner=version.owner, name=version.table)
        rows = None if not found or found[0][0] is None else int(found[0][0])
        if version.is_index_organized or version.is_clustered:
            return rows or 0, [whole]
        asked = self._database.ask(SQL_EXTENTS, owner=version.owner, name=version.table)
        extents = [Extent(*map(int, row)) for row in asked]
        size = sum(extent.bytes for extent in extents)
        return rows or 0, pieces(whole, cuts(extents, chunk_count(rows, size, self._config.chunk_rows)))

    def keep(self, tables: Sequence[str]) -> list[str]:
        """The tables that can no longer be read as of the SCN."""
        now = self._clock()
        if now - self._kept_at < _KEEP_SECONDS:
            return []
        self._kept_at = now
        gone = [name for name in tables if self._is_gone(name, "ROWNUM < 1", {"scn": self._scn})]
        chunks = [(name, chunk) for name in tables if name not in gone for chunk in self._planned.get(name, [])]
        if chunks and now - self._made_at > _UNDO_SECONDS:
            self._looked += 1
            name, chunk = chunks[self._looked % len(chunks)]
            if self._is_gone(name, chunk.where, chunk.binds):
                gone.append(name)
        return gone

    def _is_gone(self, name: str, where: str, binds: dict[str, object]) -> bool:
        owner, _, table = name.partition(".")
        # a full scan, not an index: the copy reads the table's blocks
        sql = f"SELECT /*+ FULL(t) */ COUNT(*) FROM {quoted(owner)}.{quoted(table)} AS OF SCN :scn t WHERE {where}"
        try:
            self._database.ask(sql, **binds)
        except SnapshotGoneError as error:
            _log.warning("a table can no longer be copied as it was", table=name, **error.fields())
            return True
        return False

    def close(self) -> None:
        self._database.close()
