"""What a lake would have of a source: copies, the changes since then, and which tables are stale; held against the
database itself."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

from tests.integration.mongodb.reading import Read, copied
from tests.support.versions import Change

from lowwater.records.positions import Order
from lowwater_extractor.api import Frame

Document = dict[str, Any]

_OWN = {"_gsn_": "_gsn", "_op_": "_op"}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def document_of(row: dict[str, Any]) -> Document:
    """All that a row has, by field: its columns and what is in `_rest`."""
    found = {name: value for name, value in row.items() if value is not None and name != "_rest"}
    rest: Document = json.loads(row.get("_rest") or "{}")
    assert not found.keys() & rest.keys(), f"in a column and in `_rest`: {found.keys() & rest.keys()}"
    return {name: _comparable(value) for name, value in {**found, **rest}.items()}


def _comparable(value: Any) -> Any:
    """Numbers compare by value, whatever their types; NaN equals itself."""
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, uuid.UUID):
        return str(value)
    return "NaN" if value != value else value


class Lake:
    """Tables by full name, of one reading. Those that are stale are copied again, as the extractor does."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self.rows: dict[str, dict[Any, Document]] = {}
        self.low: dict[str, Order] = {}
        self.copies = 0

    def copy(self, table: str) -> None:
        name = f"{self.read.database.name}.{table}"
        self.low[name] = self.read.mark.order
        # the lake has names of its own for columns that are called as its own are
        found = [{_OWN.get(n, n): v for n, v in row.items()} for row in copied(self.read, name).to_pylist()]
        self.rows[table] = {row["_id"]: document_of(row) for row in found}
        self.copies += 1

    def follow(self) -> None:
        """Up to the end of the log; what is stale by then is copied."""
        self.read.stream._figures_at = 0.0
        for transaction in self.read.transactions():
            for frame in transaction.changes:
                self._take(self.read.encoders.change(frame), self._columns(frame))
        for name, (order, _) in self.read.stale.items():
            if order > self.low.get(name, Order(0, 0)) and self._is_there(name):
                self.copy(name.partition(".")[2])

    def _columns(self, frame: Frame) -> list[str]:
        """The columns' own names: those of Avro are made of fewer letters."""
        return [column.name for column in self.read.encoders._shape(frame[0])[0].columns]

    def _take(self, change: Change, columns: list[str]) -> None:
        rows = self.rows.setdefault(change.table, {})
        if change.op == "t":
            rows.clear()
        if change.before is not None:
            rows.pop(change.before["_id"], None)
        if change.after is not None:
            after = dict(zip(columns, change.after.values(), strict=True))
            rows[after["_id"]] = document_of(after)

    def _is_there(self, name: str) -> bool:
        return any(table.full_name == name for table in self.read.source.discover())

    def check(self) -> None:
        """Every document and every value of every captured collection is as the server has it now."""
        self.follow()
        fresh = Lake(self.read)
        for known in self.read.source.discover():
            fresh.copy(known.full_name.partition(".")[2])
        for table in sorted(self.rows.keys() | fresh.rows.keys()):
            found, wanted = (lake.rows.get(table, {}) for lake in (self, fresh))
            assert found.keys() == wanted.keys(), table
            for key, document in wanted.items():
                assert found[key] == document, f"{table} {key}: {found[key]} is {document}"
