"""An undo takes back the change that it names: by object, operation, block and slot."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.unit.oracle.vector_builder import LKR, Build, vector

from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.transactions.assembler_state import Branch
from lowwater_extractor.sources.oracle.transactions.rollback import undo_of, undone_by
from lowwater_extractor.spill import SpillSpace

ORDERS = pytest.mark.parametrize("order", ["<", ">"])


def undo(build: Build, op: int = 0, kdo: bytes = b"") -> bytes:
    """An UNDO event's data: the row operation that takes a change back, and the 5.6 behind it."""
    row = vector((11, op), [build.ktb(), kdo], build.order) if op else b""
    ktub = build.pack("IIII", build.object_id, build.object_id, 6, 0) + bytes([11, 1, 12, 0]) + build.pack("HH", 0, 1)
    head = struct.pack("<IHH", build.object_id, int(build.order == ">"), len(row) // 4)
    return head + row + vector((5, 6), [ktub, bytes(8)], build.order)


def branch(*rows: bytes) -> Branch:
    made = Branch(Place(1, 0), Scn(10))
    made.rows.extend(rows)
    return made


@ORDERS
def test_undo_of_every_operation_fits_its_change(order: str) -> None:
    build = Build(order)
    for change, op, kdo in (
        (build.insert([b"a"]), 3, build.gone()),
        (build.delete([b"a"]), 2, build.piece([b"a"])),
        (build.update({2: b"o"}, {2: b"n"}), 5, build.some([b"o"])),
        (build.overwrite([b"a"], [b"b"]), 6, build.piece([b"a"], op=6)),
        (build.insert_many([[b"a"], [b"b"]]), 12, build.many(12, 2)),
        (build.delete_many([[b"a"], [b"b"]]), 11, build.many(11, 2)),
    ):
        assert undo_of(change) == undone_by(undo(build, op, kdo))


def test_undo_that_finds_only_another_row_of_the_table_finds_no_change() -> None:
    here, elsewhere = Build(slot=5), Build(slot=6)
    rows = branch(here.insert([b"a"]))
    assert rows.undo(undone_by(undo(elsewhere, 3, elsewhere.gone()))) is None
    other_block = Build(dba=0x0600000F)
    assert rows.undo(undone_by(undo(other_block, 3, other_block.gone()))) is None
    other_table = Build(object_id=5)
    assert rows.undo(undone_by(undo(other_table, 3, other_table.gone()))) is None
    assert rows.undo(undone_by(undo(here, 2, here.piece([b"a"])))) is None
    assert len(rows.rows) == 1


def test_undo_in_a_transaction_without_changes_finds_none() -> None:
    build = Build()
    assert branch().undo(undone_by(undo(build, 3, build.gone()))) is None


def test_undo_takes_the_newest_of_two_changes_of_one_row() -> None:
    build = Build()
    first, second = build.update({2: b"a"}, {2: b"b"}), build.update({2: b"b"}, {2: b"c"})
    rows = branch(first, second)
    assert rows.undo(undone_by(undo(build, 5, build.some([b"b"])))) == second
    assert rows.rows == [first]


def test_undo_of_a_recovery_side_by_side_takes_the_change_of_its_own_block() -> None:
    one, two = Build(dba=1), Build(dba=2)
    rows = branch(one.insert([b"a"]), two.insert([b"b"]))
    assert rows.undo(undone_by(undo(one, 3, one.gone()))) is not None
    assert rows.undo(undone_by(undo(two, 3, two.gone()))) is not None
    assert not rows.rows


def test_undo_of_a_supplement_takes_the_supplement_and_not_the_row() -> None:
    build = Build()
    insert, more = build.insert([b"a"]), build.supplement({1: b"k"})
    rows = branch(insert, more)
    assert rows.undo(undone_by(undo(build))) == more
    assert rows.undo(undone_by(undo(build))) is None
    assert rows.rows == [insert]


def test_undo_of_a_lock_does_not_take_back_an_update() -> None:
    build = Build()
    lock = build.kdo(LKR, build.pack("HBB", build.slot, 0, 0))
    rows = branch(build.update({2: b"a"}, {2: b"b"}))
    assert rows.undo(undone_by(undo(build, 4, lock))) is None


def test_undo_finds_its_change_on_disk(tmp_path: Path) -> None:
    build = Build()
    rows = branch(build.insert([b"a"]))
    space = SpillSpace(tmp_path)
    rows.spill(space)
    assert rows.undo(undone_by(undo(build, 3, build.gone()))) is not None
    assert rows.count == 0
    assert rows.changes_max() == 0
    space.close()
