"""Detects tangled keys of a file when it is written, so that readers need not search for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.chain.manifest import TangleFacts
from lowwater.lake.moved_keys.roles import Bools, array, bools, has_any
from lowwater.lake.schema.columns import BEFORE
from lowwater_spark.maintenance.untangled import may_be_tangled, moved, roles_of

_ADDS = pa.array(["c", "r"])


class TangleNotes:
    """Facts about one `stream` file; its rows are added in the order of (`_gsn`, `_seq`), in any number of parts."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = key
        self._inside = False
        self._first = _End()
        self._last = _End()

    def facts(self) -> TangleFacts:
        first, last = self._first, self._last
        return TangleFacts(
            inside=self._inside, first_adds=first.adds, first_takes=first.takes, last_adds=last.adds,
            last_takes=last.takes,
        )  # fmt: skip

    def add(self, rows: pa.Table) -> None:
        """Adds the next rows. The keys of a transaction in two parts are not compared: `inside` may be wrongly true."""
        op = array(rows, "_op")
        is_row = pc.not_equal(op, "t")
        if not pc.all(is_row).as_py():
            rows = rows.filter(is_row)
            op = array(rows, "_op")
        if not rows.num_rows or not self._key:
            return
        gsn, is_moved = rows["_gsn"].to_numpy(), moved(rows, self._key)
        adds: Bools = bools(pc.is_in(op, _ADDS)) | is_moved
        takes: Bools = bools(pc.equal(op, "d")) | is_moved
        in_first = slice(int(np.searchsorted(gsn, gsn[0], "right")))
        in_last = slice(int(np.searchsorted(gsn, gsn[-1], "left")), None)
        first = _End(int(gsn[0]), bool(adds[in_first].any()), bool(takes[in_first].any()))
        last = _End(int(gsn[-1]), bool(adds[in_last].any()), bool(takes[in_last].any()))
        if self._last.gsn == first.gsn:
            both = self._last.joined(first)
            self._inside |= both.adds and both.takes
            last = both if last.gsn == first.gsn else last
        self._first = first if self._first.gsn < 0 else self._first.joined(first)
        self._last = last
        if not self._inside and takes.any() and self._shares_keys(rows, adds, takes, is_moved):
            self._inside = self._has_tangled(rows, is_moved)

    def _shares_keys(self, rows: pa.Table, adds: Bools, takes: Bools, is_moved: Bools) -> bool:
        """True if some row was added under a key that another left, in any transaction: a fast check, rarely true."""
        came, went, left = (pa.array(np.flatnonzero(some)) for some in (adds, takes & ~is_moved, is_moved))
        for name in self._key:
            own = array(rows, name)
            taken = own.take(went)
            if len(left):
                taken = pa.concat_arrays([taken, pc.struct_field(array(rows, BEFORE), [name]).take(left)])
            if not has_any(own.take(came), taken):
                return False
        return True

    def _has_tangled(self, rows: pa.Table, is_moved: Bools) -> bool:
        where = may_be_tangled(rows, is_moved)
        if not where.any():
            return False
        slim = rows.select(["_gsn", "_op", BEFORE, *self._key])
        return bool(roles_of(slim.filter(pa.array(where)), self._key).is_tangled.any())


@dataclass(frozen=True, slots=True)
class _End:
    """Whether a transaction at an end of the file adds rows under keys, and removes rows from keys, as far as known."""

    gsn: int = -1
    adds: bool = False
    takes: bool = False

    def joined(self, other: _End) -> _End:
        if self.gsn != other.gsn:
            return self
        return _End(self.gsn, self.adds or other.adds, self.takes or other.takes)
