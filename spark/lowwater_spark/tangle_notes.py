"""Whether a file has tangled keys: found once, when it is written, so that readers need not search for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.manifest import TangleFacts
from lowwater.lake.tangle_roles import Bools, array, bools
from lowwater_spark.untangled import may_be_tangled, moved, roles_of

_ADDS = pa.array(["c", "r"])


class TangleNotes:
    """Of one `stream` file; its rows come in the order of (`_gsn`, `_seq`), in any number of parts."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = key
        self._inside = False
        self._first: int | None = None
        self._first_takes = False
        self._last: int | None = None
        self._last_adds = False

    def facts(self) -> TangleFacts:
        return TangleFacts(inside=self._inside, first_takes=self._first_takes, last_adds=self._last_adds)

    def add(self, rows: pa.Table) -> None:
        """Of a transaction that goes on in the next part the keys are not compared: it may be searched in vain."""
        op = array(rows, "_op")
        is_row = pc.not_equal(op, "t")
        if not pc.all(is_row).as_py():
            rows = rows.filter(is_row)
            op = array(rows, "_op")
        if not rows.num_rows or not self._key:
            return
        gsn, is_moved = rows["_gsn"].to_numpy(), moved(rows, self._key)
        takes: Bools = bools(pc.equal(op, "d")) | is_moved
        first, last = int(gsn[0]), int(gsn[-1])
        in_last = slice(int(np.searchsorted(gsn, last, "left")), None)
        in_first = slice(int(np.searchsorted(gsn, first, "right")))
        takes_first = bool(takes[in_first].any())
        if first == self._last and self._last_adds and takes_first:
            self._inside = True
        if self._first is None:
            self._first = first
        if first == self._first:
            self._first_takes |= takes_first
        adds = bool(pc.any(pc.is_in(op.slice(in_last.start), _ADDS)).as_py()) or bool(is_moved[in_last].any())
        self._last_adds = adds or (last == self._last and self._last_adds)
        self._last = last
        if not self._inside and takes.any():
            self._inside = self._has_tangled(rows, is_moved)

    def _has_tangled(self, rows: pa.Table, is_moved: Bools) -> bool:
        where = may_be_tangled(rows, is_moved)
        if not where.any():
            return False
        return bool(roles_of(rows.filter(pa.array(where)), self._key).is_tangled.any())
