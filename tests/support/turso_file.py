"""A Turso database file for tests, a writer on it, and what a source reads out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lowwater.codec.avro import change_schema
from lowwater.codec.rules import ColumnRules, published
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import Source
from lowwater_extractor.sources import open_source
from tests.conformance.kit import Encoders, PastChange, Reading

SOURCE = "file"
_BEFORE_ALL = Order(0, 0)


class TursoFile:
    def __init__(self, path: Path, mode: str = "full", features: str = "") -> None:
        turso = pytest.importorskip("turso", reason="pyturso is not there")
        from lowwater.turso import FEATURES, capture

        self.path = path
        all_ = ",".join(filter(None, (FEATURES, features)))
        self.connection: Any = turso.connect(str(path), isolation_level=None, experimental_features=all_)
        if mode:
            capture(self.connection, mode)

    def do(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement).fetchall()

    def ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.connection.execute(statement, parameters).fetchall()
        return rows

    def config(self, **settings: Any) -> dict[str, Any]:
        cdc = {"look_seconds": 0} if settings.get("mode", "cdc") == "cdc" else {}
        return {"path": str(self.path), "tables": ["main.*"], **cdc, **settings}

    def source(self, **settings: Any) -> Source:
        return open_source(SOURCE, "turso", self.config(**settings))

    def close(self) -> None:
        """The engine knows an open file by its path: another one can be opened there once nobody holds this one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Captured(Reading):
    """A stream that is read, from where it begins on."""

    def __init__(self, source: Source, encoders: Encoders | None = None) -> None:
        self.encoders = encoders or Encoders()
        self.source = source
        super().__init__(self, source.stream({}, {}, self.encoders))  # type: ignore[arg-type]
        self.poll()

    def poll(self, held: frozenset[int] = frozenset()) -> Any:
        polled = super().poll(held)
        self.encoders.notes |= polled.notes
        return polled

    def resumed(self) -> Captured:
        """As another process would go on behind what was handed over."""
        marks = self.polls[-1].marks
        self.stream.close()
        again = object.__new__(Captured)
        again.encoders, again.source = self.encoders, self.source
        stream = self.source.stream({1: marks[1].resume}, {1: marks[1].order}, self.encoders)
        Reading.__init__(again, again, stream)  # type: ignore[arg-type]
        return again

    def changes(self) -> list[PastChange]:
        return [change for transaction in self.drain().contents() for change in transaction.changes]

    def state(self) -> dict[str, dict[Any, tuple[Any, ...]]]:
        """Each table's rows by their first column, as a reader of the changes has them."""
        found: dict[str, dict[Any, tuple[Any, ...]]] = {}
        for op, table, before, after in self.changes():
            rows = found.setdefault(table, {})
            if op == "t":
                rows.clear()
            if before is not None:
                rows.pop(before[0], None)
            if after is not None:
                rows[after[0]] = after
        return found


@contextmanager
def captured(file: TursoFile, **settings: Any) -> Iterator[Captured]:
    reading = Captured(file.source(**settings))
    try:
        yield reading
    finally:
        reading.stream.close()


def copied(
    source: Source, table: str, rules: ColumnRules | None = None, low: Order = _BEFORE_ALL
) -> list[pa.RecordBatch]:
    """The rows of all its chunks, as Spark's tasks read them."""
    view = source.begin_view([table])
    (planned,) = view.plan(10)
    avro = json.dumps(change_schema(published(planned.table, rules or ColumnRules())[0]))
    found: list[pa.RecordBatch] = []
    view.close()
    for number, (bounds, rows) in enumerate(planned.chunks, 1):
        chunk = Chunk(SOURCE, "copy", table, number, len(planned.chunks), 1, bounds, low, low, rows, "")
        found += source.read_chunk(chunk, avro, rules or ColumnRules())
    return found
