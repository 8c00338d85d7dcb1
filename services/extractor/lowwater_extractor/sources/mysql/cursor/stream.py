"""The mode `incremental` of the kind `mysql`: rows are read by cursor columns, with SELECT only.

It is for views, servers without log_bin, and users without replication privileges.
"""

from __future__ import annotations

from lowwater_extractor.api import Encoders
from lowwater_extractor.incremental.stream import IncrementalStream, Pace
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.cursor.reader import CursorReader
from lowwater_extractor.sources.mysql.cursor.setup import tables_to_read


def open_stream(config: MysqlConfig, source: str, resume: bytes | None, encoders: Encoders) -> IncrementalStream:
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
