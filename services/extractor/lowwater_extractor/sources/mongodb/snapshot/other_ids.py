"""Finds documents whose `_id` does not fit the planned column, among those of the same place in the server's order.

The server sorts `_id` by type first, so the documents at both ends of a collection show most mixtures of types. But
some types share a place: 1.5 and Decimal128 are between integers, and a symbol is between strings. Such a document may
be older than the log, or may have come with a rename, and then no change tells of it. A Spark task that reads it cannot
continue.

The search reads the whole index on `_id`, so it runs in a thread, and only for copies that have not landed after some
seconds.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from pymongo.read_concern import ReadConcern

from lowwater.errors import LowwaterError
from lowwater_extractor.sources.mongodb.connect import RAW, Client, named_errors
from lowwater_extractor.sources.mongodb.shapes import Shape
from lowwater_extractor.sources.mongodb.types import EXACT_IN_DOUBLE, FieldType

#: a copy may take hours, and the search must not take a large part of the server's time
_PAUSE_SECONDS, _PAUSE_FACTOR = 15.0, 10.0
_SEARCH_SECONDS_MAX = 3600

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


class OtherIds:
    """The repeated search in one collection."""

    def __init__(self, client: Client, source: str, shape: Shape) -> None:
        self._client = client
        self._source = source
        self._shape = shape
        self._filter = _FILTERS.get(shape.id_type) if shape.id_type is not None else None
        self._thread: threading.Thread | None = None
        self._search_at = 0.0
        self._is_found = False
        self._error: LowwaterError | None = None

    def step(self) -> bool:
        """Start a search if one is due. Returns whether a search has found a document.

        SourceError, SourceLostError: the last search failed; the next call starts another one.
        """
        if self._thread is not None and self._thread.is_alive():
            return False
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._filter is not None and not self._is_found and time.monotonic() >= self._search_at:
            # a daemon: a search must not delay the end of the process
            self._thread = threading.Thread(target=self._search, name="other-ids", daemon=True)
            self._thread.start()
        return self._is_found

    def _search(self) -> None:
        begin = time.monotonic()
        try:
            with named_errors(self._source, f"search for an `_id` of another type in {self._shape.name}"):
                database = self._client[self._shape.namespace]
                collection = database.get_collection(
                    self._shape.collection, codec_options=RAW, read_concern=ReadConcern("majority")
                )
                found = collection.find_one(
                    self._filter, {"_id": 1}, hint=[("_id", 1)], max_time_ms=_SEARCH_SECONDS_MAX * 1_000
                )
                self._is_found = found is not None
        except LowwaterError as error:
            self._error = error
        now = time.monotonic()
        self._search_at = now + max(_PAUSE_SECONDS, (now - begin) * _PAUSE_FACTOR)
