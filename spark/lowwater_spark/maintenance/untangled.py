"""Rows of `stream` files without tangled keys, so that they can be folded. See `lowwater.lake.moved_keys.tangles`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.moved_keys.roles import Bools, Ints, Roles, array, bools, differs, find_roles, key_codes, moved_rows
from lowwater.lake.moved_keys.tangles import FROM, MAYBE, Tangles
from lowwater.lake.schema.adapt import alias, before_alias
from lowwater.lake.schema.columns import BEFORE


def moved(rows: pa.Table, key: Sequence[str]) -> Bools:
    """True for an update that changed the key of its row. False if `_before` has no key."""
    none = np.zeros(rows.num_rows, bool)
    before = array(rows, BEFORE)
    if not key or before.null_count == len(before):
        return none
    is_update = bools(pc.equal(array(rows, "_op"), "u"))
    if not is_update.any():
        return none
    known, is_other = none.copy(), none.copy()
    for name in key:
        old, own = pc.struct_field(before, [name]), array(rows, name)
        known |= bools(old.is_valid())
        is_other |= differs(old, own)
    found: Bools = is_update & known & is_other
    return found


def may_be_tangled(rows: pa.Table, is_moved: Bools) -> Bools:
    """True for rows of transactions that add a row under a key, and later remove a row from a key."""
    gsn, op = rows["_gsn"].to_numpy(), array(rows, "_op")
    takes = bools(pc.equal(op, "d")) | is_moved
    none = np.zeros(rows.num_rows, bool)
    if not takes.any():
        return none
    adds = bools(pc.is_in(op, pa.array(["c", "r"]))) | is_moved
    starts = np.flatnonzero(np.concatenate(([True], gsn[1:] != gsn[:-1])))
    number = np.arange(len(gsn))
    first_add = np.minimum.reduceat(np.where(adds, number, len(gsn)), starts)
    last_take = np.maximum.reduceat(np.where(takes, number, -1), starts)
    found: Bools = np.repeat(first_add < last_take, np.diff(np.append(starts, len(gsn))))
    return found


def tangled_keys(rows: pa.Table, key: Sequence[str], is_moved: Bools) -> Bools:
    """True for rows whose key, before or after, is tangled by some transaction or connected to one by a move."""
    none = np.zeros(rows.num_rows, bool)
    where = may_be_tangled(rows, is_moved)
    if not where.any():
        return none
    roles = roles_of(rows, key)
    tangled = np.zeros(int(roles.code.max()) + 1, bool)
    tangled[roles.code[roles.is_tangled]] = True
    is_row = none
    while tangled.any():
        found = none.copy()
        found[roles.row[tangled[roles.code]]] = True
        if np.array_equal(found, is_row):
            break
        is_row = found
        tangled[roles.code[is_row[roles.row]]] = True
    return is_row


def roles_of(rows: pa.Table, key: Sequence[str]) -> Roles:
    """The roles of the keys of `rows`, which are in order and without truncates."""
    return find_roles(_aliased(rows.select(["_gsn", "_op", BEFORE, *key]), key), range(len(key)))


def without_tangles(rows: pa.Table, key: Sequence[str], is_moved: Bools) -> pa.Table:
    """A whole history, in order, with the columns `MAYBE` and `FROM`, and with tangled rows replaced."""
    plain = rows.append_column(MAYBE, pa.repeat(False, rows.num_rows))
    plain = plain.append_column(FROM, pa.nulls(rows.num_rows, pa.int64()))
    where = may_be_tangled(rows, is_moved)
    if not where.any():
        return plain
    names = [field.name for field in rows.schema.field(BEFORE).type]
    order = [*key, *(name for name in names if name not in key)]
    numbers = np.flatnonzero(where)
    found = Tangles.find(_aliased(rows.take(pa.array(numbers)), order), range(len(key)), order)
    if found is None:
        return plain
    is_left = np.ones(rows.num_rows, bool)
    is_left[numbers[found.replaced]] = False
    plain = plain.filter(pa.array(is_left))

    def put_together(existed: Bools | None) -> pa.Table:
        both = pa.concat_tables([plain, _named(found.made(existed), order, plain.schema)])
        return both.sort_by([("_gsn", "ascending"), ("_seq", "ascending")])

    asks = found.asks()
    if not asks.num_rows:
        return put_together(np.zeros(0, bool))
    return put_together(_existed(put_together(None), key, asks))


def _existed(rows: pa.Table, key: Sequence[str], asks: pa.Table) -> Bools:
    """Whether the keys had a row before the transactions that `asks` names."""
    own = _aliased(rows, key)
    # the replacements of tangled rows move no row
    movers = np.flatnonzero(bools(array(rows, FROM).is_null()) & moved_rows(own, range(len(key))))
    columns = [
        pa.concat_arrays(
            [array(own, alias(n)), array(own, before_alias(n)).take(pa.array(movers)), array(asks, alias(n))]
        )
        for n in range(len(key))
    ]
    code = key_codes(columns)
    n, is_asked = rows.num_rows, np.arange(len(code)) >= rows.num_rows + len(movers)
    gsn, seq = rows["_gsn"].to_numpy(), rows["_seq"].to_numpy()
    row = np.concatenate((np.arange(n), movers))
    is_there = np.concatenate((bools(pc.not_equal(array(rows, "_op"), "d")), np.zeros(len(movers), bool)))
    maybe = np.concatenate((bools(array(rows, MAYBE)), np.zeros(len(movers), bool)))
    counts = np.concatenate((~maybe, is_asked[n + len(movers) :]))
    all_gsn = np.concatenate((gsn[row], asks["_gsn"].to_numpy()))
    all_seq = np.concatenate((seq[row], np.full(asks.num_rows, -1)))
    there = np.concatenate((is_there, np.zeros(asks.num_rows, bool)))
    late = np.concatenate((np.arange(len(row)) < n, np.zeros(asks.num_rows, bool)))
    order = np.lexsort((late, all_seq, all_gsn, code))
    order = order[counts[order]]
    # the row before an ask answers it: other asks of the key are skipped
    number = np.arange(len(order))
    last = np.maximum.accumulate(np.where(is_asked[order], -1, number))
    same = (last >= 0) & (code[order][np.maximum(last, 0)] == code[order])
    answer = same & there[order][np.maximum(last, 0)]
    found = np.zeros(asks.num_rows, bool)
    asked = is_asked[order]
    found[order[asked] - n - len(movers)] = answer[asked]
    return found


def _aliased(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Renames columns and images to numbered aliases; other columns keep their names."""
    before = array(rows, BEFORE)
    columns = {name: rows[name] for name in rows.column_names if name not in names and name != BEFORE}
    columns |= {alias(n): rows[name] for n, name in enumerate(names)}
    columns |= {before_alias(n): pc.struct_field(before, [name]) for n, name in enumerate(names)}
    return pa.table(columns)


def _named(rows: pa.Table, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    number = {name: n for n, name in enumerate(names)}
    arrays: list[pa.Array] = []
    for field in schema:
        if field.name == BEFORE:
            children = [array(rows, before_alias(number[f.name])) for f in field.type]
            is_none = array(rows, FROM).is_null()
            arrays.append(pa.StructArray.from_arrays(children, fields=list(field.type), mask=is_none))
        else:
            arrays.append(array(rows, alias(number[field.name]) if field.name in number else field.name))
    return pa.Table.from_arrays(arrays, schema=schema)


def first_at(rows: pa.Table, gsn: Ints, seq: Ints) -> Ints:
    """The index of the first row at or above each (gsn, seq); a loop, because there are few."""
    gsns, seqs = rows["_gsn"].to_numpy(), rows["_seq"].to_numpy()
    found = np.zeros(len(gsn), np.int64)
    for n, (one, of_one) in enumerate(zip(gsn, seq, strict=True)):
        low, high = np.searchsorted(gsns, one, "left"), np.searchsorted(gsns, one, "right")
        found[n] = low + np.searchsorted(seqs[low:high], of_one, "left")
    return found
