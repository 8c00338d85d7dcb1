"""The source kind `postgres`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import Check, Encoders, Stream, TableView
from lowwater_extractor.incremental.stream import NoView
from lowwater_extractor.modes import is_wanted, open_mode
from lowwater_extractor.sources.postgres.assembler import THREAD
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.checks import check_source
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect_replication, query
from lowwater_extractor.sources.postgres.cursor.setup import find_cursored
from lowwater_extractor.sources.postgres.cursor.stream import identity, open_stream
from lowwater_extractor.sources.postgres.position import Resume
from lowwater_extractor.sources.postgres.setup import Setup
from lowwater_extractor.sources.postgres.snapshot.view import SnapshotView
from lowwater_extractor.sources.postgres.stream import PostgresStream


class Postgres:
    """A source that captures one PostgreSQL database. It has exactly one thread."""

    kind: ClassVar[str] = "postgres"
    config_model: ClassVar[type[BaseModel]] = PostgresConfig

    def __init__(self, name: str, config: PostgresConfig) -> None:
        self.name = name
        self.config = config

    @property
    def _is_incremental(self) -> bool:
        return self.config.mode == "incremental"

    def incarnation(self) -> str:
        """System identifier, timeline and database oid. Promotion and point-in-time recovery change the timeline."""
        if not self.config.has_log:
            return identity(self.config, self.name)
        connection = connect_replication(self.config, self.name)
        try:
            ((system, timeline, _, _),) = query(connection, self.name, "IDENTIFY_SYSTEM")
            ((oid,),) = query(connection, self.name, "SELECT oid FROM pg_database WHERE datname = current_database()")
        finally:
            connection.close()
        return f"{system}-{timeline}-{oid}"

    def discover(self) -> list[TableSchema]:
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            if self._is_incremental:
                return [table.schema for table in find_cursored(self.config, catalogue)]
            return [table.schema for table in catalogue.tables() if is_wanted(self.config.tables, table.name)]
        finally:
            catalogue.close()

    def check(self) -> list[Check]:
        return check_source(self.config, self.name)

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        return open_mode(
            self.config, self.name, resumes.get(THREAD),
            lambda resume: self._follow(resume, encoders),
            lambda resume: open_stream(self.config, self.name, resume, encoders),
        )  # fmt: skip

    def _follow(self, saved: bytes | None, encoders: Encoders) -> PostgresStream:
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            setup = Setup(self.config, self.name, catalogue)
            setup.lock()
            resume = Resume.unpack(saved) if saved is not None else None
            setup.publications.ensure(setup.tables(), None if resume is None else resume.publications)
            begin = setup.start(None if resume is None else resume.lsn)
            return PostgresStream(self.config, self.name, catalogue, setup, encoders, resume, begin)
        except BaseException:
            catalogue.close()
            raise

    def tables_to_copy(self) -> list[TableSchema]:
        if self._is_incremental or (self.config.has_log and not self.config.copy_tables):
            return []
        return self.discover()

    def filled_columns(self, table: str) -> set[str]:
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            return catalogue.filled_columns(*table.split(".", 1))
        finally:
            catalogue.close()

    def begin_view(self, tables: Sequence[str]) -> TableView:
        return NoView(self.name, tables) if self._is_incremental else SnapshotView(self.config, self.name, tables)

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        # imported here because only processes that copy tables need Arrow and ADBC
        from lowwater_extractor.sources.postgres.snapshot.copy_columns import read_planned

        return read_planned(self.config, self.name, chunk, avro, rules)
