"""The mode `incremental` of the kind `postgres`: rows are read by cursor columns, with SELECT only.

It is for relations and servers without logical decoding: views, foreign and unlogged tables, standbys, roles without
REPLICATION. It uses no slot, publication or lock; the only state is the position in Kafka.
"""

from __future__ import annotations

from lowwater_extractor.api import Encoders
from lowwater_extractor.incremental.stream import IncrementalStream, Pace
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.cursor.reader import CursorReader
from lowwater_extractor.sources.postgres.cursor.setup import tables_to_read

#: the values of IDENTIFY_SYSTEM, for roles without REPLICATION. A standby has no WAL insert position; its timeline is
#: taken from the last checkpoint
_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()),
       CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id::int8 FROM pg_control_checkpoint())
            ELSE ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::int8 END,
       (SELECT oid FROM pg_database WHERE datname = current_database())"""


def identity(config: PostgresConfig, source: str) -> str:
    catalogue = DatabaseCatalogue(config, source)
    try:
        ((system, timeline, oid),) = catalogue.ask(_IDENTITY)
    finally:
        catalogue.close()
    return f"{system}-{timeline}-{oid}"


def open_stream(config: PostgresConfig, source: str, resume: bytes | None, encoders: Encoders) -> IncrementalStream:
    catalogue = DatabaseCatalogue(config, source)
    try:
        tables = tables_to_read(config, source, catalogue)
        reader = CursorReader(config, source, catalogue, tables, encoders)
        pace = Pace(config.poll_seconds, config.settle_seconds, config.spill_bytes_max, config.spill_directory)
        wanted = {table.name: table.cursored.columns for table in tables}
        return IncrementalStream(source, reader, wanted, resume, pace)
    except BaseException:
        catalogue.close()
        raise
