"""Folds several changes of a key into one, for readers at or above the last of them. Pure.

The code works on whole columns and identifies a change by its row number in the input. The changes of one database row
form a line, across changes of its key; a column that the log left out is taken from the nearest earlier change of the
line that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.errors import LakeDamagedError
from lowwater.lake.moved_keys.roles import key_codes
from lowwater.lake.moved_keys.tangles import FROM, MAYBE
from lowwater.lake.schema.columns import BEFORE
from lowwater_spark.maintenance.untangled import first_at, moved, tangled_keys, without_tangles

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNCHANGED = "_unchanged"
_OPS = pa.array(["c", "u", "d", "r", "t"])
_C, _U, _D, _R, _T = range(5)


def fold(rows: pa.Table, key: Sequence[str], *, is_whole: bool = False) -> pa.Table:
    """Folds rows of `stream` files, given in the order of (`_gsn`, `_seq`). Unknown columns are retained unchanged.

    insert + update gives an insert; update + update an update with the `_before` of the first; any change + delete a
    delete, also after an insert, because an older copy may contain the row; delete + insert an update. The last
    truncate is retained, and no change before it.

    `is_whole`: the rows are the whole history, so a column that is not found in them is not in older files either.
    """
    op = _codes_of_ops(rows["_op"])
    emptied = np.flatnonzero(op == _T)
    if len(emptied):
        last = int(emptied[-1])
        return pa.concat_tables([rows.slice(last, 1), fold(rows.slice(last + 1), key, is_whole=is_whole)])
    if not rows.num_rows:
        return rows
    rows = rows.combine_chunks()
    return _folded_whole(rows, key) if is_whole else _folded_some(rows, key, op)


def _folded_whole(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    schema = rows.schema
    rows = without_tangles(rows, key, moved(rows, key)).combine_chunks()
    op = _codes_of_ops(rows["_op"])
    lines = _lines(rows, key)
    filled = _fill(rows, key, op, lines)
    found = _folded(rows, op, lines, filled, np.zeros(rows.num_rows, bool))
    # `_before` of a row with FROM is the key where its columns were found, not a key that it left
    before, place = found[BEFORE].combine_chunks(), schema.get_field_index(BEFORE)
    kept = pc.if_else(found[FROM].is_null().combine_chunks(), before, pa.scalar(None, before.type))
    return found.select(schema.names).set_column(place, schema.field(place), kept)


def _folded_some(rows: pa.Table, key: Sequence[str], op: Ints) -> pa.Table:
    """Folds a part of the history. Changes of tangled keys stay as they are: their result may depend on older files."""
    is_tangled = tangled_keys(rows, key, moved(rows, key))
    if is_tangled.any():
        stays, rows, op = rows.filter(pa.array(is_tangled)), rows.filter(pa.array(~is_tangled)), op[~is_tangled]
        both = pa.concat_tables([stays, _folded_some(rows.combine_chunks(), key, op)]) if len(op) else stays
        return both.sort_by([("_gsn", "ascending"), ("_seq", "ascending")])
    lines = _lines(rows, key)
    filled = _fill(rows, key, op, lines)
    return _folded(rows, op, lines, filled, _pinned(lines, filled))


@dataclass
class _Lines:
    """The history of each key and of each row, one entry per change."""

    is_moved: Bools
    #: this change is the last one of its key
    own_wins: Bools
    #: this change left its old key, and is the last change of that key
    old_wins: Bools
    #: the previous change of the same row; the number of rows if there is none
    previous: Ints
    #: the first change of this change's key, and whether that one left the key
    first: Ints
    first_left: Bools


@dataclass
class _Filled:
    #: column → for each change the change to take it from; the number of rows if none has it
    source: dict[str, Ints]
    #: some column was not found
    lacks: Bools


def _lines(rows: pa.Table, key: Sequence[str]) -> _Lines:
    n = rows.num_rows
    is_moved = moved(rows, key)
    # rows that replace tangled ones have left no key, but their earlier columns may be under another key
    elsewhere = np.zeros(0, np.int64)
    if FROM in rows.column_names:
        elsewhere = np.flatnonzero(_bools(rows[FROM].is_valid().combine_chunks()))
    is_moved[elsewhere] = False
    movers = np.flatnonzero(is_moved)
    columns = [rows[name].combine_chunks() for name in key]
    if len(movers) or len(elsewhere):
        before = rows[BEFORE].combine_chunks().take(pa.array(np.concatenate((movers, elsewhere))))
        columns = [
            pa.concat_arrays([own, pc.struct_field(before, [name])]) for own, name in zip(columns, key, strict=True)
        ]
    # every row touches its key; one that moved has left its old key just before
    code = key_codes(columns)
    looked_for, code = code[n + len(movers) :], code[: n + len(movers)]
    row = np.concatenate((np.arange(n), movers))
    is_leaving = np.arange(len(code)) >= n
    order = np.lexsort((2 * row + ~is_leaving, code)) if len(movers) else np.argsort(code, kind="stable")
    code, row, is_leaving = code[order], row[order], is_leaving[order]
    is_real = _is_real(rows, code, row, is_leaving)
    code, row, is_leaving = code[is_real], row[is_real], is_leaving[is_real]
    starts = np.concatenate(([True], code[1:] != code[:-1]))
    wins = np.concatenate((starts[1:], [True]))
    began = np.maximum.accumulate(np.where(starts, np.arange(len(code)), 0))

    before_row = np.concatenate(([n], np.where(is_leaving[:-1], n, row[:-1])))
    before_row[starts] = n
    flags, numbers = [np.zeros(n, bool) for _ in range(3)], [np.zeros(n, np.int64) for _ in range(2)]
    found = _Lines(is_moved, flags[0], flags[1], numbers[0], numbers[1], flags[2])
    found.own_wins[row[~is_leaving]] = wins[~is_leaving]
    found.old_wins[row[is_leaving]] = wins[is_leaving]
    # a row that moved comes from its old key
    comes_from = is_leaving | ~is_moved[row]
    found.previous[row[comes_from]] = before_row[comes_from]
    found.first[row[~is_leaving]] = row[began[~is_leaving]]
    found.first_left[row[~is_leaving]] = is_leaving[began[~is_leaving]]
    if len(looked_for):
        seq = pc.fill_null(rows[FROM], 0).to_numpy()
        behind = first_at(rows, rows["_gsn"].to_numpy()[elsewhere], seq[elsewhere])
        place = np.searchsorted(code * (n + 1) + row, looked_for * (n + 1) + behind) - 1
        is_there = (place >= 0) & (code[place] == looked_for) & ~is_leaving[place]
        found.previous[elsewhere] = np.where(is_there, row[place], n)
    return found


def _is_real(rows: pa.Table, code: Ints, row: Ints, is_leaving: Bools) -> Bools:
    """False for MAYBE rows, which exist only if their key had a row before, whose key had none."""
    every = np.ones(len(row), bool)
    if MAYBE not in rows.column_names:
        return every
    maybe = _bools(rows[MAYBE].combine_chunks())[row] & ~is_leaving
    if not maybe.any():
        return every
    is_there = ~is_leaving & (_codes_of_ops(rows["_op"])[row] != _D)
    last = np.maximum.accumulate(np.where(maybe, -1, np.arange(len(row))))
    had_one = (last >= 0) & (code[last] == code) & is_there[last]
    found: Bools = ~maybe | had_one
    return found


def _fill(rows: pa.Table, key: Sequence[str], op: Ints, lines: _Lines) -> _Filled:
    n = rows.num_rows
    filled = _Filled({}, np.zeros(n, bool))
    lists = rows[UNCHANGED].combine_chunks()
    if lists.null_count == n:
        return filled
    parents, names = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists)
    own = np.arange(n)
    for name in pc.unique(names).to_pylist():
        if name in key or name not in rows.column_names:
            continue
        lacks = np.zeros(n, bool)
        lacks[parents[_bools(pc.equal(names, name))]] = True
        lacks &= op == _U
        # each step doubles the distance up the line; the index after the last row maps to itself
        up = np.append(np.where(lacks, lines.previous, own), n)
        while not np.array_equal(further := up[up], up):
            up = further
        filled.source[name] = up[:n]
        filled.lacks |= up[:n] == n
    return filled


def _pinned(lines: _Lines, filled: _Filled) -> Bools:
    """Moves to retain: a reader needs them to find a still missing column in older files, under the old key."""
    n = len(lines.previous)
    pinned = np.zeros(n, bool)
    if not lines.is_moved.any():
        return pinned
    for winner in np.flatnonzero(lines.own_wins & filled.lacks):
        row = int(lines.previous[winner])
        while row < n and not pinned[row]:
            pinned[row] = lines.is_moved[row]
            row = int(lines.previous[row])
    return pinned


def _folded(rows: pa.Table, op: Ints, lines: _Lines, filled: _Filled, is_pinned: Bools) -> pa.Table:
    kept = np.flatnonzero(lines.own_wins | lines.old_wins | is_pinned)
    # of a row that moved again later, only the fact that it left its old key is retained
    is_leaving = (lines.is_moved & ~lines.own_wins & ~is_pinned)[kept]
    first, lacks, is_moved, new_op = lines.first[kept], filled.lacks[kept], lines.is_moved[kept], op[kept]
    is_net = (first != kept) & ~is_moved & (new_op != _D)
    was_there = lines.first_left[kept] | (np.isin(op[first], (_U, _D)) & ~lines.is_moved[first])
    made = np.where(op[first] == _R, _R, _C)
    # a row that lacks columns stays an update, so that readers search for them
    new_op = np.where(is_net, np.where(was_there | lacks, _U, made), np.where(is_leaving, _D, new_op))

    images = rows[BEFORE].combine_chunks()
    before = pa.array(np.where(is_net & was_there, first, kept), mask=is_net & ~was_there & ~lacks)
    columns: list[pa.Array] = []
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        if name == "_op":
            columns.append(_OPS.take(pa.array(new_op)))
        elif name == BEFORE:
            columns.append(images.take(before))
        elif name == UNCHANGED:
            columns.append(_still_unchanged(column, op, filled, kept, is_leaving))
        else:
            source = filled.source[name][kept] if name in filled.source else kept
            found = column.take(pa.array(np.where(source < len(op), source, kept)))
            columns.append(_left(found, images, name, kept, is_leaving))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _left(column: pa.Array, images: pa.Array, name: str, kept: Ints, is_leaving: Bools) -> pa.Array:
    """A delete has the before image in the row's columns."""
    if not is_leaving.any() or images.type.get_field_index(name) < 0:
        return column
    old = pc.struct_field(images.take(pa.array(kept)), [name])
    return pc.if_else(pa.array(is_leaving), old, column)


def _still_unchanged(lists: pa.Array, op: Ints, filled: _Filled, kept: Ints, is_leaving: Bools) -> pa.Array:
    lists = lists.take(pa.array(kept))
    if lists.null_count == len(lists):
        return lists
    names = lists.to_pylist()
    for place in np.flatnonzero(_bools(lists.is_valid())):
        row = int(kept[place])
        if op[row] == _U:
            left = [name for name in names[place] if _is_lacking(filled.source.get(name), row, len(op))]
            names[place] = None if is_leaving[place] or not left else left
    return pa.array(names, lists.type)


def _is_lacking(source: Ints | None, row: int, n: int) -> bool:
    return source is None or bool(source[row] == n)


def _codes_of_ops(op: pa.ChunkedArray) -> Ints:
    codes = pc.index_in(op, value_set=_OPS)
    if codes.null_count:
        unknown = pc.unique(op.filter(codes.is_null())).to_pylist()
        raise LakeDamagedError(f"a change with the operation {unknown[0]!r}", hint="did a newer lowwater write it?")
    found: Ints = codes.to_numpy().astype(np.int64)
    return found


def _bools(column: pa.Array) -> Bools:
    found: Bools = column.to_numpy(zero_copy_only=False)
    return found
