"""A source's changes and copies, applied to tables in memory: what a reader of the stream has, without any service.

What the runtime adds is done here by its own rules: a table is unknown from where it is stale, has another key, or has
columns whose old values the log does not tell (`needs_copy`), until it is copied.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lowwater.codec.avro import avro_type, change_schema
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import Frame, Polled, Source, SourceTransaction
from lowwater_extractor.snapshot.copy_rules import needs_copy
from tests.differential.compare import plain
from tests.differential.workload import Row, TableState
from tests.support.versions import Versions

Key = tuple[Any, ...]


class WrongChangeError(AssertionError):
    """A change that cannot be true of the rows before it."""


class Model:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.encoders = Versions()
        #: table → key → row by the names of its columns. A table that is not here is not known
        self.tables: dict[str, dict[Key, dict[str, Any]]] = {}
        #: tables that there were changes of, each with all of its versions so far
        self._versions: dict[str, list[TableSchema]] = {}
        self._stale: dict[str, Order] = {}

    # -- the stream --------------------------------------------------------------------------------------

    def take(self, polled: Polled) -> None:
        self.encoders.notes |= polled.notes
        new = {t: s.order for t, s in polled.stale.items() if self._stale.get(t, ORDER_MIN) < s.order}
        self._stale |= new
        for transaction in polled.transactions:
            self._apply(transaction)
            for table, order in new.items():
                if order <= transaction.order:
                    self.tables.pop(table, None)
        for table in new:
            self.tables.pop(table, None)

    def _apply(self, transaction: SourceTransaction) -> None:
        for frame in transaction.changes:
            self._change(frame)

    def _change(self, frame: Frame) -> None:
        version = self.encoders.table_of(frame)
        table, change = version.full_name, self.encoders.change(frame)
        if change.op == "t":
            if table in self.tables:
                self.tables[table] = {}
            return
        self._look_at(version)
        rows = self.tables.get(table)
        if rows is None:
            return
        before, after = (_named(version, row) for row in (change.before, change.after))
        old = None
        if before is not None:
            old = rows.pop(_key(version, before), None)
            if old is None:
                raise WrongChangeError(f"{table}: {change.op} of a row that is not there: {before}")
        if after is not None:
            if change.unchanged:
                assert old is not None
                after |= {name: old.get(name) for name in change.unchanged}
            if _key(version, after) in rows:
                raise WrongChangeError(f"{table}: {change.op} of a row that is there already: {after}")
            rows[_key(version, after)] = after

    def _look_at(self, now: TableSchema) -> None:
        """As the runtime does when it meets another version."""
        table = now.full_name
        known = self._versions.setdefault(table, [])
        last = known[-1] if known else None
        if last == now:
            return
        if last is None or self._why_unknown(last, now, known):
            self.tables.pop(table, None)
        known.append(now)

    def _why_unknown(self, last: TableSchema, now: TableSchema, known: Sequence[TableSchema]) -> bool:
        if last.key != now.key:
            return True
        old, new = ({c.name: json.dumps(avro_type(c.type)) for c in version.columns} for version in (last, now))
        were = {column.name for version in known for column in version.columns}
        return bool((new.keys() - old.keys()) & were) or needs_copy(old, new, self.source.filled_columns(now.full_name))

    # -- copies ------------------------------------------------------------------------------------------

    def copy(self, table: str) -> bool:
        """Nothing may be written meanwhile. False: there is nothing to copy."""
        view = self.source.begin_view([table])
        try:
            while not (planned := view.plan(1)):
                pass
        finally:
            view.close()
        if not planned[0].chunks:
            return False
        version = self.encoders.versioned(planned[0].table)
        # from here on the source knows that something of this table is published
        self.encoders.encoder(version)
        avro = json.dumps(change_schema(version))
        rows: dict[Key, dict[str, Any]] = {}
        count = len(planned[0].chunks)
        for number, (bounds, rows_max) in enumerate(planned[0].chunks, 1):
            chunk = Chunk(version.source, "c", table, number, count, 1, bounds, ORDER_MIN, ORDER_MIN, rows_max)
            for batch in self.source.read_chunk(chunk, avro, ColumnRules()):
                found = pa.Table.from_batches([batch])
                columns = [plain(found.column(n)) for n in range(len(version.columns))]
                for values in zip(*columns, strict=True):
                    row = {column.name: value for column, value in zip(version.columns, values, strict=True)}
                    rows[_key(version, row)] = row
        self.tables[table] = rows
        self._versions.setdefault(table, []).append(version)
        return True

    def check_shape(self, now: TableSchema) -> None:
        """The stream and a copy see the same columns: else one of them reads values as what they are not, and copies
        hide it. A change of types that came since is followed by a copy."""
        last = self._versions[now.full_name][-1]
        columns = ([column.name for column in version.columns] for version in (last, now))
        if len({*map(tuple, columns)}) == 1 and (last.columns, last.key) != (now.columns, now.key):
            differ = [(a, b) for a, b in zip(last.columns, now.columns, strict=True) if a != b]
            raise WrongChangeError(f"{now.full_name}: the stream and the catalogue differ in {differ}")

    def rows(self, table: str, wanted: TableState) -> Counter[Row]:
        """Canonical."""
        pairs = list(zip(wanted.columns, wanted.from_lake, strict=True))
        return Counter(tuple(make(row.get(name)) for name, make in pairs) for row in self.tables[table].values())


def _named(version: TableSchema, row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Avro's names of columns may be others."""
    if row is None:
        return None
    return {column.name: value for column, value in zip(version.columns, row.values(), strict=True)}


def _key(version: TableSchema, row: dict[str, Any]) -> Key:
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in version.key)
