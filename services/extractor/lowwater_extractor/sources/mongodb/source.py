"""The source kind `mongodb`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import StartRefusedError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import Check, Encoders, Stream, TableView
from lowwater_extractor.incremental.stream import NoView
from lowwater_extractor.modes import open_mode
from lowwater_extractor.sources.mongodb.assembler import THREAD
from lowwater_extractor.sources.mongodb.catalogue import (
    enable_images,
    list_collections,
    refuse_shard,
    refuse_without_images,
    replica_set_id,
    set_name,
)
from lowwater_extractor.sources.mongodb.checks import check_source
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import connect
from lowwater_extractor.sources.mongodb.cursor.reader import open_stream
from lowwater_extractor.sources.mongodb.position import Resume
from lowwater_extractor.sources.mongodb.relations import Shapes, refuse_nested_rules
from lowwater_extractor.sources.mongodb.snapshot.view import WindowView, sample
from lowwater_extractor.sources.mongodb.stream import MongoStream
from lowwater_extractor.sources.mongodb.wire.oplog import refuse_other_log


class MongoDB:
    """One replica set as a source; exactly one thread."""

    kind: ClassVar[str] = "mongodb"
    config_model: ClassVar[type[BaseModel]] = MongoConfig

    def __init__(self, name: str, config: MongoConfig) -> None:
        self.name = name
        self.config = config
        #: shared by the stream and the views of the current session, which both add columns
        self._shapes = Shapes(config)
        self._rules = ColumnRules()

    @property
    def _is_incremental(self) -> bool:
        return self.config.mode == "incremental"

    def incarnation(self) -> str:
        client = connect(self.config, self.name)
        try:
            # without a log the user needs only read access, which does not allow to query the set's id
            return replica_set_id(client, self.name) if self.config.has_log else set_name(client, self.name)
        finally:
            client.close()

    def discover(self) -> list[TableSchema]:
        """Return the collections, with the columns found in a sample of each."""
        client = connect(self.config, self.name)
        shapes = Shapes(self.config)
        try:
            infos = list_collections(client, self.config, self.name)
            for info in infos:
                sample(client, self.config, self.name, shapes, info.name)
        finally:
            client.close()
        return [shapes.get(info.name).table(self.name) for info in infos]

    def check(self) -> list[Check]:
        return check_source(self.config, self.name)

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        self._rules = encoders.rules
        refuse_nested_rules(encoders.rules, self.config, self.name)
        return open_mode(
            self.config, self.name, resumes.get(THREAD),
            lambda resume: self._follow(resume, encoders),
            lambda resume: open_stream(self.config, self.name, self._shapes, resume, encoders),
        )  # fmt: skip

    def _follow(self, resume: bytes | None, encoders: Encoders) -> MongoStream:
        client = connect(self.config, self.name)
        try:
            refuse_shard(client, self.name)
            found = None if resume is None else Resume.unpack(resume, self.name)
            if found is not None:
                refuse_other_log(client, self.name, found)
            if self.config.manage_images:
                enable_images(client, self.config, self.name)
            self._refuse_bare(client)
            return MongoStream(self.config, self.name, client, self._shapes, encoders, found)
        except BaseException:
            client.close()
            raise

    def _refuse_bare(self, client: Any) -> None:
        infos = list_collections(client, self.config, self.name)
        if views := [info.name for info in infos if info.type != "collection"]:
            raise StartRefusedError(
                f"not a collection, so it has no changes of its own: {', '.join(views)}", source=self.name,
                hint="remove it from `tables`, or read it in the mode incremental",
            )  # fmt: skip
        refuse_without_images(client, self.config, self.name)

    def tables_to_copy(self) -> list[TableSchema]:
        if self._is_incremental or (self.config.has_log and not self.config.copy_tables):
            return []
        client = connect(self.config, self.name)
        try:
            infos = list_collections(client, self.config, self.name)
        finally:
            client.close()
        return [self._shapes.get(info.name).table(self.name) for info in infos if info.type == "collection"]

    def filled_columns(self, table: str) -> set[str]:
        """None: if older documents already had the field of a new column, their values are in `_rest`."""
        return set()

    def begin_view(self, tables: Sequence[str]) -> TableView:
        if self._is_incremental:
            return NoView(self.name, tables)
        return WindowView(self.config, self.name, self._shapes, self._rules, tables)

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        # imported here, because pyarrow is needed only for copies
        from lowwater_extractor.sources.mongodb.snapshot.read import read_chunk

        return read_chunk(self.config, self.name, chunk, avro, rules)
