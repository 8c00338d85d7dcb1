"""One compiled encoder per table version, which applies the configured column rules."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import fastavro

from lowwater.codec.avro import avro_columns, change_schema
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules, published
from lowwater.codec.table import REST, TableSchema
from lowwater.errors import ConfigError
from lowwater.records.ids import SchemaId
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import SchemaEntry
from lowwater.records.wire import HEADER_SIZE, header
from lowwater.runtime.config import ColumnsConfig
from lowwater.runtime.secrets import resolve


def column_rules(config: ColumnsConfig) -> ColumnRules:
    return ColumnRules(frozenset(config.drop), dict(config.mask), resolve(config.hash_key).encode())


def check_rules(rules: ColumnRules, tables: Iterable[TableSchema], source: str) -> None:
    """Raise ConfigError if a rule names a column that its table does not have.

    A misspelt rule would publish the column that it is to hide. Rules for unknown tables are accepted, because a table
    may be created later; so are rules for unknown columns of a table whose columns are added as documents are read.
    """
    known = {table.full_name: [column.name for column in table.columns] for table in tables}
    for name in sorted({*rules.drop, *(rules.mask or {})}):
        table, _, column = name.rpartition(".")
        if table in known and column not in known[table] and REST not in known[table]:
            raise ConfigError(
                f"columns: {table} has no column {column}", source=source, hint=f"known: {', '.join(known[table])}"
            )


class RegisteredEncoders:
    """The runtime's `Encoders`. A schema is durable before the first change that uses it is published."""

    def __init__(
        self, store: SchemaStore, topic: str, rules: ColumnRules, notes: Mapping[str, bytes] | None = None
    ) -> None:
        self.notes = notes or {}
        self._store = store
        self._topic = topic
        self.rules = rules
        self._by_table: dict[TableSchema, TableEncoder] = {}
        #: number of calls of `encoder`: while it is unchanged, the stream has read no other version of a table
        self.asked = 0

    def encoder(self, table: TableSchema) -> TableEncoder:
        self.asked += 1
        encoder = self._by_table.get(table)
        if encoder is None:
            shown, _ = published(table, self.rules)
            encoder = TableEncoder(table, self._store.table_id(shown, self._topic), self.rules)
            self._by_table[table] = encoder
        return encoder

    def announce(self, tables: Iterable[TableSchema]) -> None:
        """Register the schemas of these tables in one batch, which is much faster than one by one in `encoder`."""
        new = [table for table in tables if table not in self._by_table]
        self._store.announce([published(table, self.rules)[0] for table in new], self._topic)

    def versioned(self, table: TableSchema) -> TableSchema:
        known = [entry for entry in self._store.versions(table.full_name) if self._is_ours(entry)]
        for entry in known:
            same = replace(table, version=entry.version)
            shown, _ = published(same, self.rules)
            if json.dumps(change_schema(shown), separators=(",", ":")) == entry.schema:
                return same
        return replace(table, version=max((entry.version for entry in known), default=0) + 1)

    def returned_columns(self, last: int, new: int) -> set[str]:
        """Return the columns of version `new` that version `last` does not have and an earlier version had.

        Such a column was dropped and added again, so its old values are invalid. `last` and `new` are schema ids. If
        `new` is an earlier version that is in use again, its number is the lower one of the two.
        """
        was, now = (self._store.entry(SchemaId(schema_id)) for schema_id in (last, new))
        added = avro_columns(now.schema).keys() - avro_columns(was.schema).keys()
        if now.version < was.version:
            return added
        before = [e for e in self._store.versions(now.table) if self._is_ours(e) and e.version < now.version]
        return added & {name for entry in before for name in avro_columns(entry.schema)}

    def known(self) -> set[str]:
        return {entry.table for entry in self._store.entries().values() if entry.table and self._is_ours(entry)}

    def last_header(self, table: str) -> bytes | None:
        ours = [entry for entry in self._store.versions(table) if self._is_ours(entry)]
        return header(self._store.id_of(max(ours, key=lambda entry: entry.version))) if ours else None

    def _is_ours(self, entry: SchemaEntry) -> bool:
        return entry.subject.startswith(f"{self._topic}-")

    def row_key(self, value: bytes) -> str:
        """Return the table and key of a published change, for an error message."""
        entry = self._store.entry(SchemaId(int.from_bytes(value[1:HEADER_SIZE], "big")))
        schema: Any = fastavro.parse_schema(json.loads(entry.schema))
        change: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_SIZE:]), schema, None)
        row = change["after"] or change["before"] or {}
        return f"{entry.table} {', '.join(f'{name}={row.get(name)!r}' for name in entry.key)}"
