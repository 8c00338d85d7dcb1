"""Plans copies of collections.

There is no snapshot that several sessions can share for as long as a copy takes: a chunk contains the documents as of
the time at which it is read, and changes since the plan replace whole documents by key.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog
from pymongo.read_concern import ReadConcern

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import SourceLostError
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.mongodb.catalogue import list_collections, log_end
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import RAW, Client, connect, named_errors
from lowwater_extractor.sources.mongodb.position import timestamp
from lowwater_extractor.sources.mongodb.relations import Shapes
from lowwater_extractor.sources.mongodb.shapes import Hidden, OtherIdError, Shape, id_type_in
from lowwater_extractor.sources.mongodb.snapshot.chunks import plan_chunks
from lowwater_extractor.sources.mongodb.snapshot.other_ids import OtherIds
from lowwater_extractor.sources.mongodb.types import FieldType
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb

_KEEP_SECONDS = 5.0

_log = structlog.get_logger()


class WindowView:
    """The `TableView` of a replica set. `tables`: full names of the collections to plan."""

    def __init__(
        self, config: MongoConfig, source: str, shapes: Shapes, rules: ColumnRules, tables: Sequence[str]
    ) -> None:
        self._config = config
        self._source = source
        self._shapes = shapes
        self._rules = rules
        self._left = list(tables)
        self._client = connect(config, source)
        self._uuids: dict[str, str] = {}
        # in the mode full_refresh no stream has later documents
        self._other_ids = OtherIds(self._client, source, repeats=not config.has_log)
        self._kept_at = time.monotonic()

    def plan(self, tables_max: int) -> list[PlannedTable]:
        """Return the next collection; one at a time, because some documents of each are sampled."""
        if not self._left:
            return []
        now, self._left = self._left[:1], self._left[1:]
        there = {info.name: info for info in list_collections(self._client, self._config, self._source)}
        return [self._plan(name, there[name].uuid if name in there else "") for name in now]

    def _plan(self, name: str, uuid: str) -> PlannedTable:
        self._uuids[name] = uuid
        sample(self._client, self._config, self._source, self._shapes, name)
        shape = self._shapes.get(name)
        if uuid:
            shape = look_at_ends(self._client, self._source, self._shapes, name)
        if not uuid:
            # dropped: documents of a new collection of this name will be in the stream
            namespace, _, collection = name.partition(".")
            return PlannedTable(TableSchema(self._source, namespace, collection, 0, (), ()), None, [])
        planned = plan_chunks(self._client, self._source, shape, self._config.chunk_rows)
        self._other_ids.add(shape)
        table = shape.table(self._source, Hidden.of(self._rules, name).masked)
        return PlannedTable(table, None, [(bounds.encode(), rows) for bounds, rows in planned])

    def keep(self, tables: Sequence[str]) -> list[str]:
        """Return collections whose plan is no longer valid.

        They were dropped and created again, or replaced by a rename, or have an `_id` that the planned column cannot
        hold. CodecError: they have one, and `_id` cannot become a column of JSON.
        """
        now = time.monotonic()
        if now - self._kept_at < _KEEP_SECONDS:
            return []
        self._kept_at = now
        try:
            there = {info.name: info.uuid for info in list_collections(self._client, self._config, self._source)}
        except SourceLostError as error:
            # no server-side state can be lost; checked again soon
            _log.warning("collections being copied could not be checked", **error.fields())
            return []
        changed = [name for name in tables if there.get(name, "") != self._uuids.get(name, "")]
        mixed = self._other_ids.step([name for name in tables if name not in changed])
        for name in mixed:
            mix_ids(self._shapes, name)
        return changed + mixed

    def close(self) -> None:
        self._other_ids.close()
        self._client.close()


def sample(client: Client, config: MongoConfig, source: str, shapes: Shapes, name: str) -> None:
    """Add the fields of a random sample of documents to a collection's shape."""
    database, _, collection = name.partition(".")
    with named_errors(source, f"sample documents of {name}"):
        found = client[database].get_collection(collection, codec_options=RAW)
        for document in found.aggregate([{"$sample": {"size": config.sample_documents}}], allowDiskUse=True):
            with rb.named_damage(source, name):
                shapes.grow(name, bytes(document.raw))


def look_at_ends(client: Client, source: str, shapes: Shapes, name: str) -> Shape:
    """Add the documents with the lowest and the highest `_id` to a collection's shape, and return it.

    They are majority-committed and current on every member. The server sorts by type first: if both have the same type,
    all documents have, except for types that `OtherIds` searches for. If there are none, all later documents will be in
    the stream.
    """
    database, _, collection = name.partition(".")
    found = client[database].get_collection(collection, codec_options=RAW, read_concern=ReadConcern("majority"))
    now = log_end(client, source).time
    documents = []
    with named_errors(source, f"query {name}"), client.start_session(causal_consistency=True) as session:
        session.advance_operation_time(timestamp(now))
        for direction in (1, -1):
            documents.append(found.find_one({}, sort=[("_id", direction)], session=session))
    with rb.named_damage(source, name):
        types = set()
        for document in documents:
            if document is not None:
                shapes.grow(name, bytes(document.raw))
                types.add(id_type_in(bytes(document.raw)))
    shape = shapes.get(name)
    if shape.id_type not in (None, FieldType.JSON) and types - {shape.id_type}:
        shape = mix_ids(shapes, name)
    return shape


def mix_ids(shapes: Shapes, name: str) -> Shape:
    """Change the column `_id` to JSON. CodecError: the config does not allow it."""
    if not shapes.may_mix_ids:
        raise OtherIdError.of(name)
    return shapes.mix_ids(name)
