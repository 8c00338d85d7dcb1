"""The source kind `mysql`."""

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
from lowwater_extractor.sources.mysql.assembler import THREAD
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.checks import check_source
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.cursor.setup import find_cursored
from lowwater_extractor.sources.mysql.cursor.stream import open_stream
from lowwater_extractor.sources.mysql.position import Resume
from lowwater_extractor.sources.mysql.relations import shape
from lowwater_extractor.sources.mysql.setup import (
    NO_TABLES,
    begin,
    check_logged,
    check_settings,
    go_on,
    keys_of,
    tables_of,
    wanted_of,
)
from lowwater_extractor.sources.mysql.snapshot.view import RangesView
from lowwater_extractor.sources.mysql.stream import MysqlStream
from lowwater_extractor.sources.mysql.wire.charsets import Decoders


class Mysql:
    """A source that captures one MySQL or MariaDB server. It has exactly one thread."""

    kind: ClassVar[str] = "mysql"
    config_model: ClassVar[type[BaseModel]] = MysqlConfig

    def __init__(self, name: str, config: MysqlConfig) -> None:
        self.name = name
        self.config = config
        #: the open stream: copies must see everything that it has read
        self._stream: MysqlStream | None = None

    @property
    def _is_incremental(self) -> bool:
        return self.config.mode == "incremental"

    def incarnation(self) -> str:
        """With GTIDs, the same for all servers of a replication topology: the stream compares the GTID sets.

        With file positions, the identity of one server.
        """
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            server = catalogue.server
            if self.config.has_log and server.uses_gtids(self.config, self.name):
                return "mariadb-gtid" if server.is_mariadb else "mysql-gtid"
            return server.identity
        finally:
            catalogue.close()

    def discover(self) -> list[TableSchema]:
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            if self._is_incremental:
                return [table.schema for table in find_cursored(self.config, self.name, catalogue)]
            found = catalogue.tables(lambda name: is_wanted(self.config.tables, name))
            decoders, wanted = Decoders(catalogue), wanted_of(self.config)
            return [shape(table.map, self.name, decoders, wanted)[0] for table in found if table.kind not in NO_TABLES]
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

    def _follow(self, saved: bytes | None, encoders: Encoders) -> MysqlStream:
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            server = catalogue.server
            check_settings(server, self.name)
            check_logged(self.config, self.name, catalogue)
            tables = tables_of(self.config, self.name, catalogue)
            if saved is not None:
                resume = Resume.unpack(saved)
                go_on(resume, self.name, catalogue, gtids=server.uses_gtids(self.config, self.name))
                resume = resume.on(server.identity)
            else:
                resume = begin(self.config, self.name, catalogue)
            self._stream = MysqlStream(
                self.config, self.name, catalogue, encoders, resume, announce=saved is None,
                keys=keys_of(self.config, self.name, catalogue, tables, encoders.notes),
            )  # fmt: skip
        except BaseException:
            catalogue.close()
            raise
        return self._stream

    def tables_to_copy(self) -> list[TableSchema]:
        """Return the tables with a primary key. Tables without one are streamed only, not copied."""
        if self._is_incremental or (self.config.has_log and not self.config.copy_tables):
            return []
        return [table for table in self.discover() if table.key]

    def filled_columns(self, table: str) -> set[str]:
        catalogue = DatabaseCatalogue(self.config, self.name)
        try:
            return catalogue.filled(*table.split(".", 1))
        finally:
            catalogue.close()

    def begin_view(self, tables: Sequence[str]) -> TableView:
        if self._is_incremental:
            return NoView(self.name, tables)
        stream = self._stream
        if stream is None:
            return RangesView(self.config, self.name, tables, lambda: None)
        return RangesView(self.config, self.name, tables, lambda: stream.read_to, stream.is_due)

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        # imported here because only processes that copy tables need Arrow
        from lowwater_extractor.sources.mysql.snapshot.read import read_planned

        return read_planned(self.config, self.name, chunk, avro, rules)
