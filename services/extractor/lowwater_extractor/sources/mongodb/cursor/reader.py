"""Reads documents by their cursors, in batches.

There is no snapshot over all collections (the server retains one only for minutes): a document that changes while a
sync is read gets a higher cursor, and is read by the next sync.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.read_concern import ReadConcern

from lowwater.codec.table import TableSchema
from lowwater.errors import StartRefusedError
from lowwater_extractor.api import Encoders
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range
from lowwater_extractor.incremental.stream import IncrementalStream, Pace, UpperBounds
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import RAW, Client, ask, connect, named_errors
from lowwater_extractor.sources.mongodb.cursor import query as cq
from lowwater_extractor.sources.mongodb.relations import Shapes, Table
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb

#: documents fetched at once
FETCH_DOCUMENTS = 2_000

_MAJORITY = ReadConcern("majority")
_VALUES: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class CursorReader:
    def __init__(self, config: MongoConfig, source: str, client: Client, shapes: Shapes, encoders: Encoders) -> None:
        self._config = config
        self._source = source
        self._client = client
        self.seen: dict[str, TableSchema] = {}
        self._tables = {name: Table(name, source, config, shapes, encoders, self.seen) for name in config.cursors}

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, UpperBounds]:
        at: datetime = ask(self._client, self._source, "admin", {"hello": 1})["localTime"].replace(tzinfo=UTC)
        look = UpperBounds(int(at.timestamp() * 1e6), {}, {})
        for name, after in committed.items():
            bound = self._last(name, after, at)
            if bound is not None:
                (look.settled if cq.is_time(bound) else look.unsettled)[name] = bound
            elif after is None:
                look.settled[name] = LOWEST
            yield
        return look

    def _last(self, name: str, after: Bound | None, at: datetime) -> Bound | None:
        """Return the upper bound of a collection's documents above `after`; None if there are none."""
        cursor = self._config.cursors[name]
        database, _, collection = name.partition(".")
        found = self._client[database].get_collection(collection, codec_options=_VALUES, read_concern=_MAJORITY)
        shown = {field.partition(".")[0]: 1 for field in cursor.columns}
        with named_errors(self._source, f"query {name}"):
            some = found.find_one({cursor.primary: {"$ne": None}}, shown)
            if some is None:
                return None
            value = some.get(cursor.primary)
            kinds = cq.kinds_of(value)
            other = some if not kinds else found.find_one(cq.of_other_kinds(cursor, kinds), {"_id": 1})
            if other is not None:
                raise self._refused(name, cursor.primary, other)
            query = {"$and": [cq.above(cursor, after), cq.settled(cursor, value, at, self._config.settle_seconds)]}
            last = found.find_one(query, shown, sort=list(cq.order(cursor, -1).items()))
        return None if last is None else cq.bound_of(cursor, last)

    def _refused(self, name: str, field: str, document: dict[str, Any]) -> StartRefusedError:
        return StartRefusedError(
            f"{name}.{field} has values of several types, or of one without an order: see _id {document['_id']!r}",
            source=self._source,
            hint="a cursor has one type: date, number, string or ObjectId; fix the documents, or use another field",
        )

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        for name, wanted in ranges.items():
            database, _, collection = name.partition(".")
            table, cursor = self._tables[name], self._config.cursors[name]
            with named_errors(self._source, f"read {name}"):
                found = self._client[database].get_collection(collection, codec_options=RAW, read_concern=_MAJORITY)
                documents = found.find(
                    cq.in_range(cursor, wanted), sort=list(cq.order(cursor, 1).items()),
                    batch_size=FETCH_DOCUMENTS, allow_disk_use=True,
                )  # fmt: skip
                piece: list[bytes] = []
                for document in documents:
                    with rb.named_damage(self._source, name):
                        header, body = table.row(bytes(document.raw), 0, at_us)
                    piece.append(header + body)
                    if len(piece) == FETCH_DOCUMENTS:
                        yield piece
                        piece = []
            yield piece

    def end(self) -> None:
        """There is no view to close."""

    def close(self) -> None:
        self._client.close()


class NotedStream(IncrementalStream):
    """An `IncrementalStream` that also stores changed shapes in notes."""

    def __init__(self, *arguments: Any, shapes: Shapes) -> None:
        super().__init__(*arguments)
        self._shapes = shapes

    def poll(self, held: frozenset[int]) -> Any:
        polled = super().poll(held)
        polled.notes = self._shapes.notes()
        return polled


def open_stream(
    config: MongoConfig, source: str, shapes: Shapes, resume: bytes | None, encoders: Encoders
) -> NotedStream:
    shapes.load(encoders.notes)
    reader = CursorReader(config, source, connect(config, source), shapes, encoders)
    pace = Pace(config.poll_seconds, config.settle_seconds, config.spill_bytes_max, config.spill_directory)
    wanted = {name: cursor.columns for name, cursor in config.cursors.items()}
    return NotedStream(source, reader, wanted, resume, pace, shapes=shapes)
