"""Frames: what the compiled way makes is what the plain way makes, and both are what was written."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.oracle.test_rows import real_insert
from tests.unit.oracle.vector_builder import OBJECT, Build, Value, vector

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, LogUnknownError, LowwaterError
from lowwater.records.ids import SchemaId
from lowwater_extractor.api import Frame
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.rows import pairs
from lowwater_extractor.sources.oracle.rows.changes import Changes, FrameMaker
from lowwater_extractor.sources.oracle.rows.row_changes import Joiner
from lowwater_extractor.sources.oracle.rows.row_decoder import TableRows
from lowwater_extractor.sources.oracle.rows.row_decoder_fast import Quicks, quicks
from lowwater_extractor.sources.oracle.rows.value_writing import encode_number, encoder
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

TS = 1_772_847_880_000_000
Row = list[Any]


class Encoders:
    notes: Mapping[str, bytes] = MappingProxyType({})
    rules = ColumnRules()

    def encoder(self, table: TableSchema) -> TableEncoder:
        return TableEncoder(table, SchemaId(7))

    def known(self) -> list[str]:
        return []

    def last_header(self, table: str) -> bytes | None:
        return None

    def versioned(self, table: TableSchema) -> TableSchema:
        return table


def text(name: str, number: int, **more: Any) -> OracleColumn:
    return OracleColumn(name, number, OracleType.VARCHAR2, 100, charset_form=1, charset="AL32UTF8", **more)


def number(name: str, at: int, precision: int = 9, scale: int = 0, **more: Any) -> OracleColumn:
    return OracleColumn(name, at, OracleType.NUMBER, 22, precision, scale, **more)


def table(*columns: OracleColumn, key: Sequence[str] = ("ID",), **more: Any) -> TableVersion:
    return TableVersion("bank", "BANK", "ACCOUNTS", OBJECT, columns, container=3, key=tuple(key), **more)


ACCOUNTS = table(
    number("ID", 1, nullable=False),
    text("NAME", 2),
    number("BALANCE", 3, 18, 2),
    OracleColumn("AT", 4, OracleType.TIMESTAMP, 11, scale=6),
    text("NOTE", 5),
    supplemental=("all",),
)
IDS = st.integers(-(10**9) + 1, 10**9 - 1)
ROWS = st.tuples(
    IDS,
    st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.none() | st.decimals(-(10**15), 10**15, places=2),
    st.none() | st.integers(0, 253_402_300_799_999_999),
    st.none() | st.text("abc", min_size=1, max_size=300),
).map(list)


def packed(version: TableVersion, row: Row) -> list[Value]:
    return [encoder(column)(value) for column, value in zip(version.visible, row, strict=True)]


def maker(*versions: TableVersion) -> FrameMaker:
    return FrameMaker("bank", Dictionary(versions), Encoders())


@cache
def kept_maker(version: TableVersion) -> FrameMaker:
    """What is compiled once serves all examples."""
    return maker(version)


def frames(version: TableVersion, *data: bytes) -> list[Frame]:
    return list(Changes(kept_maker(version), data, TS))


def plainly(version: TableVersion, *data: bytes) -> list[Frame]:
    """Without the compiled way."""
    joiner, rows, body = Joiner(), TableRows(version), Encoders().encoder(version.schema)
    found = []
    for change in (change for d in data for change in joiner.add(d)):
        before, after, unchanged = rows.values(change)
        found.append((body.header, body.body(change.op, before, after, TS, unchanged)))
    joiner.end()
    return found


def want(version: TableVersion, op: str, before: Any, after: Any, unchanged: Sequence[str] = ()) -> Frame:
    made = Encoders().encoder(version.schema)
    return made.header, made.body(op, before, after, TS, unchanged)


@cache
def quick(version: TableVersion) -> Quicks:
    return quicks(version, Encoders().encoder(version.schema))


def quickly(version: TableVersion, data: bytes) -> Any:
    at = 8 + 4 * int.from_bytes(data[6:8], "little")
    return quick(version)[data[at + 1]](data, at, TS)


def update_of(build: Build, before: list[Value], after: list[Value], changed: set[int], more: set[int]) -> bytes:
    old, new = dict(enumerate(before, 1)), dict(enumerate(after, 1))
    return build.update(
        {c: old[c] for c in sorted(changed)}, {c: new[c] for c in sorted(changed)}, {c: old[c] for c in sorted(more)}
    )


class TestTheRealInsert:
    def test_frame(self) -> None:
        version = TableVersion(
            "bank", "OLR_TEST", "T", 72726, (number("ID", 1), text("NAME", 2)), container=3, key=("ID",)
        )
        assert frames(version, real_insert()) == [want(version, "c", None, [1, b"hello world"])]
        assert quickly(version, real_insert()) is not None


class TestWholeRows:
    @settings(deadline=None)
    @given(ROWS, st.sampled_from("<>"))
    def test_insert_and_delete(self, row: Row, order: str) -> None:
        values = packed(ACCOUNTS, row)
        build = Build(order)
        for data, expected in (
            (build.insert(values), want(ACCOUNTS, "c", None, row)),
            (build.delete(values), want(ACCOUNTS, "d", row, None)),
        ):
            assert frames(ACCOUNTS, data) == plainly(ACCOUNTS, data) == [expected]
            if order == "<":
                assert quickly(ACCOUNTS, data) == expected

    @settings(deadline=None)
    @given(ROWS, ROWS, st.sets(st.integers(1, 5), min_size=1), st.sampled_from("<>"))
    def test_update_with_all_columns_logged(self, before: Row, after: Row, changed: set[int], order: str) -> None:
        after = [after[c - 1] if c in changed else before[c - 1] for c in range(1, 6)]
        others = {1, 2, 3, 4, 5} - changed
        data = update_of(Build(order), packed(ACCOUNTS, before), packed(ACCOUNTS, after), changed, others)
        expected = want(ACCOUNTS, "u", before, after)
        assert frames(ACCOUNTS, data) == plainly(ACCOUNTS, data) == [expected]
        if order == "<":
            assert quickly(ACCOUNTS, data) == expected

    @settings(deadline=None)
    @given(st.lists(ROWS, min_size=1, max_size=8))
    def test_many_rows(self, rows: list[Row]) -> None:
        values = [packed(ACCOUNTS, row) for row in rows]
        inserts = [want(ACCOUNTS, "c", None, row) for row in rows]
        deletes = [want(ACCOUNTS, "d", row, None) for row in rows]
        data = Build().insert_many(values)
        assert frames(ACCOUNTS, data) == plainly(ACCOUNTS, data) == quickly(ACCOUNTS, data) == inserts
        data = Build().delete_many(values)
        assert frames(ACCOUNTS, data) == plainly(ACCOUNTS, data) == quickly(ACCOUNTS, data) == deletes

    @pytest.mark.parametrize("width", [1, 2, 3, 4])
    def test_nulls_at_the_end_are_left_out(self, width: int) -> None:
        row = [7, "seven", Decimal("7.70"), 7_000_000, None][:width] + [None] * (5 - width)
        values = packed(ACCOUNTS, row)[:width]
        build = Build()
        assert frames(ACCOUNTS, build.insert(values)) == [want(ACCOUNTS, "c", None, row)]
        assert frames(ACCOUNTS, build.delete(values)) == [want(ACCOUNTS, "d", row, None)]
        assert frames(ACCOUNTS, build.insert_many([values])) == [want(ACCOUNTS, "c", None, row)]
        assert quickly(ACCOUNTS, build.insert(values)) is not None

    def test_rows_in_pieces_between_plain_ones(self) -> None:
        row = [7, "seven", Decimal("7.70"), 7_000_000, "x"]
        values, build = packed(ACCOUNTS, row), Build()
        data = [
            build.insert(values),
            build.insert(values[3:], fb=0x04, first=4, group_fb=0x08),
            build.insert(values[:3], fb=0x28, first=1, group_fb=0x04),
            build.delete(values),
        ]
        insert, delete = want(ACCOUNTS, "c", None, row), want(ACCOUNTS, "d", row, None)
        assert frames(ACCOUNTS, *data) == [insert, insert, delete]

    def test_each_iteration_makes_them_anew(self) -> None:
        changes = Changes(maker(ACCOUNTS), [Build().insert(packed(ACCOUNTS, [1, "a", None, None, None]))], TS)
        assert list(changes) == list(changes)

    def test_migrated_row(self) -> None:
        before, after = [7, "a", None, None, None], [7, "a" * 40, Decimal("1.00"), None, "b"]
        build = Build()
        data = [
            build.moved_in(packed(ACCOUNTS, after), group_fb=0x08),
            build.overwrite(packed(ACCOUNTS, before)[:2], [], fb=0x20, group_fb=0x04),
        ]
        assert frames(ACCOUNTS, *data) == [want(ACCOUNTS, "u", before, after)]

    def test_overwritten_row_that_is_shorter_now(self) -> None:
        before, after = [7, "a", Decimal("1.00"), None, None], [7, None, None, None, None]
        data = Build().overwrite(packed(ACCOUNTS, before)[:3], packed(ACCOUNTS, after)[:1])
        assert frames(ACCOUNTS, data) == [want(ACCOUNTS, "u", before, after)]
        data = Build().overwrite(packed(ACCOUNTS, after)[:1], packed(ACCOUNTS, before)[:3])
        assert frames(ACCOUNTS, data) == [want(ACCOUNTS, "u", after, before)]


class TestOnlyTheKeyLogged:
    version = table(*ACCOUNTS.columns, supplemental=("primary key",))

    def test_update_names_what_the_log_did_not_carry(self) -> None:
        before, after = [7, "a", None, None, None], [7, "b", None, None, None]
        data = update_of(Build(), packed(self.version, before), packed(self.version, after), {2}, {1})
        expected = want(self.version, "u", before, after, ["BALANCE", "AT", "NOTE"])
        assert frames(self.version, data) == plainly(self.version, data) == [expected]
        assert quickly(self.version, data) == expected

    def test_update_of_the_key(self) -> None:
        before, after = [7, None, None, None, None], [8, None, None, None, None]
        data = update_of(Build(), packed(self.version, before), packed(self.version, after), {1}, set())
        assert frames(self.version, data) == [want(self.version, "u", before, after, ["NAME", "BALANCE", "AT", "NOTE"])]

    def test_nulls_behind_the_last_column_of_the_row(self) -> None:
        """With all columns in the log, what is not there is behind the row's end."""
        row = [7, "a", None, None, None]
        data = update_of(Build(), packed(ACCOUNTS, row)[:2], packed(ACCOUNTS, [7, "b", *row[2:]])[:2], {2}, {1})
        assert plainly(ACCOUNTS, data) == [want(ACCOUNTS, "u", row, [7, "b", None, None, None])]
        assert frames(ACCOUNTS, data) == plainly(ACCOUNTS, data)


class TestWithoutEnoughInTheLog:
    def test_update_without_its_key(self) -> None:
        data = Build().update({2: b"a"}, {2: b"b"})
        with pytest.raises(LogUnknownError, match=r"BANK\.ACCOUNTS is in the log without the key") as found:
            frames(table(*ACCOUNTS.columns), data)
        assert 'ALTER TABLE "BANK"."ACCOUNTS" ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS' in str(found.value)
        assert found.value.source == "bank"

    def test_table_without_key_needs_all(self) -> None:
        data = Build().update({2: b"a"}, {2: b"b"}, {1: encode_number(1)})
        with pytest.raises(LogUnknownError, match="no key") as found:
            frames(table(*ACCOUNTS.columns, key=()), data)
        assert "(ALL) COLUMNS" in str(found.value)

    @pytest.mark.parametrize("width", [5, 300])
    def test_no_supplemental_logging_at_all(self, width: int) -> None:
        build = Build()
        columns = [*ACCOUNTS.columns, *(text(f"C{n}", n) for n in range(6, width + 1))]
        data = build.pair(5, [build.some([b"a"], extra=0x20), b"\0\0", b"a"], [build.some([b"b"]), b"\0\0", b"b"])
        with pytest.raises(LogUnknownError, match=r"BANK\.ACCOUNTS") as found:
            frames(table(*columns, supplemental=("all",)), data)
        assert "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA" in str(found.value)
        assert 'ALTER TABLE "BANK"."ACCOUNTS"' in str(found.value)


class TestColumnsOfAllSorts:
    def test_hidden_and_virtual_columns_are_not_published(self) -> None:
        version = table(
            number("ID", 1),
            text("SYS_C2", 2, is_hidden=True),
            text("V", 0),
            text("B", 4),
            text("A", 3),
            supplemental=("all",),
        )
        assert [c.name for c in version.schema.columns] == ["ID", "B", "A"]
        values: list[Value] = [encode_number(1), b"hidden", b"a", b"b"]
        new: list[Value] = [encode_number(1), b"other", b"a", b"c"]
        build, row = Build(), [1, b"b", b"a"]
        assert frames(version, build.insert(values)) == [want(version, "c", None, row)]
        assert frames(version, build.insert_many([values])) == [want(version, "c", None, row)]
        assert frames(version, build.delete(values)) == [want(version, "d", row, None)]
        data = update_of(build, values, new, {2, 4}, {1, 3})
        assert frames(version, data) == plainly(version, data) == [want(version, "u", row, [1, b"c", b"a"])]
        # only what is hidden changes: a change all the same, so that the count stays right
        data = update_of(build, values, [*new[:3], b"b"], {2}, {1, 3, 4})
        assert frames(version, data) == [want(version, "u", row, row)]

    def test_default_of_a_column_that_old_rows_do_not_have(self) -> None:
        version = table(
            number("ID", 1), number("N", 2, nullable=False, default=encode_number(42)), supplemental=("all",)
        )
        build, one = Build(), encode_number(1)
        assert frames(version, build.delete([one])) == [want(version, "d", [1, 42], None)]
        assert frames(version, build.delete([one, encode_number(5)])) == [want(version, "d", [1, 5], None)]
        data = build.update({1: one}, {1: encode_number(2)})
        assert frames(version, data) == [want(version, "u", [1, 42], [2, 42])]

    def test_guard_tells_a_null_that_was_written(self) -> None:
        guard = OracleColumn("SYS_NC00002$", 2, OracleType.RAW, 126, is_hidden=True, is_guard=True)
        version = table(
            number("ID", 1), guard, number("N", 3, default=encode_number(42), guard=0), supplemental=("all",)
        )
        build, one = Build(), encode_number(1)
        assert frames(version, build.delete([one])) == [want(version, "d", [1, 42], None)]
        assert frames(version, build.delete([one, b"\x01"])) == [want(version, "d", [1, None], None)]
        assert frames(version, build.insert([one, b"\x02"])) == [want(version, "c", None, [1, 42])]
        assert frames(version, build.insert([one, b"\x01", encode_number(3)])) == [want(version, "c", None, [1, 3])]


class TestErrors:
    def test_value_that_is_not_of_its_type_names_its_column_and_not_the_value(self) -> None:
        for data in (Build().insert([b"secret", b"b"]), Build().delete([b"secret", b"b"])):
            with pytest.raises(CodecError, match=r"BANK\.ACCOUNTS\.ID") as found:
                frames(ACCOUNTS, data)
            assert "secret" not in str(found.value)
            assert found.value.source == "bank"

    def test_more_columns_than_the_dictionary_knows(self) -> None:
        values: list[Value] = [encode_number(1), b"a", None, None, None, b"new"]
        with pytest.raises(LogUnknownError, match="segment column 6"):
            frames(ACCOUNTS, Build().insert(values))

    def test_object_that_is_not_in_the_dictionary(self) -> None:
        with pytest.raises(LogUnknownError, match="object 5 of container 3"):
            frames(ACCOUNTS, Build(object_id=5).insert([b"a"]))

    @settings(deadline=None)
    @given(st.binary(max_size=8), st.integers(0, 400), st.sampled_from(["insert", "delete", "update", "many"]))
    def test_damaged_pairs_are_errors_of_ours_or_rows(self, junk: bytes, at: int, which: str) -> None:
        values = packed(ACCOUNTS, [7, "seven", Decimal("7.70"), 7_000_000, "x"])
        build = Build()
        data = {
            "insert": build.insert(values),
            "delete": build.delete(values),
            "update": update_of(build, values, values, {2, 3}, {1, 4, 5}),
            "many": build.insert_many([values, values]),
        }[which]
        at = 44 + at % (len(data) - 44)
        damaged = data[:at] + junk + data[at + len(junk) :]
        try:
            found = frames(ACCOUNTS, damaged)
            # the compiled way may take what contradicts itself where it does not look: checksums are there for that
            assert found == plainly(ACCOUNTS, damaged)
        except LowwaterError:
            return


class TestVersions:
    def test_rows_are_read_by_the_version_of_their_commit(self) -> None:
        old = table(number("ID", 1), text("A", 2), from_scn=10)
        new = table(number("ID", 1), text("B", 2), text("C", 3), from_scn=20)
        made, build = maker(old, new), Build()
        data = [build.insert([encode_number(1), b"x"])]
        assert list(Changes(made, data, TS, Scn(19))) == [want(old, "c", None, [1, b"x"])]
        assert list(Changes(made, data, TS, Scn(20))) == [want(new, "c", None, [1, b"x", None])]
        assert list(Changes(made, data, TS)) == [want(new, "c", None, [1, b"x", None])]
        assert made.seen["BANK.ACCOUNTS"] == new.schema
        with pytest.raises(LogUnknownError, match="at SCN 9"):
            list(Changes(made, data, TS, Scn(9)))

    def test_partitions_and_containers(self) -> None:
        version = table(number("ID", 1), partition_ids=(90, 91))
        made = maker(version)
        assert list(made.frames([Build(object_id=91).insert([encode_number(1)])], TS)) == [
            want(version, "c", None, [1])
        ]
        with pytest.raises(LogUnknownError, match="container 4"):
            list(made.frames([Build(object_id=91, container=4).insert([encode_number(1)])], TS))

    def test_ddl_of_a_captured_table(self) -> None:
        ddl = Build().head(0) + Build().undo([])
        with pytest.raises(LogUnknownError, match="altered"):
            maker(ACCOUNTS).altered(Scn(30), ddl)
        assert maker(ACCOUNTS).altered(Scn(30), Build(object_id=5).head(0) + Build().undo([])) == (False, False)
        assert maker(ACCOUNTS).altered(Scn(30), statement("TRUNCATE/**/TABLE accounts", kind=85)) == (True, False)
        assert maker(ACCOUNTS).altered(Scn(30), statement("create index i on accounts (id)", kind=9)) == (False, False)
        for text in ("drop table accounts", "truncate table accounts cascade", "alter table accounts drop partition p"):
            with pytest.raises(LogUnknownError, match="altered"):
                maker(ACCOUNTS).altered(Scn(30), statement(text))

    def test_ddl_whose_text_goes_on_elsewhere_may_have_changed_rows(self) -> None:
        with pytest.raises(LogUnknownError, match="altered"):
            maker(ACCOUNTS).altered(Scn(30), statement("create index i on accounts (", parts=2))


def statement(text: str, kind: int = 15, parts: int = 1) -> bytes:
    """A captured DDL record."""
    first = struct.pack("<I8sHHHHH2x", 0, bytes(8), kind, 0, 1, 0, parts)
    fields = [first, *[b""] * 6, text.encode() + b"\0", b"", b"", b"", struct.pack("<I", OBJECT)]
    return Build().head(0) + vector((24, 1), fields)


def speeds(count: int = 40_000) -> dict[str, float]:
    """Changes a second; by hand: `python -m tests.unit.oracle.test_changes`."""
    build = Build()
    rows = [
        [i, f"name {i}", Decimal(i % 1000).scaleb(-2), TS + i, "a note that is a little longer"] for i in range(count)
    ]
    values = [packed(ACCOUNTS, row) for row in rows]
    new = [packed(ACCOUNTS, [*row[:2], Decimal(n % 999).scaleb(-2), TS, row[4]]) for n, row in enumerate(rows)]
    sets = {
        "insert": [build.insert(row) for row in values],
        "update": [update_of(build, a, b, {3, 4}, {1, 2, 5}) for a, b in zip(values, new, strict=True)],
        "delete": [build.delete(row) for row in values],
        "insert many": [build.insert_many(values[at : at + 50]) for at in range(0, count, 50)],
        "insert in pieces": [
            part
            for row in values
            for part in (
                build.insert(row[3:], fb=0x04, first=4, group_fb=0x08),
                build.insert(row[:3], fb=0x28, first=1, group_fb=0x04),
            )
        ],
    }
    found = {}
    for name, data in sets.items():
        made = maker(ACCOUNTS)
        start = time.process_time()
        done = sum(1 for _ in made.frames(data, TS))
        found[name] = done / (time.process_time() - start)
        assert done == count
    return found


def test_op_codes_of_the_quick_way() -> None:
    assert set(quick(ACCOUNTS)) == {pairs.IRP, pairs.DRP, pairs.URP, pairs.QMI, pairs.QMD}


if __name__ == "__main__":
    for name, speed in speeds().items():
        print(f"{name:18} {speed:10,.0f} changes/s")
