"""Chunks of table copies: how a table is split, and the format of a chunk's `bounds`.

A heap table is split by ROWID, at block boundaries of its extents: a ROWID range is read without an index, and reads
only its own blocks. ROWIDs compare as (data object, relative file, block, row), over all partitions of a table. The
first chunk has no lower bound and the last no upper one, so the chunks cover the whole table, whatever its extents were
when it was split. A table without physical ROWIDs (index-organized) is one chunk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import NamedTuple

from lowwater.errors import CodecError
from lowwater_extractor.sources.oracle.rows.values import rowid_text
from lowwater_extractor.sources.oracle.scn import Scn

#: limit of a chunk's estimated size, for tables with wide rows
BYTES_PER_CHUNK_MAX = 1 << 30
#: assumed row size of a table without statistics
_ROW_BYTES = 100
#: the relative file number in a bigfile tablespace: block numbers use all 32 bits
_BIG_FILE = 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of one chunk: rows of one table as of an SCN, from `low` (included) to `high` (excluded)."""

    owner: str
    table: str
    scn: Scn
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
                hint="it may have been planned by a newer lowwater: upgrade the Spark side, or request a new copy",
            ) from error

    @property
    def where(self) -> str:
        """The condition after WHERE; its binds are `binds`."""
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
        """The ROWID of the first row in a block, counted from the extent's first block."""
        return rowid_text(self.data_object, self.dba + block, 0)


def chunk_count(rows: int | None, size: int, rows_per_chunk: int) -> int:
    rows = size // _ROW_BYTES if rows is None else rows
    return max(-(-rows // max(1, rows_per_chunk)), -(-size // BYTES_PER_CHUNK_MAX), 1)


def cuts(extents: Sequence[Extent], wanted: int) -> list[str]:
    """ROWIDs at which the chunks after the first begin; all chunks have about the same number of blocks."""
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
