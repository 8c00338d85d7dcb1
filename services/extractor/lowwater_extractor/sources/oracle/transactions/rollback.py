"""Which change an undo (5.6, 5.11) takes back. Pure.

The database applies a change's undo record as it stands: so the row operation in front of the 5.6 is the one that the
change's own 5.1 has kept for that, with the same operation, block and slot. An object alone is not enough: another
change of the same table would be taken back without a word.

A transaction is undone from its newest change on. Only where several processes recover a dead instance's transaction
side by side may changes of different blocks change places, so an older change that fits is taken, too.
"""

from __future__ import annotations

from struct import error, unpack_from

from lowwater_extractor.sources.oracle.redo.codes import HEAD
from lowwater_extractor.sources.oracle.rows import pairs
from lowwater_extractor.sources.oracle.rows.pair_fields import bad, fields, order_of

#: the operation of a KDO → where it has the row's slot
_SLOT_AT = {
    pairs.IRP: 42, pairs.ORP: 42, pairs.DRP: 16, pairs.LKR: 16, pairs.URP: 20, pairs.CFA: 24
}  # fmt: skip
_MANY = (pairs.QMI, pairs.QMD)
#: which field has the KDO: of a 5.1, of a row operation
_IN_UNDO, _IN_ROW = 3, 1
_OPERATION = 0x1F

#: object; operation, block and slots, or None where no row of a block is changed
Undone = tuple[int, tuple[int, int, tuple[int, ...]] | None]


def undone_by(data: bytes) -> Undone:
    """What the undo of an UNDO event is about."""
    object_id, _, split = HEAD.unpack_from(data)
    return object_id, _kdo(data, _IN_ROW) if split else None


def undo_of(data: bytes) -> Undone:
    """What the undo of a captured change will be about."""
    object_id, _, split = HEAD.unpack_from(data)
    if not split or data[HEAD.size + 4 * split + 1] == pairs.LMN:
        # it stands alone, or only says more about a row: no row is changed back
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
        raise bad("a row operation that is shorter than its fields say") from cause
