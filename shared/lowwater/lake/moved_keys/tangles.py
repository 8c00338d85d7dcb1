"""Tangled keys: within a transaction that changes keys, two rows may temporarily have the same key.

`UPDATE t SET id = id + 1` gives row 1 the key 2 before it changes the key of row 2. After the transaction each key has
at most one row, but the last change of a key need not be a change of that row. A key is tangled in a transaction that
first adds a row to it and later removes one from it; for all other keys "the last change wins" is correct.

A change applies to the row that equals its before-image, if that is whole, else to the oldest row with its key. So the
result for a tangled key is the last added row that was not removed, or none. If a key got a row and then lost one, and
there is no further information, it has a row afterwards if and only if it had one before: such rows are marked `MAYBE`.

The result is a set of changes that replace the tangled ones, one for each key, so that readers can apply "the last
change wins".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.moved_keys.replay import Link
from lowwater.lake.moved_keys.roles import REMOVE, Bools, Ints, Roles, array, find_roles
from lowwater.lake.moved_keys.rules import Rules
from lowwater.lake.schema.adapt import UNCHANGED, alias, before_alias

#: column: the row exists only if its key had a row before the transaction
MAYBE = "_maybe"
#: column of a replacing row: its missing columns are those of the row that its before-key had before this `_seq`
FROM = "_from"


class Tangles:
    """The tangled keys of some changes, and the changes that replace them."""

    def __init__(self, rows: pa.Table, key: Sequence[int], names: Sequence[str], roles: Roles) -> None:
        self._rows, self._key, self._names = rows, key, names
        is_tangled = roles.is_tangled
        #: indexes of the rows that are replaced
        self.replaced: Ints = np.unique(roles.row[is_tangled])
        # the other key of a replaced change may not be tangled: its role there is retained
        self._beside = roles.where(np.isin(roles.row, self.replaced) & ~is_tangled)
        self._tangled = roles.where(is_tangled)
        self._rules = Rules(rows, key, names, self._tangled, self.replaced)

    @classmethod
    def find(cls, rows: pa.Table, key: Sequence[int], names: Sequence[str]) -> Tangles | None:
        """`rows`: as for `find_roles`, with all columns of the table; `names`: their names. None: nothing is tangled.

        All changes of a transaction that have a common key must be included.
        """
        rows = rows.combine_chunks()
        roles = find_roles(rows, key)
        return cls(rows, key, names, roles) if roles.is_tangled.any() else None

    def asks(self) -> pa.Table:
        """Keys (`c<n>`) and transactions (`_gsn`) for which it must be known whether the key had a row before.

        Only for transactions that lack columns: their values are those of the row that existed before.
        """
        role = self._tangled.starts[self._rules.asked]
        row, leaves = pa.array(self._tangled.row[role]), pa.array(self._tangled.leaves[role])
        columns = {
            alias(n): pc.if_else(
                leaves, array(self._rows, before_alias(n)).take(row), array(self._rows, alias(n)).take(row)
            )
            for n in self._key
        }
        return pa.table({**columns, "_gsn": pa.array(self._tangled.gsn[role])})

    def made(self, existed: Bools | None = None) -> pa.Table:
        """The rows that replace `replaced`: their columns, `MAYBE` and `FROM`.

        `existed`: the answers to `asks`. Without them the result has the right keys, but not the values of columns
        that the log lacks.
        """
        tangled, beside, verdicts = self._tangled, self._beside, self._rules.judge(existed)
        counts = verdicts.counts
        row = np.concatenate((tangled.row[counts], beside.row))
        is_delete = np.concatenate((tangled.kind[counts], beside.kind)) == REMOVE
        leaves = np.concatenate((tangled.leaves[counts], beside.leaves))
        maybe = np.concatenate((verdicts.maybe[counts], np.zeros(len(beside.row), bool)))
        pairs = zip(row.tolist(), is_delete.tolist(), strict=True)
        links = [None if gone else verdicts.links.get(one) for one, gone in pairs] if verdicts.links else []
        made = _Made(self._rows, self._key, self._names, row, links)
        return made.table(is_delete, leaves & is_delete, maybe)


@dataclass(frozen=True)
class _Made:
    """Builds the replacing rows: each has the position and the columns of one of the replaced rows."""

    rows: pa.Table
    key: Sequence[int]
    names: Sequence[str]
    row: Ints
    #: the origin of columns that a row lacks; empty if no row lacks columns
    links: Sequence[Link | None]

    def table(self, is_delete: Bools, is_left: Bools, maybe: Bools) -> pa.Table:
        taken = self.rows.take(pa.array(self.row))
        columns: dict[str, pa.Array] = {name: array(taken, name) for name in taken.column_names}
        columns["_op"] = pc.if_else(pa.array(is_delete), "d", columns["_op"])
        if UNCHANGED in columns:
            columns[UNCHANGED] = pa.array(self._lacking(), columns[UNCHANGED].type)
        for n in range(len(self.names)):
            own = self._filled(n, columns[alias(n)])
            # a delete has its before-image in the row's columns
            columns[alias(n)] = pc.if_else(pa.array(is_left), columns[before_alias(n)], own)
            columns[before_alias(n)] = pa.nulls(len(self.row), own.type)
        lacks = np.array([link is not None and bool(link.lacking) for link in self.links], bool)
        if lacks.any():
            columns |= self._from_keys(lacks)
            seq = [link.seq if link is not None and link.lacking else None for link in self.links]
        else:
            seq = [None] * len(self.row)
        return pa.table({**columns, MAYBE: pa.array(maybe), FROM: pa.array(seq, pa.int64())})

    def _lacking(self) -> list[list[str] | None]:
        if not self.links:
            return [None] * len(self.row)
        return [[self.names[n] for n in link.lacking] or None if link else None for link in self.links]

    def _filled(self, n: int, own: pa.Array) -> pa.Array:
        if not any(link is not None and n in link.found for link in self.links):
            return own
        pairs = zip(self.row.tolist(), self.links, strict=True)
        return array(self.rows, alias(n)).take(
            pa.array([link.found.get(n, row) if link else row for row, link in pairs])
        )

    def _from_keys(self, lacks: Bools) -> dict[str, pa.Array]:
        rows = pa.array([link.key_row if link else 0 for link in self.links])
        in_image = pa.array([link is not None and link.key_in_image for link in self.links])
        found = {}
        for n in self.key:
            old, own = array(self.rows, before_alias(n)).take(rows), array(self.rows, alias(n)).take(rows)
            found[before_alias(n)] = pc.if_else(pa.array(lacks), pc.if_else(in_image, old, own), None)
        return found
