"""Plans copies without a common snapshot.

A server writes a transaction to its log before it is visible. The stream may therefore have read a transaction that a
SELECT does not show yet, and a copy made by that SELECT would permanently lack it. A chunk therefore contains the
position up to which the stream had read at planning, and its reader waits until everything before it is visible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from lowwater.codec.table import TableSchema
from lowwater.errors import StartRefusedError
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.mysql.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.position import Place
from lowwater_extractor.sources.mysql.relations import shape
from lowwater_extractor.sources.mysql.setup import wanted_of
from lowwater_extractor.sources.mysql.snapshot import chunks
from lowwater_extractor.sources.mysql.snapshot.chunks import Bounds, Key
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.charsets import Decoders

#: time limit of one `plan` call: one step along an index may take a second, and the stream continues in between
STEP_SECONDS = 0.3
_KEEP_SECONDS = 5.0

_INTEGERS = (tm.TINY, tm.SHORT, tm.INT24, tm.LONG, tm.LONGLONG)
_ROWS = "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"


class RangesView:
    """`read_to`: returns the position that the stream has read to; None without a stream. `is_due`: whether a table may
    be planned now; otherwise it is checked again later."""

    def __init__(
        self, config: MysqlConfig, source: str, tables: Sequence[str], read_to: Callable[[], Place | None],
        is_due: Callable[[str], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        self._config = config
        self._source = source
        self._read_to = read_to
        self._is_due = is_due
        self._left = list(tables)
        self._catalogue = DatabaseCatalogue(config, source)
        self._planning: Iterator[list[Key] | None] | None = None
        self._current: CatalogueTable | None = None
        #: definitions at planning
        self._shapes: dict[str, CatalogueTable] = {}
        self._kept_at = time.monotonic()
        if config.has_log and not self._catalogue.server.has_whole_rows:
            self._catalogue.close()
            raise StartRefusedError(
                f"copies need whole rows in the log, but binlog_row_image is "
                f"{self._catalogue.server.get('binlog_row_image')}",
                source=source, hint="SET GLOBAL binlog_row_image = FULL; or copy_tables: false",
            )  # fmt: skip

    def plan(self, tables_max: int) -> list[PlannedTable]:
        found: list[PlannedTable] = []
        until = time.monotonic() + STEP_SECONDS
        while self._left and len(found) < tables_max and time.monotonic() < until:
            if self._planning is None and not self._take_due():
                break
            planned = self._step(self._left[0])
            if planned is not None:
                found.append(planned)
                self._left.pop(0)
                self._planning = self._current = None
        return found

    def _take_due(self) -> bool:
        """Move the first table that may be planned now to the front; return False if there is none."""
        name = next((name for name in self._left if self._is_due(name)), None)
        if name is None:
            return False
        self._left.remove(name)
        self._left.insert(0, name)
        return True

    def _step(self, name: str) -> PlannedTable | None:
        namespace, table = name.split(".", 1)
        if self._planning is None:
            self._current = self._catalogue.find(namespace, table)
            if self._current is None or not self._current.key:
                # dropped, or without a key now: return no chunks, so that the other tables are copied
                return PlannedTable(TableSchema(self._source, namespace, table, 0, (), ()), None, [])
            self._planning = self._cuts(self._current)
        cuts = next(self._planning)
        if cuts is None:
            return None
        assert self._current is not None
        self._shapes[name] = self._current
        # read last, so that the mark at which the copy starts is not above this position
        at = self._read_to() or Place("", 0)
        whole = Bounds(
            namespace, table, self._current.key, gtids=at.gtids, file=at.file, position=at.position
        )  # fmt: skip
        schema, _, _ = shape(self._current.map, self._source, Decoders(self._catalogue), wanted_of(self._config))
        planned = chunks.cut(whole, cuts, self._rows(self._current))
        return PlannedTable(schema, None, [(chunk.bounds.encode(), chunk.rows_estimate) for chunk in planned])

    def _rows(self, table: CatalogueTable) -> int:
        """Return the server's estimate of the number of rows."""
        rows = self._catalogue.ask(_ROWS, table.map.namespace, table.map.table)
        return int(rows[0][0] or 0) if rows else 0

    # -- chunk boundaries --------------------------------------------------------------------------------

    def _cuts(self, table: CatalogueTable) -> Iterator[list[Key] | None]:
        """Yield None after each step, and finally the first keys of all chunks except the first."""
        columns = [table.map.columns[i] for i in table.map.key]
        letters = [chunks.key_letter(column) for column in columns]
        rows = self._rows(table)
        if not all(letters) or rows <= self._config.chunk_rows:
            yield []
        elif columns[0].type in _INTEGERS:
            yield self._number_cuts(table, rows)
        else:
            yield from self._walked_cuts(table, letters)

    def _number_cuts(self, table: CatalogueTable, rows: int) -> list[Key]:
        whole = Bounds(table.map.namespace, table.map.table)
        column = quoted(table.key[0])
        ((low, high),) = self._catalogue.ask(f"SELECT MIN({column}), MAX({column}) FROM {whole.relation}")
        if low is None:
            return []
        cuts = chunks.number_cuts(int(low), int(high), rows, self._config.chunk_rows)
        return [(("n", str(number)),) for number in cuts]

    def _walked_cuts(self, table: CatalogueTable, letters: list[str]) -> Iterator[list[Key] | None]:
        whole = Bounds(table.map.namespace, table.map.table, table.key)
        cuts: list[Key] = []
        after: Key | None = None
        while True:
            found = self._catalogue.ask(chunks.walk_statement(whole, letters, after, self._config.chunk_rows))
            if not found:
                yield cuts
                return
            after = chunks.walked_key(found[0], letters)
            cuts.append(after)
            yield None

    # -- checks ------------------------------------------------------------------------------------------

    def keep(self, tables: Sequence[str]) -> list[str]:
        """Return the tables that were altered or dropped since planning."""
        now = time.monotonic()
        if now - self._kept_at < _KEEP_SECONDS:
            return []
        self._kept_at = now
        found = {table.name: table for table in self._catalogue.tables(lambda name: name in tables)}
        return [name for name in tables if name not in found or found[name].map != self._shapes[name].map]

    def close(self) -> None:
        self._catalogue.close()
