"""Plans copies. A file has no snapshot that several processes can share: a chunk contains the rows as of the time at
which it is read, and later changes replace them.

Chunks are ranges of the rowid, by which the table's B-tree is sorted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from lowwater.codec.table import TableSchema
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.turso import catalogue
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import Database
from lowwater_extractor.sources.turso.schema.definitions import NAMESPACE, Definitions, quoted

_KEEP_SECONDS = 2.0


class Bounds(NamedTuple):
    """Rows of a table whose rowid is above `after`, up to and including `to`; None: no bound."""

    table: str
    #: CREATE statement at the time of the plan: chunks of a table that was altered since are not read
    sql: str
    after: int | None
    to: int | None

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> Bounds:
        return cls(*json.loads(data))


def ranges(first: int, last: int, count: int, chunk_rows: int) -> list[tuple[int | None, int | None]]:
    """Return ranges of about `chunk_rows` rows each, if rowids are evenly distributed."""
    pieces = max(1, min(-(-count // chunk_rows), last - first + 1))
    cuts = [first + (last - first + 1) * n // pieces - 1 for n in range(1, pieces)]
    edges = [None, *cuts, None]
    return list(pairwise(edges))


class SnapshotView:
    """The `TableView` of a file. `tables`: full names of the tables to plan."""

    def __init__(self, config: TursoConfig, source: str, tables: Sequence[str]) -> None:
        self._config = config
        self._source = source
        self._left = list(tables)
        self._database = Database(config, source)
        self._definitions = Definitions(source, config.types)
        self._planned: dict[str, str] = {}
        self._kept_at = 0.0

    def plan(self, tables_max: int) -> list[PlannedTable]:
        if not self._left:
            return []
        now, self._left = self._left[:tables_max], self._left[tables_max:]
        with self._database.view():
            texts = catalogue.texts(self._database)
            return [self._plan(name, texts.get(name.removeprefix(f"{NAMESPACE}."))) for name in now]

    def _plan(self, full_name: str, sql: str | None) -> PlannedTable:
        name = full_name.removeprefix(f"{NAMESPACE}.")
        if sql is None:
            # dropped, or it never existed: the other tables are still copied
            return PlannedTable(TableSchema(self._source, NAMESPACE, name, 0, (), ()), None, [])
        definition = self._definitions.definition(name, sql)
        self._planned[full_name] = sql
        ((first, last, count),) = self._database.ask(f"SELECT min(rowid), max(rowid), count(*) FROM {quoted(name)}")
        found = ranges(first or 0, last or 0, count, self._config.chunk_rows)
        chunks = [(Bounds(name, sql, *one).encode(), -(-count // len(found))) for one in found]
        return PlannedTable(definition.schema(self._source), None, chunks)

    def keep(self, tables: Sequence[str]) -> list[str]:
        """Return the tables that were altered since the plan: their chunks are not read."""
        now = time.monotonic()
        if now - self._kept_at < _KEEP_SECONDS:
            return []
        self._kept_at = now
        texts = catalogue.texts(self._database)
        return [name for name in tables if texts.get(name.removeprefix(f"{NAMESPACE}.")) != self._planned.get(name)]

    def close(self) -> None:
        self._database.close()
