"""Captured pairs become whole row changes, whatever pieces the rows lie in."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.oracle_logs import real_logs
from tests.unit.oracle.test_real_logs import both
from tests.unit.oracle.vector_builder import CMP, LKR, LMN, OBJECT, UPDATE, Build, Value, vector

from lowwater.errors import LogCorruptError, LogUnknownError
from lowwater_extractor.sources.oracle.rows.row_changes import Joiner, RowChange, changes_max

VALUES: st.SearchStrategy[Value] = st.none() | st.binary(min_size=1, max_size=300)
ORDERS = pytest.mark.parametrize("order", ["<", ">"])

#: the record of the one user's insert in the real log
INSERT_AT, INSERT_SIZE, BLOCK = 297_320, 512, 512


def joined(*pairs: bytes) -> list[RowChange]:
    joiner = Joiner()
    found = [change for pair in pairs for change in joiner.add(pair)]
    joiner.end()
    return found


def one(*pairs: bytes) -> RowChange:
    (found,) = joined(*pairs)
    return found


def insert_record(file: bytes) -> bytes:
    """A record goes over block borders: take the 16 bytes of each block's header out."""
    at, left, parts = INSERT_AT, INSERT_SIZE, []
    while left:
        take = min(left, BLOCK - at % BLOCK)
        parts.append(file[at : at + take])
        at, left = at + take + 16, left - take
    return b"".join(parts)


def size_of(record: bytes, at: int) -> int:
    (size,) = struct.unpack_from("<H", record, at + 32)
    sizes = struct.unpack_from(f"<{(size - 2) // 2}H", record, at + 34)
    return int(32 + (size + 2 & ~3) + sum(n + 3 & ~3 for n in sizes))


def real_insert() -> bytes:
    """The pair of the real log, as the reader hands it over."""
    record = insert_record(real_logs()[0].read_bytes())
    undo = 24 + size_of(record, 24)
    redo = undo + size_of(record, undo)
    end = redo + size_of(record, redo)
    assert record[24:26] == b"\x05\x02"
    assert record[undo : undo + 2] == b"\x05\x01"
    assert record[redo : redo + 2] == b"\x0b\x02"
    return struct.pack("<IHH", OBJECT, 0, (redo - undo) // 4) + record[undo:end]


def real_pairs() -> list[bytes]:
    """Every pair of both logs: of the database's own tables, most of them in clusters."""
    found = []
    for log in both():
        for record in log.vectors:
            for undo, row in pairwise(record):
                if undo.opcode == 0x0501 and row.opcode >> 8 == 11:
                    head = struct.pack("<IHH", *struct.unpack_from("<I", undo.field(2)), 0, (undo.stop - undo.at) // 4)
                    found.append(head + undo.data[undo.at : undo.stop] + row.data[row.at : row.stop])
    return found


class TestTheRealLogs:
    def test_rows_in_clusters_are_refused_and_all_others_read(self) -> None:
        ops, refused = [], 0
        for pair in real_pairs():
            try:
                change = one(pair)
            except LogUnknownError as error:
                refused += "cluster" in error.what
            else:
                ops.append((change.object_id, change.op, len(change.before), len(change.after)))
        assert refused == 18
        assert sorted(ops) == [(81, "d", 25, 0)] * 2 + [(273, "c", 0, 14)] * 2 + [(72726, "c", 0, 2)]

    def test_columns_of_the_insert(self) -> None:
        change = one(real_insert())
        assert (change.object_id, change.op) == (72726, "c")
        assert change.after == {1: b"\xc1\x02", 2: b"hello world"}
        assert not change.before
        assert changes_max(real_insert()) == 1


class TestOnePiece:
    @ORDERS
    @settings(deadline=None)
    @given(values=st.lists(VALUES, min_size=1, max_size=20))
    def test_insert_and_delete(self, order: str, values: list[Value]) -> None:
        numbered = dict(enumerate(values, 1))
        change = one(Build(order).insert(values))
        assert (change.op, change.after, change.before) == ("c", numbered, {})
        change = one(Build(order).delete(values))
        assert (change.op, change.before, change.after) == ("d", numbered, {})

    @ORDERS
    def test_update_has_before_after_and_the_supplemental_columns(self, order: str) -> None:
        pair = Build(order).update({2: b"old", 4: None}, {2: b"new", 4: b"x"}, {1: b"key", 3: None})
        change = one(pair)
        assert change.op == "u"
        assert change.before == {2: b"old", 4: None}
        assert change.after == {2: b"new", 4: b"x"}
        assert change.more == {1: b"key", 3: None}

    def test_columns_of_an_update_are_counted_in_the_piece(self) -> None:
        change = one(Build().update({7: b"a", 9: b"b"}, {7: b"c", 9: b"d"}, {1: b"k"}, first=5))
        assert change.after == {7: b"c", 9: b"d"}

    def test_nulls_in_the_undo_may_have_no_field(self) -> None:
        build = Build()
        undo = [build.piece([b"a", None, b"c", None], extra=0x20), b"a", b"c", *build.group(4, undo_first=1)]
        change = one(build.pair(3, undo, [build.gone()]))
        assert change.before == {1: b"a", 2: None, 3: b"c", 4: None}

    def test_nulls_at_the_end_may_have_no_field(self) -> None:
        build = Build()
        redo = [build.piece([b"a", None, None]), b"a"]
        change = one(build.pair(2, [build.gone(0x20), *build.group(2, redo_first=1)], redo))
        assert change.after == {1: b"a", 2: None, 3: None}

    @ORDERS
    @settings(deadline=None)
    @given(values=st.lists(VALUES, min_size=1, max_size=9))
    def test_packed_columns(self, order: str, values: list[Value]) -> None:
        build = Build(order, kdo_flags=0x81)
        numbers = build.pack(f"{len(values)}H", *range(len(values)))
        group = build.group(UPDATE, undo_first=1, redo_first=1, more={12: b"k"})
        undo = [build.some(values, extra=0x20), numbers, build.packed(values), *group]
        change = one(build.pair(5, undo, [build.some(values), numbers, build.packed(values)]))
        assert change.before == change.after == dict(enumerate(values, 1))
        assert change.more == {12: b"k"}

    @settings(deadline=None)
    @given(st.lists(VALUES, min_size=1, max_size=5))
    def test_row_dependencies(self, values: list[Value]) -> None:
        build = Build(op_flags=0x40)
        group, scn = build.group(4, undo_first=1), bytes(8)
        undo = [build.piece(values, extra=0x20), *(v or b"" for v in values), scn, *group]
        assert one(build.pair(3, undo, [build.gone()])).before == dict(enumerate(values, 1))
        undo = [build.gone(0x20), scn, *build.group(2, redo_first=1)]
        redo = [build.piece(values), *(v or b"" for v in values), scn]
        assert one(build.pair(2, undo, redo)).after == dict(enumerate(values, 1))


class TestManyRows:
    @ORDERS
    @pytest.mark.parametrize("dependencies", [0, 0x40])
    @settings(deadline=None)
    @given(rows=st.lists(st.lists(VALUES, min_size=1, max_size=5), min_size=1, max_size=9))
    def test_there_and_back(self, order: str, dependencies: int, rows: list[list[Value]]) -> None:
        build = Build(order, op_flags=dependencies)
        want = [dict(enumerate(row, 1)) for row in rows]
        inserts = joined(build.insert_many(rows))
        assert [(c.op, c.after) for c in inserts] == [("c", row) for row in want]
        deletes = joined(build.delete_many(rows))
        assert [(c.op, c.before) for c in deletes] == [("d", row) for row in want]
        assert changes_max(build.insert_many(rows)) == changes_max(build.delete_many(rows)) == len(rows)

    def test_rows_that_are_compressed_are_refused(self) -> None:
        build = Build()
        sizes, packed = build.packed_rows([[b"a", b"b"]])
        group = build.group(2, redo_first=1)
        redo = [build.many(11, 1), build.pack("H", len(packed) + 3), packed + b"abc"]
        assert sizes
        with pytest.raises(LogUnknownError, match="compressed"):
            joined(build.pair(11, [build.many(12, 1, 0x20), *group], redo))


class TestPieces:
    def test_insert_writes_its_last_piece_first(self) -> None:
        build = Build()
        pairs = [
            build.insert([b"c", b"d"], fb=0x04, first=3, group_fb=0x08),
            build.insert([b"a", b"b"], fb=0x28, first=1, group_fb=0x04),
        ]
        assert one(*pairs).after == {1: b"a", 2: b"b", 3: b"c", 4: b"d"}
        assert [changes_max(pair) for pair in pairs] == [1, 1]

    def test_column_that_goes_over_three_pieces(self) -> None:
        build = Build()
        pairs = [
            build.insert([b"ghi", b"end"], fb=0x06, first=2, group_fb=0x08),
            build.insert([b"def"], fb=0x03, first=2, group_fb=0x00),
            build.insert([b"a", b"abc"], fb=0x29, first=1, group_fb=0x04),
        ]
        assert one(*pairs).after == {1: b"a", 2: b"abcdefghi", 3: b"end"}

    def test_column_of_which_a_part_is_missing(self) -> None:
        with pytest.raises(LogCorruptError, match="not all are in the log"):
            joined(Build().insert([b"def"], fb=0x2E, first=2))

    def test_delete_in_pieces(self) -> None:
        build = Build()
        pairs = [
            build.delete([b"a", b"ab"], fb=0x29, first=1, group_fb=0x08),
            build.delete([b"cd", b"z"], fb=0x06, first=2, group_fb=0x04),
        ]
        assert one(*pairs).before == {1: b"a", 2: b"abcd", 3: b"z"}

    def test_update_of_the_second_piece_with_the_key_in_the_first(self) -> None:
        build = Build()
        pairs = [
            build.supplement({1: b"key"}, group_fb=0x08),
            build.update({9: b"x"}, {9: b"y"}, first=8, group_fb=0x04),
        ]
        change = one(*pairs)
        assert (change.op, change.before, change.after, change.more) == ("u", {9: b"x"}, {9: b"y"}, {1: b"key"})

    def test_row_that_migrates(self) -> None:
        build = Build()
        pairs = [
            build.moved_in([b"k", b"a much longer value"], group_fb=0x08),
            build.overwrite([b"k", b"short"], [], fb=0x20, group_fb=0x04),
        ]
        change = one(*pairs)
        assert change.op == "u"
        assert change.before == {1: b"k", 2: b"short"}
        assert change.after == {1: b"k", 2: b"a much longer value"}

    def test_overwritten_in_place(self) -> None:
        change = one(Build().overwrite([b"k", b"a", b"b"], [b"k", b"c"]))
        assert (change.op, change.before, change.after) == ("u", {1: b"k", 2: b"a", 3: b"b"}, {1: b"k", 2: b"c"})

    @pytest.mark.parametrize("op", [LMN, CMP, LKR])
    def test_what_only_says_more_is_no_change(self, op: int) -> None:
        pair = Build().supplement({1: b"key"}, op=op)
        assert joined(pair) == []
        assert changes_max(pair) == 0

    def test_column_that_is_dropped_from_a_row_is_no_change(self) -> None:
        build = Build()
        pair = build.pair(14, [build.kdo(14, bytes(8), 0x20), b"old"], [build.kdo(14, bytes(8))])
        assert joined(pair) == []
        assert changes_max(pair) == 0

    def test_lock(self) -> None:
        assert joined(Build().supplement({}, op=LKR, kind=0x10)) == []

    def test_another_row_in_the_middle_of_one(self) -> None:
        first = Build().insert([b"c"], fb=0x04, first=3, group_fb=0x08)
        with pytest.raises(LogCorruptError, match="in the middle"):
            joined(first, Build(object_id=5).insert([b"a"]))

    def test_first_pair_with_a_short_supplemental_header_belongs_to_the_row(self) -> None:
        """As 19c writes it: the first pair of a row says nothing of the head's place, the others do."""
        build = Build()
        first = build.update({2: b"a"}, {2: b"b"}, group_fb=0x08, place=False)
        last = build.update({7: b"c"}, {7: b"d"}, {1: b"k"}, first=5, group_fb=0x04)
        change = one(first, last)
        assert (change.op, change.before, change.after) == ("u", {2: b"a", 7: b"c"}, {2: b"b", 7: b"d"})
        assert change.more == {1: b"k"}
        # the place is known from then on
        far = Build(slot=9)
        middle = build.update({5: b"x"}, {5: b"y"}, first=5, group_fb=0x00)
        with pytest.raises(LogCorruptError, match="in the middle"):
            joined(first, middle, far.update({7: b"c"}, {7: b"d"}, first=5, group_fb=0x04))

    def test_two_rows_without_a_place_are_told_apart_by_the_first_pair(self) -> None:
        first = Build().insert([b"c"], fb=0x04, first=3, group_fb=0x08)
        with pytest.raises(LogCorruptError, match="in the middle"):
            joined(first, first)

    def test_row_whose_first_pieces_are_missing_is_refused(self) -> None:
        with pytest.raises(LogCorruptError, match="not all pieces"):
            joined(Build().insert([b"c"], fb=0x04, first=3, group_fb=0x04))
        with pytest.raises(LogCorruptError, match="not all pieces"):
            joined(Build().delete([b"c"], fb=0x28, group_fb=0x0C))

    def test_change_with_a_cluster_keys_supplemental_flag_is_refused(self) -> None:
        with pytest.raises(LogUnknownError, match="supplemental flags 8c"):
            joined(Build().update({2: b"a"}, {2: b"b"}, group_fb=0x8C))

    def test_end_in_the_middle_of_a_row(self) -> None:
        with pytest.raises(LogCorruptError, match="last piece"):
            joined(Build().insert([b"c"], fb=0x04, first=3, group_fb=0x08))


class TestUndoInSeveralBlocks:
    def test_parts_come_last_first(self) -> None:
        build = Build()
        values: list[Value] = [b"a" * 30, b"b" * 30, b"c" * 30]
        group = build.group(4, undo_first=1)
        ktb = b"\x03\x0d" + bytes(6)
        tail = build.part([values[2][10:] if values[2] else b"", *group], 0x0002)
        middle = build.part([b"b" * 30, b"c" * 10], 0x0100 | 0x0004)
        head = build.undo([ktb, build.piece(values, extra=0x20), b"a" * 30], 0x0001)
        head = build.head(len(head)) + head + vector((11, 3), [build.ktb(), build.gone()])
        change = one(tail, middle, head)
        assert (change.op, change.before) == ("d", dict(enumerate(values, 1)))
        assert [changes_max(d) for d in (tail, middle, head)] == [0, 0, 1]

    def test_undo_that_stands_alone(self) -> None:
        assert joined(Build().part([b"x"], 0)) == []


class TestWithoutSupplementalLogging:
    def test_whole_rows_can_be_told(self) -> None:
        build = Build()
        insert = build.pair(2, [build.gone(0x20)], [build.piece([b"a", b"b"]), b"a", b"b"])
        assert one(insert).after == {1: b"a", 2: b"b"}
        delete = build.pair(3, [build.piece([b"a"], extra=0x20), b"a"], [build.gone()])
        assert one(delete).before == {1: b"a"}

    def test_updates_cannot(self) -> None:
        build = Build()
        pair = build.pair(5, [build.some([b"a"], extra=0x20), b"\0\0", b"a"], [build.some([b"b"]), b"\0\0", b"b"])
        with pytest.raises(LogUnknownError, match="supplemental") as found:
            joined(pair)
        assert "ADD SUPPLEMENTAL LOG DATA" in str(found.value)

    def test_pieces_cannot(self) -> None:
        build = Build()
        with pytest.raises(LogUnknownError, match="supplemental"):
            joined(build.pair(2, [build.gone(0x20)], [build.piece([b"a"], fb=0x04), b"a"]))


class TestRefused:
    @pytest.mark.parametrize("fb", [0x6C, 0xAC])
    def test_rows_in_a_cluster(self, fb: int) -> None:
        with pytest.raises(LogUnknownError, match="cluster"):
            joined(Build().insert([b"a"], fb=fb))

    def test_compressed_row(self) -> None:
        build = Build()
        redo = [build.piece([b"a", b"b"], size=12), bytes(12)]
        with pytest.raises(LogUnknownError, match="compressed"):
            joined(build.pair(2, [build.gone(0x20), *build.group(2, redo_first=1)], redo))

    def test_unknown_row_operation(self) -> None:
        build = Build()
        with pytest.raises(LogUnknownError, match=r"opcode 11\.9"):
            joined(build.pair(9, [build.gone(0x20), *build.group(2, redo_first=1)], [build.piece([b"a"])]))

    def test_undo_of_another_layer(self) -> None:
        pair = bytearray(Build().insert([b"a"]))
        at = pair.index(bytes([11, 1, 12, 0]))
        pair[at : at + 2] = bytes([10, 22])
        with pytest.raises(LogUnknownError, match=r"10\.22"):
            joined(bytes(pair))

    @settings(deadline=None)
    @given(st.data())
    def test_cut_short_is_an_error_of_ours(self, data: st.DataObject) -> None:
        whole = Build().update({2: b"old"}, {2: b"new"}, {1: b"key"})
        cut = data.draw(st.integers(8, len(whole) - 5))
        with pytest.raises((LogCorruptError, LogUnknownError)):
            joined(whole[:cut])
