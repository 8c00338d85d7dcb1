"""A collection cut into ranges of `_id`, which are copied as units.

Ranges are bounds of the index on `_id`, not comparisons: a comparison only finds values of the bound's own type. The
first range has no lower bound and the last no upper one, so that together they are the collection.
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

#: documents that are drawn for each bound: so that the ranges are about equal
_SAMPLES_PER_BOUND = 20
BYTES_PER_CHUNK_MAX = 1 << 30
CHUNKS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Documents from `from_id` on, up to but without `to_id`: BSON of `{_id: …}`. None: no bound."""

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
                hint="was it planned by a newer lowwater? upgrade Spark's side, or ask for a new copy",
            ) from error

    def find(self) -> dict[str, Any]:
        """How it is read. Bounds need the index to be named; by it documents come in the order of keys."""
        found: dict[str, Any] = {"hint": [("_id", 1)]}
        for name, id_ in (("min", self.from_id), ("max", self.to_id)):
            if id_ is not None:
                found[name] = RawBSONDocument(id_)
        return found


def plan_chunks(client: Client, source: str, shape: Shape, rows_per_chunk: int) -> list[tuple[Bounds, int]]:
    """Ranges, and about how many documents are in each."""
    stats = ask(client, source, shape.namespace, {"collStats": shape.collection})
    rows = int(stats.get("count", 0))
    wanted = max(1, -(-rows // rows_per_chunk), -(-int(stats.get("size", 0)) // BYTES_PER_CHUNK_MAX))
    wanted = min(wanted, CHUNKS_MAX)
    cuts = _cuts(client, source, shape, wanted) if wanted > 1 else []
    return [(Bounds(shape, low, high), rows // (len(cuts) + 1)) for low, high in pairwise([None, *cuts, None])]


def _cuts(client: Client, source: str, shape: Shape, wanted: int) -> list[bytes]:
    """Sorted by the server: it knows the order of its own types."""
    drawn = [{"$sample": {"size": wanted * _SAMPLES_PER_BOUND}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    with named_errors(source, f"cut {shape.name}"):
        collection = client[shape.namespace].get_collection(shape.collection, codec_options=RAW)
        ids = [bytes(one.raw) for one in collection.aggregate(drawn, allowDiskUse=True)]
    step = len(ids) / wanted
    return list(dict.fromkeys(ids[int(n * step)] for n in range(1, wanted))) if len(ids) >= wanted else []
