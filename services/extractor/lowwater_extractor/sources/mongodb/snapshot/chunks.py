"""Splits a collection into chunks, which are ranges of `_id`.

Ranges are bounds of the index on `_id` (`min`, `max`), not comparisons, which only find values of the bound's type. The
first range has no lower bound and the last no upper bound, so that together they cover the collection.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bson.raw_bson import RawBSONDocument

from lowwater.errors import CodecError
from lowwater_extractor.sources.mongodb.connect import RAW, Client, ask, named_errors
from lowwater_extractor.sources.mongodb.shapes import Shape

#: documents sampled for each bound, so that the ranges are about equal
_SAMPLES_PER_BOUND = 20
BYTES_PER_CHUNK_MAX = 1 << 30
CHUNKS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Documents from `from_id` (inclusive) to `to_id` (exclusive), both BSON of `{_id: …}`. None: no bound."""

    shape: Shape
    from_id: bytes | None = None
    to_id: bytes | None = None

    def encode(self) -> bytes:
        ends = {"from": self.from_id, "to": self.to_id}
        packed = {name: b64encode(id_).decode() for name, id_ in ends.items() if id_ is not None}
        about = {"database": self.shape.namespace, "collection": self.shape.collection}
        return json.dumps({**about, **packed, "shape": self.shape.pack().decode()}, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Bounds:
        try:
            found: dict[str, Any] = json.loads(data)
            shape = Shape.unpack(found["database"], found["collection"], found["shape"].encode())
            ends = [b64decode(found[name]) if name in found else None for name in ("from", "to")]
            return cls(shape, *ends)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CodecError(
                f"a chunk's bounds cannot be read: {error}",
                hint="was it planned by a newer lowwater? upgrade lowwater in Spark, or request a new copy",
            ) from error

    def find(self) -> dict[str, Any]:
        """Return the arguments of find(). `min` and `max` require the hint; documents are then in order of `_id`."""
        found: dict[str, Any] = {"hint": [("_id", 1)]}
        for name, id_ in (("min", self.from_id), ("max", self.to_id)):
            if id_ is not None:
                found[name] = RawBSONDocument(id_)
        return found


def plan_chunks(client: Client, source: str, shape: Shape, rows_per_chunk: int) -> list[tuple[Bounds, int]]:
    """Return the ranges, each with its approximate number of documents."""
    stats = ask(client, source, shape.namespace, {"collStats": shape.collection})
    rows = int(stats.get("count", 0))
    wanted = max(1, -(-rows // rows_per_chunk), -(-int(stats.get("size", 0)) // BYTES_PER_CHUNK_MAX))
    wanted = min(wanted, CHUNKS_MAX)
    cuts = _cuts(client, source, shape, wanted) if wanted > 1 else []
    return [(Bounds(shape, low, high), rows // (len(cuts) + 1)) for low, high in pairwise([None, *cuts, None])]


def _cuts(client: Client, source: str, shape: Shape, wanted: int) -> list[bytes]:
    """Return the bounds between chunks. The server sorts them, because it defines the order of types."""
    drawn = [{"$sample": {"size": wanted * _SAMPLES_PER_BOUND}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    with named_errors(source, f"split {shape.name}"):
        collection = client[shape.namespace].get_collection(shape.collection, codec_options=RAW)
        ids = [bytes(one.raw) for one in collection.aggregate(drawn, allowDiskUse=True)]
    step = len(ids) / wanted
    return list(dict.fromkeys(ids[int(n * step)] for n in range(1, wanted))) if len(ids) >= wanted else []
