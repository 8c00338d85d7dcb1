"""Tables of a real PostgreSQL as a copy sees them, beside what the stream would make of the same rows."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from tests.support.postgres import Database

from lowwater.codec.avro import change_schema
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules, published
from lowwater.codec.table import Column, TableSchema
from lowwater.lake.schema.columns import lake_table
from lowwater.records.ids import SchemaId
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.snapshot.read import CopyColumn
from lowwater_extractor.sources.postgres.types import column_type
from lowwater_extractor.sources.postgres.wire.text_values import SESSION_SETTINGS

NO_RULES = ColumnRules()


def postgres_config(database: Database, tables: list[str], **more: Any) -> PostgresConfig:
    found = psycopg.conninfo.conninfo_to_dict(database.conninfo)
    return PostgresConfig(
        host=str(found["host"]), port=int(str(found["port"])), database=str(found["dbname"]), user=str(found["user"]),
        tables=tables, **more,
    )  # fmt: skip


class CopiedTable:
    """`namespace.table` of a database, as the catalogue has it now."""

    def __init__(
        self,
        database: Database,
        name: str,
        rules: ColumnRules = NO_RULES,
        as_text: tuple[str, ...] = (),
        source: str = "pg",
    ) -> None:
        self.conninfo = database.conninfo
        self.rules = rules
        config = postgres_config(database, ["*.*"], as_text=list(as_text))
        catalogue = DatabaseCatalogue(config, source)
        try:
            table: CatalogueTable = next(table for table in catalogue.tables() if table.name == name)
        finally:
            catalogue.close()
        self.columns = [
            CopyColumn(column, column_type(pg, typmod, dimensions, as_text=f"{name}.{column}" in as_text), pg)
            for column, (pg, typmod, dimensions) in table.pg_types.items()
        ]
        made = tuple(Column(column.name, column.column_type.type) for column in self.columns)
        self.table = TableSchema(source, table.schema.namespace, table.schema.table, 1, made, table.schema.key)
        self.shown = published(self.table, rules)[0]
        self.avro = json.dumps(change_schema(self.shown))
        self.schema: pa.Schema = lake_table(self.avro).copy_schema

    def streamed(self, order_by: str) -> pa.Table:
        """What the stream would give: the server's text, converted and masked; it has been through the encoder."""
        encoder = TableEncoder(self.table, SchemaId(1), self.rules)
        _, shown = published(self.table, self.rules)
        rows = []
        for texts in self._texts(order_by):
            row = [
                None if text is None else column.column_type.convert(text)
                for column, text in zip(self.columns, texts, strict=True)
            ]
            encoder.insert(row, 0)
            rows.append([row[c.place] if c.change is None else c.change(row[c.place]) for c in shown])
        arrays = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(self.schema)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _texts(self, order_by: str) -> list[list[bytes | None]]:
        """As the server's output functions write them: no cast, no adaptation."""
        items = sql.SQL(", ").join(sql.Identifier(column.name) for column in self.columns)
        relation = sql.Identifier(self.table.namespace, self.table.table)
        asked = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(items, relation, sql.Identifier(order_by))
        with psycopg.connect(self.conninfo) as connection:
            for name, value in SESSION_SETTINGS.items():
                connection.execute(sql.SQL("SET {} = {}").format(sql.Identifier(name), value))
            result = connection.execute(asked).pgresult
            assert result is not None
            return [[result.get_value(row, n) for n in range(result.nfields)] for row in range(result.ntuples)]
