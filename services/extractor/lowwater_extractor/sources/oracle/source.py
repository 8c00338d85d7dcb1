"""The source kind `oracle`: a database's redo, read from its files or through LogMiner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import SourceError, StartRefusedError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import Check, Encoders, Stream, TableView
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.oracle.capture import CapturedObjects, redo_stream
from lowwater_extractor.sources.oracle.checks import check_source
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import Database, connect
from lowwater_extractor.sources.oracle.database_views import DatabaseView, LogFileView
from lowwater_extractor.sources.oracle.dictionary import file as dictionary_file
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.dictionary.live_dictionary import FollowedDictionary
from lowwater_extractor.sources.oracle.dictionary.query import SqlDictionary
from lowwater_extractor.sources.oracle.discovery import Discovery
from lowwater_extractor.sources.oracle.logminer.stream import open_stream
from lowwater_extractor.sources.oracle.logminer.tables import MinedTables
from lowwater_extractor.sources.oracle.rows.changes import FrameMaker
from lowwater_extractor.sources.oracle.rows.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.scn import NEWEST, Scn
from lowwater_extractor.sources.oracle.snapshot.view import ScnView
from lowwater_extractor.sources.oracle.stream import RedoOptions
from lowwater_extractor.sources.oracle.supplemental import SupplementalCheck, refuse_unlogged
from lowwater_extractor.sources.oracle.thread_snapshot import RedoView


class Oracle:
    kind: ClassVar[str] = "oracle"
    config_model: ClassVar[type[BaseModel]] = OracleConfig

    def __init__(self, name: str, config: OracleConfig) -> None:
        self.name = name
        self.config = config

    # -- connections: opened on first use, and reused ------------------------------------------------------

    @cached_property
    def _root(self) -> Database:
        return connect(self.config, self.name)

    @cached_property
    def _session(self) -> Database:
        """A connection to the captured container."""
        return connect(self.config, self.name, container=self.config.pdb) if self.config.pdb else self._root

    def _forget_connections(self) -> None:
        for name in ("_session", "_root", "_sql"):
            found = self.__dict__.pop(name, None)
            if found is not None and name != "_sql":
                found.close()

    @cached_property
    def _sql(self) -> SqlDictionary:
        container = Discovery(self._root, self.config, self.name).container()
        return SqlDictionary(self._session, self.config, self.name, container)

    def _view(self) -> RedoView:
        if self.config.has_database:
            return DatabaseView(Discovery(self._root, self.config, self.name), self.config, self.name)
        return LogFileView(self.name, self.config.threads, self.config.redo.online, self.config.redo.archive)

    # -- the interface -----------------------------------------------------------------------------------

    def incarnation(self) -> str:
        # called first in each session of the extractor: connections of the previous session may be lost
        self._forget_connections()
        return self._view().incarnation()

    def discover(self) -> list[TableSchema]:
        return [version.schema for version in self._dictionary().last()]

    def check(self) -> list[Check]:
        return check_source(self.config, self.name)

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        lobs = LobFetch(self._session) if self.config.lob_fetch == "at_commit" else None
        if self.config.capture == "logminer":
            tables = MinedTables(
                self._versions(), self.config.wants, self._sql.read, owners=self.config.owners, check=self._refuse
            )
            return open_stream(self.name, self.config, self._root, tables, encoders, resumes, marks, lobs=lobs)
        view, options = self._view(), self._options()
        if isinstance(self.config.dictionary, Path):
            dictionary = self._dictionary()
            maker = FrameMaker(self.name, dictionary, encoders, lobs=lobs)
            return redo_stream(self.name, view, maker, CapturedObjects(dictionary), resumes, marks, options)
        followed = self._followed(encoders.notes)
        maker = FrameMaker(self.name, followed, encoders, followed, lobs)
        objects, stale = CapturedObjects(followed), StaleTables(self.name, encoders.notes)
        return redo_stream(self.name, view, maker, objects, resumes, marks, options, notes=followed.notes, stale=stale)

    def _options(self) -> RedoOptions:
        config = self.config
        return RedoOptions(
            leave_out=config.open_at_start == "leave_out",
            spill_bytes_max=config.spill_bytes_max,
            spill_directory=config.spill_directory,
            read_bytes=config.read_bytes,
            look_seconds=config.look_seconds if config.has_database else 0.0,
            zone=ZoneInfo(config.zone),
        )

    # -- the dictionary ----------------------------------------------------------------------------------

    def _versions(self) -> list[TableVersion]:
        scn = Discovery(self._root, self.config, self.name).current_scn()
        found = self._sql.read(scn)
        if not found:
            raise SourceError(
                f"no table matches {', '.join(self.config.tables)}",
                source=self.name,
                hint="tables are OWNER.TABLE or OWNER.*, as the dictionary spells them",
            )
        self._refuse_keyless(found)
        return found

    def _refuse(self, table: TableVersion) -> None:
        """Raise StartRefusedError if a table that is new or was altered cannot be captured."""
        self._refuse_keyless([table])
        discovery = Discovery(self._root, self.config, self.name)
        read_now = partial(self._read_now, discovery)
        SupplementalCheck(self.name, self._root, read_now)(table)
        if self.config.capture == "logminer":
            refuse_unlogged(self.name, self._root, table)

    def _read_now(self, discovery: Discovery, name: str) -> list[TableVersion]:
        return self._sql.read(discovery.current_scn(), name)

    def _dictionary(self) -> Dictionary:
        if isinstance(self.config.dictionary, Path):
            kept = dictionary_file.load(self.name, self.config.dictionary)
            found = Dictionary(v for v in kept if self.config.wants(v.owner, v.table))
            self._refuse_keyless(found.last())
            return found
        return Dictionary(self._versions())

    def _refuse_keyless(self, tables: Sequence[TableVersion]) -> None:
        keyless = [table.full_name for table in tables if not table.key]
        if keyless and self.config.without_key == "refuse":
            raise StartRefusedError(
                f"tables without a primary key, or a unique key of NOT NULL columns: {', '.join(keyless)}",
                source=self.name,
                hint="add a key; or set without_key: row_images, with ALL columns in the tables' supplemental log",
            )

    def _followed(self, notes: Mapping[str, bytes]) -> FollowedDictionary:
        """The saved dictionary, with the current definitions of tables that are not in it: captured from now on."""
        found = FollowedDictionary.remembered(self.name, notes, self._sql, self._refuse)
        # a known name may belong to another object by now: the log, or `verify`, determines from which SCN on
        known = {version.full_name for version in found.current()}
        for version in self._versions():
            self._refuse(version)
            if version.full_name not in known and found.find(version.container, version.object_id, NEWEST) is None:
                found.add(version.since(Scn(0)))
        return found

    # -- copies ------------------------------------------------------------------------------------------

    def tables_to_copy(self) -> list[TableSchema]:
        """The captured tables; none if there is no database connection: files contain the log, but not the rows."""
        return self.discover() if self.config.copy_tables and self.config.has_database else []

    def filled_columns(self, table: str) -> set[str]:
        """Columns with a default that rows older than the column have without being rewritten."""
        if not self.config.has_database:
            return set()
        scn = Discovery(self._root, self.config, self.name).current_scn()
        found = self._sql.read(scn, table)
        return {column.name for version in found for column in version.visible if column.default is not None}

    def begin_view(self, tables: Sequence[str]) -> TableView:
        return ScnView(self.config, self.name, tables, self._copy_session(", ".join(tables)))

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        # imported here because only table copies need Arrow
        from lowwater_extractor.sources.oracle.snapshot.read import read_chunk

        return read_chunk(self._copy_session(chunk.table), self.config, self.name, chunk, avro, rules)

    def _copy_session(self, tables: str) -> Database:
        """A separate connection: views and chunks outlive a session of the stream, or are read in another process."""
        if not self.config.has_database:
            raise SourceError(
                f"there is no database to copy {tables} from: the source has only redo files",
                source=self.name,
                hint="give `dsn`, or `host` and `service`",
            )
        return connect(self.config, self.name, container=self.config.pdb)
