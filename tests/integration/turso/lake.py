"""What a lake would have of a file: copies, the changes since then, what is stale; held against the file itself."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from tests.conformance.kit import Encoders
from tests.support.turso_file import Captured, TursoFile, copied

from lowwater.codec.avro import avro_columns, change_schema
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import long
from lowwater.records.positions import Order
from lowwater.records.wire import schema_id_of
from lowwater_extractor.api import Frame
from lowwater_extractor.snapshot.copy_rules import needs_copy

Row = dict[str, Any]


class Lake:
    """Tables by full name. What is new, stale or has other columns is copied, as the extractor does."""

    def __init__(self, file: TursoFile, **settings: Any) -> None:
        self.file = file
        self.reading = Captured(file.source(**settings), Encoders())
        self.rows: dict[str, dict[tuple[Any, ...], Row]] = {}
        #: where each table was copied, and with which columns
        self.copies: dict[str, tuple[Order, TableSchema]] = {}
        self.copied: list[str] = []
        self._passed = 0
        for table in self.reading.source.tables_to_copy():
            self._copy(table.full_name)

    @property
    def stale(self) -> dict[str, Order]:
        return {name: stale.order for name, stale in self.reading.polls[-1].stale.items()}

    def _copy(self, name: str) -> None:
        table = next((t for t in self.reading.source.tables_to_copy() if t.full_name == name), None)
        if table is None:
            return
        self.copies[name] = self.reading.polls[-1].marks[1].order, table
        self.copied.append(name)
        rows = [row for batch in copied(self.reading.source, name) for row in batch.to_pylist()]
        self.rows[name] = {tuple(row[k] for k in table.key): row for row in rows}

    def follow(self) -> None:
        """Up to the end of the log, with all that is looked at now and then."""
        for _ in range(2):
            stream: Any = self.reading.stream
            self.reading.drain()
            stream._checked_at = stream._audit._due_at = 0.0
            self.reading.poll()
        found = self.reading.transactions
        for transaction in found[self._passed :]:
            for frame in transaction.changes:
                self._take(frame)
        self._passed = len(found)
        for name, version in list(self.reading.stream.seen.items()):
            if name not in self.copies or self._is_other(name, version):
                self._copy(name)
        for name, order in self.stale.items():
            if name not in self.copies or self.copies[name][0] < order:
                self._copy(name)

    def _is_other(self, name: str, version: TableSchema) -> bool:
        before, after = (avro_columns(json.dumps(change_schema(table))) for table in (self.copies[name][1], version))
        return before != after and needs_copy(before, after, self.reading.source.filled_columns(name))

    def _take(self, frame: Frame) -> None:
        encoders = self.reading.encoders
        table = next(t for t, e in encoders._encoders.items() if e.header == frame[0])
        _, schema = encoders._schemas[schema_id_of(frame[0])]
        change: Any = fastavro.schemaless_reader(io.BytesIO(long(1) + frame[1]), schema, None)
        rows = self.rows.setdefault(table.full_name, {})
        names = [column.name for column in table.columns]
        before, after = (
            None if change[which] is None else dict(zip(names, change[which].values(), strict=True))
            for which in ("before", "after")
        )
        if change["op"] == "t":
            rows.clear()
        if before is not None:
            rows.pop(tuple(before[k] for k in table.key), None)
        if after is not None:
            rows[tuple(after[k] for k in table.key)] = after

    def check(self) -> None:
        """Every row and every value of every captured table; one that is gone is empty, or named as stale."""
        self.follow()
        there = {table.full_name: table for table in self.reading.source.discover()}
        for name, table in there.items():
            names = [column.name for column in table.columns]
            fresh = [row for batch in copied(self.reading.source, name) for row in batch.to_pylist()]
            wanted = {tuple(row[k] for k in table.key): row for row in fresh}
            found = {key: {n: row.get(n) for n in names} for key, row in self.rows.get(name, {}).items()}
            assert found == wanted, name
        for name in self.rows.keys() - there.keys():
            assert not self.rows[name] or name in self.stale, f"{name} is no more"

    def restart(self) -> None:
        """As another process would go on."""
        done = self.reading.polls
        self.reading = self.reading.resumed()
        self.reading.polls[:0] = done
        self.reading.read[:0] = [[] for _ in done]

    def close(self) -> None:
        self.reading.stream.close()
