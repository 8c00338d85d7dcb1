"""Reads a planned chunk from the table in its current definition."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lowwater.codec.rules import ColumnRules
from lowwater.records.types import Chunk
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import conninfo_of
from lowwater_extractor.sources.postgres.snapshot.chunks import Bounds
from lowwater_extractor.sources.postgres.snapshot.read import CopyColumn, read_chunk
from lowwater_extractor.sources.postgres.types import column_type

_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, a.attndims, a.attnum
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum"""


def copy_columns(catalogue: DatabaseCatalogue, schema: str, table: str, as_text: frozenset[str]) -> list[CopyColumn]:
    """Return the current columns. `as_text`: names of columns to read as text."""
    found = []
    for name, oid, typmod, dimensions, attnum in catalogue.ask(_COLUMNS, schema, table):
        pg = catalogue.type(oid)
        found.append(CopyColumn(name, column_type(pg, typmod, dimensions, as_text=name in as_text), pg, attnum))
    return found


def read_planned(
    config: PostgresConfig, source: str, chunk: Chunk, avro: str, rules: ColumnRules
) -> Iterator[pa.RecordBatch]:
    """Read a chunk. Column types are read from the partition itself; they equal those of its table."""
    bounds = Bounds.decode(chunk.bounds)
    prefix = f"{chunk.table}."
    as_text = frozenset(name.removeprefix(prefix) for name in config.as_text if name.startswith(prefix))
    catalogue = DatabaseCatalogue(config, source)
    try:
        columns = copy_columns(catalogue, bounds.schema, bounds.table, as_text)
    finally:
        catalogue.close()
    return read_chunk(conninfo_of(config, source), columns, bounds, avro, rules)
