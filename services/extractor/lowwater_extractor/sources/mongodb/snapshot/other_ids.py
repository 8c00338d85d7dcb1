"""Finds documents whose `_id` does not fit the planned column, among types that the server sorts together.

The server sorts `_id` by type first, so the documents at both ends of a collection show most mixtures of types. But
1.5 and Decimal128 are sorted between integers, and a symbol between strings. Such a document may be older than the log,
or may have come with a rename, and then no change tells of it. A Spark task that reads it cannot continue.

The search reads the whole index on `_id`. So it runs in a thread, in parts of a second, for one collection after the
other, and only for copies that have not landed after some seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import structlog
from bson.raw_bson import RawBSONDocument
from pymongo.read_concern import ReadConcern

from lowwater.errors import LowwaterError
from lowwater_extractor.sources.mongodb.connect import RAW, Client, named_errors
from lowwater_extractor.sources.mongodb.shapes import Shape
from lowwater_extractor.sources.mongodb.types import EXACT_IN_DOUBLE, FieldType

#: index entries of one query
_PART = 100_000
#: pause after each part, as a multiple of its duration: a search must not take a large part of the server's time
_PART_PAUSE_FACTOR = 2.0
#: pause before a search that failed goes on, or a complete one begins again
_PAUSE_SECONDS = 15.0

_IS_FRACTION = {"$ne": [{"$convert": {"input": "$_id", "to": "long", "onError": None}}, "$_id"]}
_IS_INEXACT = {"$gt": [{"$abs": "$_id"}, EXACT_IN_DOUBLE]}
_FILTERS: dict[FieldType, dict[str, Any]] = {
    FieldType.INT64: {
        "$or": [
            {"_id": {"$type": "decimal"}},
            {"_id": {"$type": "double"}, "$expr": {"$or": [_IS_FRACTION, _IS_INEXACT]}},
        ]
    },
    FieldType.STRING: {"_id": {"$type": "symbol"}},
}

_log = structlog.get_logger()


class OtherIds:
    """The searches in the collections of one view. `repeats`: later documents are in no stream, so search again."""

    def __init__(self, client: Client, source: str, *, repeats: bool) -> None:
        self._client = client
        self._source = source
        self._repeats = repeats
        self._searches: dict[str, _Search] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, shape: Shape) -> None:
        """Add a planned collection; one whose `_id` can hold all types needs no search."""
        if shape.id_type in _FILTERS:
            self._searches[shape.name] = _Search(shape, _FILTERS[shape.id_type])

    def step(self, tables: Sequence[str]) -> list[str]:
        """Return those of `tables` in which a document was found, and start a search if none runs and one is due."""
        wanted = [self._searches[name] for name in tables if name in self._searches]
        found = [search.shape.name for search in wanted if search.is_found]
        due = [search for search in wanted if not search.is_found and time.monotonic() >= search.due_at]
        if due and (self._thread is None or not self._thread.is_alive()):
            search = min(due, key=lambda each: each.due_at)
            # a daemon: a search must not delay the end of the process
            self._thread = threading.Thread(target=self._run, args=(search,), name="other-ids", daemon=True)
            self._thread.start()
        return found

    def close(self) -> None:
        self._is_closed = True

    def _run(self, search: _Search) -> None:
        try:
            while not self._is_closed and not search.is_found:
                begin = time.monotonic()
                with named_errors(self._source, f"search for an `_id` of another type in {search.shape.name}"):
                    is_end = search.part(self._client)
                if is_end:
                    break
                time.sleep((time.monotonic() - begin) * _PART_PAUSE_FACTOR)
            search.due_at = time.monotonic() + _PAUSE_SECONDS if self._repeats else float("inf")
        except LowwaterError as error:
            # it goes on where it was
            search.due_at = time.monotonic() + _PAUSE_SECONDS
            if not self._is_closed:
                _log.warning("the search for other ids failed", **error.fields())


class _Search:
    def __init__(self, shape: Shape, filter_: dict[str, Any]) -> None:
        self.shape = shape
        self.is_found = False
        self.due_at = 0.0
        self._filter = filter_
        #: `{_id: …}` from which on the index has not been searched
        self._from: RawBSONDocument | None = None

    def part(self, client: Client) -> bool:
        """Search one part of the index. Returns whether it was the last one."""
        collection = client[self.shape.namespace].get_collection(
            self.shape.collection, codec_options=RAW, read_concern=ReadConcern("majority")
        )
        index: dict[str, Any] = {"hint": [("_id", 1)]}
        if self._from is not None:
            index["min"] = self._from
        bound = next(iter(collection.find({}, {"_id": 1}, **index).skip(_PART).limit(1)), None)
        if bound is not None:
            index["max"] = bound
        self.is_found = next(iter(collection.find(self._filter, {"_id": 1}, **index).limit(1)), None) is not None
        self._from = bound
        return bound is None
