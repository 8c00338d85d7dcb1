"""The source kind `turso`."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import StartRefusedError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import Check, Encoders, Stream, TableView
from lowwater_extractor.incremental.stream import IncrementalStream, NoView
from lowwater_extractor.modes import open_mode
from lowwater_extractor.sources.turso import catalogue, checks
from lowwater_extractor.sources.turso.assembler import THREAD
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import Database
from lowwater_extractor.sources.turso.cursor import stream as cursors
from lowwater_extractor.sources.turso.snapshot.view import SnapshotView
from lowwater_extractor.sources.turso.stream import TursoStream


class Turso:
    """One database file as a source; exactly one thread."""

    kind: ClassVar[str] = "turso"
    config_model: ClassVar[type[BaseModel]] = TursoConfig

    def __init__(self, name: str, config: TursoConfig) -> None:
        self.name = name
        self.config = config

    @contextlib.contextmanager
    def _database(self) -> Iterator[Database]:
        database = Database(self.config, self.name)
        try:
            yield database
        finally:
            database.close()

    def incarnation(self) -> str:
        with self._database() as database:
            if self.config.has_log:
                catalogue.refuse_without_log(database, self.config, self.name)
                return database.identity()
        # without a log only the path identifies a file; orders are times
        return hashlib.sha256(str(self.config.path.resolve()).encode()).hexdigest()[:32]

    def discover(self) -> list[TableSchema]:
        keys_only = self.config.keys_only
        with self._database() as database:
            if self.config.mode == "incremental":
                return [table.schema for table in cursors.find_cursored(database, self.config, self.name)]
            found = catalogue.definitions_of(database, self.config, self.name)
        return [definition.schema(self.name, keys_only=keys_only) for definition in found]

    def check(self) -> list[Check]:
        return checks.check_source(self.config, self.name)

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        return open_mode(
            self.config, self.name, resumes.get(THREAD),
            lambda resume: self._follow(resume, encoders),
            lambda resume: self._incremental(resume, encoders),
        )  # fmt: skip

    def _follow(self, resume: bytes | None, encoders: Encoders) -> TursoStream:
        database = Database(self.config, self.name)
        try:
            catalogue.refuse_without_log(database, self.config, self.name)
            if resume is None:
                self._refuse_tables(database)
            return TursoStream(self.config, self.name, database, encoders, resume)
        except BaseException:
            database.close()
            raise

    def _refuse_tables(self, database: Database) -> None:
        for what, fix in checks.wrong_tables(database, self.config, self.name):
            raise StartRefusedError(what, source=self.name, thread=THREAD, hint=fix)

    def _incremental(self, resume: bytes | None, encoders: Encoders) -> IncrementalStream:
        database = Database(self.config, self.name)
        try:
            tables = cursors.tables_to_read(database, self.config, self.name)
            reader = cursors.CursorReader(self.config, self.name, database, tables, encoders)
            wanted = {table.name: table.columns for table in tables}
            return IncrementalStream(self.name, reader, wanted, resume, cursors.pace(self.config))
        except BaseException:
            database.close()
            raise

    def tables_to_copy(self) -> list[TableSchema]:
        if self.config.mode == "incremental" or (self.config.has_log and not self.config.copy_tables):
            return []
        return self.discover()

    def filled_columns(self, table: str) -> set[str]:
        with self._database() as database:
            found = catalogue.definitions_of(database, self.config, self.name)
        return {cell.name for d in found if d.full_name == table for cell in d.cells if cell.is_filled}

    def begin_view(self, tables: Sequence[str]) -> TableView:
        if self.config.mode == "incremental":
            return NoView(self.name, tables)
        return SnapshotView(self.config, self.name, tables)

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        # imported here, because pyarrow is needed only for copies
        from lowwater_extractor.sources.turso.snapshot.read import read_chunk

        return read_chunk(self.config, self.name, chunk, avro, rules)
