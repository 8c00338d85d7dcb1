"""Published changes with the version of their table, for tests that read a stream in their own process."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import fastavro

from lowwater.codec.avro import change_schema
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import long
from lowwater_extractor.api import Frame
from tests.conformance.kit import Encoders


class Change(NamedTuple):
    """As it was published; rows by the names of their columns."""

    op: str
    #: without its namespace
    table: str
    version: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    unchanged: list[str]


Transactions = list[list[Change]]


class Versions(Encoders):
    """The kit's, which also tells of each frame what version of which table it is."""

    def __init__(self) -> None:
        super().__init__()
        self._parsed: dict[bytes, tuple[TableSchema, Any]] = {}

    def _shape(self, header: bytes) -> tuple[TableSchema, Any]:
        if header not in self._parsed:
            table = next(t for t, e in self._encoders.items() if e.header == header)
            schema = _plain(json.loads(json.dumps(change_schema(table))))
            self._parsed[header] = table, fastavro.parse_schema(schema)
        return self._parsed[header]

    def table_of(self, frame: Frame) -> TableSchema:
        return self._shape(frame[0])[0]

    def change(self, frame: Frame) -> Change:
        """Logical types stay what they are on the wire: numbers reach further than `datetime`."""
        table, schema = self._shape(frame[0])
        data = io.BytesIO(long(1) + frame[1])
        found: Any = fastavro.schemaless_reader(data, schema, None)
        assert data.read() == b"", "bytes behind the record"
        return Change(
            found["op"], table.table, table.version, found["before"], found["after"], found["unchanged"]
        )  # fmt: skip

    def versions(self, table: str) -> list[TableSchema]:
        return [t for t in self._encoders if t.table == table]


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _plain(value) for key, value in schema.items()}
    if str(kept.get("logicalType", "")).endswith(("date", "micros")):
        del kept["logicalType"]
    return kept
