"""Finds the change that an undo (5.6, 5.11) undoes. Pure.

The database applies a change's undo record as it is: so the row operation before the 5.6 is the one in the change's
5.1, with the same operation, block and slot. The object alone is not enough: another change of the same table would be
undone silently.

A transaction is undone from its newest change on. Only if several processes recover a dead instance's transaction in
parallel may changes of different blocks be undone in another order, so an older change that matches is accepted, too.
"""

from __future__ import annotations

from struct import error, unpack_from

from lowwater_extractor.sources.oracle.redo.codes import HEAD
from lowwater_extractor.sources.oracle.rows import pairs
from lowwater_extractor.sources.oracle.rows.pair_fields import bad, fields, order_of

#: the operation of a KDO → offset of the row's slot in it
_SLOT_AT = {
    pairs.IRP: 42, pairs.ORP: 42, pairs.DRP: 16, pairs.LKR: 16, pairs.URP: 20, pairs.CFA: 24
}  # fmt: skip
_MANY = (pairs.QMI, pairs.QMD)
#: index of the field with the KDO: in a 5.1, in a row operation
_IN_UNDO, _IN_ROW = 3, 1
_OPERATION = 0x1F

#: object; operation, block and slots, or None if no row is changed
Undone = tuple[int, tuple[int, int, tuple[int, ...]] | None]


def undone_by(data: bytes) -> Undone:
    """The change that an UNDO event undoes."""
    object_id, _, split = HEAD.unpack_from(data)
    return object_id, _kdo(data, _IN_ROW) if split else None


def undo_of(data: bytes) -> Undone:
    """The value of `undone_by` for the undo of this captured change."""
    object_id, _, split = HEAD.unpack_from(data)
    if not split or data[HEAD.size + 4 * split + 1] == pairs.LMN:
        # an undo without a row operation, or a supplement: no row is changed
        return object_id, None
    return object_id, _kdo(data, _IN_UNDO)


def _kdo(data: bytes, field: int) -> tuple[int, int, tuple[int, ...]] | None:
    order = order_of(data)
    found = fields(data, HEAD.size, order)
    if len(found) <= field:
        raise bad("an undo without its row operation")
    kdo = found[field]
    try:
        op = kdo[10] & _OPERATION
        if op == pairs.LMN:
            return None
        (block,) = unpack_from(f"{order}I", kdo)
        if op in _MANY:
            return op, block, unpack_from(f"{order}{kdo[18]}H", kdo, 20)
        at = _SLOT_AT.get(op)
        return op, block, () if at is None else unpack_from(f"{order}H", kdo, at)
    except (error, IndexError) as cause:
        raise bad("a row operation that is shorter than its fields") from cause
