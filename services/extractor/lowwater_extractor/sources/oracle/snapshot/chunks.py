"""Pieces of tables that are copied as units: how a table is cut, and what the `bounds` of a chunk say.

A heap is cut by ROWIDs, at blocks of its extents: a range of them is read without an index, and costs only its own
blocks. ROWIDs compare as (data object, relative file, block, row), over all partitions of a table. The first piece has
no lower bound and the last no upper one, so that the pieces together are the table, whatever its extents were when it
was cut. What has no such ROWIDs (index-organized tables) is one piece.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import NamedTuple

from lowwater.errors import CodecError
from lowwater_extractor.sources.oracle.rows.values import rowid_text

#: rows may be wide: a chunk of them aims at no more than this
BYTES_PER_CHUNK_MAX = 1 << 30
#: of a table that was never analysed
_ROW_BYTES = 100
#: the relative number of the one file of a bigfile tablespace: its blocks have all 32 bits for themselves
_BIG_FILE = 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one chunk reads: rows of one table as of an SCN, from `low` on, up to but without `high`."""

    owner: str
    table: str
    scn: int
    #: ROWIDs; None: no bound
    low: str | None = None
    high: str | None = None

    def encode(self) -> bytes:
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Bounds:
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise CodecError(
                f"a chunk's bounds cannot be read: {error}",
                hint="was it planned by a newer lowwater? upgrade Spark's side, or ask for a new copy",
            ) from error

    @property
    def where(self) -> str:
        """Behind WHERE, with the binds of `binds`."""
        found = ["ROWID >= CHARTOROWID(:low)"] * (self.low is not None)
        found += ["ROWID < CHARTOROWID(:high)"] * (self.high is not None)
        return " AND ".join(found) or "1 = 1"

    @property
    def binds(self) -> dict[str, object]:
        found = {"scn": self.scn, "low": self.low, "high": self.high}
        return {name: value for name, value in found.items() if value is not None}


class Extent(NamedTuple):
    data_object: int
    file: int
    block: int
    blocks: int
    bytes: int

    @property
    def dba(self) -> int:
        """The address of its first block."""
        return (self.file % _BIG_FILE << 22) + self.block

    def rowid(self, block: int) -> str:
        """The first place in one of its blocks, counted from its first."""
        return rowid_text(self.data_object, self.dba + block, 0)


def chunk_count(rows: int | None, size: int, rows_per_chunk: int) -> int:
    rows = size // _ROW_BYTES if rows is None else rows
    return max(-(-rows // max(1, rows_per_chunk)), -(-size // BYTES_PER_CHUNK_MAX), 1)


def cuts(extents: Sequence[Extent], wanted: int) -> list[str]:
    """ROWIDs at which the pieces but the first begin: each has about as many blocks as the others."""
    ordered = sorted(extents, key=lambda extent: (extent.data_object, extent.dba))
    total = sum(extent.blocks for extent in ordered)
    wanted = min(wanted, max(1, total))
    places = [total * number // wanted for number in range(1, wanted)]
    found: list[str] = []
    before = 0
    for extent in ordered:
        while len(found) < len(places) and places[len(found)] < before + extent.blocks:
            found.append(extent.rowid(places[len(found)] - before))
        before += extent.blocks
    return found


def pieces(whole: Bounds, at: Sequence[str]) -> list[Bounds]:
    ends = [None, *at, None]
    return [Bounds(whole.owner, whole.table, whole.scn, low, high) for low, high in pairwise(ends)]
