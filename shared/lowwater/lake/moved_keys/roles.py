"""Roles: whether a change adds, removes or updates the row of a key. Used to find tangled keys. Pure; see `tangles`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.schema.adapt import alias, before_alias

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ADD, REMOVE, UPDATE = range(3)
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Roles:
    """The role of each change for a key. A change that moves its row to another key has two roles."""

    row: Ints
    gsn: Ints
    #: equal for equal keys
    code: Ints
    kind: Ints
    #: this role is for the old key of a moved row
    leaves: Bools
    #: number of the role's (transaction, key)
    group: Ints

    def where(self, which: Bools) -> Roles:
        """The selected roles, with their groups numbered again."""
        numbers = np.unique(self.group[which], return_inverse=True)[1].astype(np.int64)
        return Roles(self.row[which], self.gsn[which], self.code[which], self.kind[which], self.leaves[which], numbers)

    @cached_property
    def starts(self) -> Ints:
        return np.flatnonzero(np.concatenate(([True], self.group[1:] != self.group[:-1])))

    @cached_property
    def is_tangled(self) -> Bools:
        """For each role, whether its group adds a row and later removes one."""
        if not len(self.row):
            return np.zeros(0, bool)
        first_add = np.minimum.reduceat(np.where(self.kind == ADD, self.row, _NEVER), self.starts)
        last_remove = np.maximum.reduceat(np.where(self.kind == REMOVE, self.row, -1), self.starts)
        found: Bools = (first_add < last_remove)[self.group]
        return found


def key_codes(columns: Sequence[pa.Array]) -> Ints:
    """Equal numbers for equal values of all columns."""
    codes: Ints | None = None
    for column in columns:
        encoded = pc.dictionary_encode(_plain(column), null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = own
        else:
            codes = np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)[1].astype(np.int64)
    assert codes is not None, "no key columns"
    return codes


def key_values(rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of each row, for comparison: equal values are equal whether DuckDB or Spark has read them."""
    columns = (_without_times(_plain(array(rows, name))).to_pylist() for name in names)
    return list(zip(*columns, strict=True))


def _plain(column: pa.Array) -> pa.Array:
    """The column in a type that Arrow can encode and compare. 0.0 and -0.0 are equal, and so are all NaNs."""
    if pa.types.is_floating(column.type):
        zeroed = pc.add(column, pa.scalar(0.0, column.type))
        one = pc.if_else(pc.is_nan(zeroed), pa.scalar(math.nan, column.type), zeroed)
        return one.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    if pa.types.is_nested(column.type):
        plain = _without_times(column).to_pylist()
        return pa.array([None if value is None else repr(value) for value in plain], pa.string())
    return column


def _without_times(column: pa.Array) -> pa.Array:
    """Replaces times by integers: Arrow's times have a wider range than Python's."""
    plain = _type_without_times(column.type)
    return column if plain == column.type else column.cast(plain)


def _type_without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(type_):
        return pa.int64() if type_.bit_width == 64 else pa.int32()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        inner = type_.value_field.with_type(_type_without_times(type_.value_type))
        return pa.list_(inner) if pa.types.is_list(type_) else pa.large_list(inner)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_type_without_times(field.type)) for field in type_])
    return type_


def has_any(these: pa.Array, others: pa.Array) -> bool:
    """Whether any of `these` is in `others`."""
    return bool(pc.any(pc.is_in(_plain(these), value_set=_plain(others))).as_py())


def differs(old: pa.Array, own: pa.Array) -> Bools:
    """Whether values differ, as IS DISTINCT FROM: two nulls are equal."""
    old, own = _plain(old), _plain(own)
    return bools(pc.coalesce(pc.not_equal(old, own), pc.xor(old.is_null(), own.is_null())))


def moved_rows(rows: pa.Table, key: Sequence[int]) -> Bools:
    """True for updates that changed the key of their row. False if the before-image has no key."""
    known, is_other = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
    for n in key:
        old, own = array(rows, before_alias(n)), array(rows, alias(n))
        known |= bools(old.is_valid())
        is_other |= differs(old, own)
    found: Bools = bools(pc.equal(array(rows, "_op"), "u")) & known & is_other
    return found


def find_roles(rows: pa.Table, key: Sequence[int]) -> Roles:
    """`rows`: changes in the order of (`_gsn`, `_seq`), without truncates; columns `c<n>`, before-images `b<n>`."""
    n = rows.num_rows
    is_moved = moved_rows(rows, key)
    movers = np.flatnonzero(is_moved)
    columns = [array(rows, alias(k)) for k in key]
    if len(movers):
        images = (array(rows, before_alias(k)).take(pa.array(movers)) for k in key)
        columns = [pa.concat_arrays([own, old]) for own, old in zip(columns, images, strict=True)]
    code = key_codes(columns)
    op = array(rows, "_op")
    own_kind = np.where(bools(pc.equal(op, "d")), REMOVE, np.where(bools(pc.equal(op, "u")) & ~is_moved, UPDATE, ADD))
    row = np.concatenate((np.arange(n), movers))
    kind = np.concatenate((own_kind, np.full(len(movers), REMOVE)))
    leaves = np.arange(len(row)) >= n
    gsn = array(rows, "_gsn").to_numpy()[row]
    order = np.lexsort((row, code, gsn))
    row, code, kind, leaves, gsn = row[order], code[order], kind[order], leaves[order], gsn[order]
    starts = np.concatenate(([True], (gsn[1:] != gsn[:-1]) | (code[1:] != code[:-1]))) if len(row) else leaves
    return Roles(row, gsn, code, kind, leaves, np.cumsum(starts) - 1)


def array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def bools(column: pa.Array) -> Bools:
    found: Bools = column.to_numpy(zero_copy_only=False).astype(bool)
    return found
