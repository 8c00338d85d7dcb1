"""The readers that are made for each table: as the plain decoder reads, and nothing is bent to fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turso.records import Value, blobs, integers, reals, record, texts, values

from lowwater.errors import CodecError, LogCorruptError, LogUnknownError
from lowwater_extractor.sources.turso.schema.definitions import Cell, CellType, Definition
from lowwater_extractor.sources.turso.wire.rows import WidthError, compile_reader, published_value

_STRATEGIES: dict[CellType, st.SearchStrategy[Value]] = {
    CellType.INTEGER: integers,
    CellType.REAL: reals | st.integers(-(2**53), 2**53),
    CellType.TEXT: texts,
    CellType.BLOB: blobs,
    CellType.ANY: values,
}


def _table(*kinds: CellType, key: tuple[str, ...] = ("c0",), alias: str = "") -> Definition:
    cells = tuple(Cell(f"c{place}", kind, is_filled=False) for place, kind in enumerate(kinds))
    return Definition("t", cells, key, alias, has_rowid=True)


def _expected(kind: CellType, value: Value) -> Any:
    """Texts stay bytes: the encoder takes both."""
    found = published_value(kind, value)
    return found.encode() if kind is CellType.TEXT and found is not None else found


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[CellType], list[Value]]:
    kinds = draw(st.lists(st.sampled_from(CellType), min_size=1, max_size=140))
    return kinds, [draw(st.none() | _STRATEGIES[kind]) for kind in kinds]


@given(rows())
def test_rows_read_as_the_plain_decoder_reads_them(row: tuple[list[CellType], list[Value]]) -> None:
    kinds, row_values = row
    read = compile_reader(_table(*kinds, key=()), "s")
    expected = [_expected(kind, value) for kind, value in zip(kinds, row_values, strict=True)]
    for shorten in (True, False):
        assert read(record(*row_values, shorten=shorten), 77) == [77, *expected]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (CellType.INTEGER, "12", "a text in a column that is published as integer"),
        (CellType.INTEGER, 1.5, "a real"),
        (CellType.INTEGER, b"12", "a blob"),
        (CellType.REAL, "1.5", "a text"),
        (CellType.REAL, 2**60 + 1, "an integer"),
        (CellType.TEXT, b"x", "a blob"),
        (CellType.TEXT, 12, "an integer"),
        (CellType.BLOB, "x", "a text"),
        (CellType.BLOB, 1, "an integer"),
    ],
)
def test_a_value_that_does_not_fit_its_column_stops_and_says_what_to_do(
    kind: CellType, value: Value, said: str
) -> None:
    read = compile_reader(_table(kind, key=()), "s")
    with pytest.raises(CodecError) as caught:
        read(record(value), 1)
    assert "main.t.c0: " in caught.value.what
    assert said in caught.value.what
    assert "types: {main.t.c0: any}" in (caught.value.hint or "")


def test_a_text_that_is_not_utf8_stops_and_names_its_column() -> None:
    read = compile_reader(_table(CellType.INTEGER, CellType.TEXT, key=()), "s")
    with pytest.raises(CodecError, match=r"main\.t\.c1: a text that is not UTF-8"):
        read(bytes([3, 9, 15]) + b"\xff", 1)


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (12, 12),
        (12.0, 12.0),
        ("12", "12"),
        (b"\x00\xff", {"blob": "AP8="}),
        (float("inf"), {"real": "Infinity"}),
        (float("-inf"), {"real": "-Infinity"}),
        (2**63 - 1, 2**63 - 1),
        ("é\x00", "é\x00"),
    ],
)
def test_any_value_can_be_had_back_from_its_json(value: Value, as_json: Any) -> None:
    (found,) = compile_reader(_table(CellType.ANY, key=("c1",)), "s")(record(value), 1)
    assert json.loads(found) == as_json
    assert type(json.loads(found)) is type(as_json)


def test_a_text_that_is_not_utf8_is_kept_where_anything_goes() -> None:
    (found,) = compile_reader(_table(CellType.ANY, key=("c1",)), "s")(bytes([2, 15]) + b"\xff", 1)
    assert json.loads(found) == {"text": "/w=="}


def test_the_rowid_stands_in_for_a_column_that_is_it() -> None:
    read = compile_reader(_table(CellType.INTEGER, CellType.TEXT, alias="c0"), "s")
    assert read(record(None, "a"), 7) == [7, b"a"]
    assert read(record(9, "a"), 9) == [9, b"a"]


def test_an_integer_in_a_real_column_is_the_same_number() -> None:
    read = compile_reader(_table(CellType.REAL, key=()), "s")
    assert [type(v) for v in read(record(2), 1)] == [int, float]


def test_a_null_in_the_key_stops() -> None:
    read = compile_reader(_table(CellType.TEXT, CellType.TEXT), "s")
    with pytest.raises(CodecError, match="a null in c0, which is part of the key"):
        read(record(None, "a"), 1)


@pytest.mark.parametrize("row", [(1,), (1, "a", 2), (1, "a", None, None)])
def test_a_record_of_another_width_is_no_row_of_the_table(row: tuple[Value, ...]) -> None:
    read = compile_reader(_table(CellType.INTEGER, CellType.TEXT), "s")
    with pytest.raises(WidthError, match=f"a record of {len(row)} values for 2 columns"):
        read(record(*row), 1)


@given(rows(), st.lists(st.sampled_from(CellType), min_size=1, max_size=20))
def test_record_of_another_width_is_never_called_damaged(
    row: tuple[list[CellType], list[Value]], kinds: list[CellType]
) -> None:
    """Also where its values are taken for the types of columns that it does not have."""
    if len(kinds) == len(row[1]):
        kinds = [*kinds, CellType.ANY]
    with pytest.raises((CodecError, WidthError)):
        compile_reader(_table(*kinds, key=()), "s")(record(*row[1]), 1)


@given(st.binary(max_size=30))
def test_whatever_comes_it_is_read_or_refused_by_name(data: bytes) -> None:
    read = compile_reader(_table(CellType.INTEGER, CellType.TEXT, CellType.REAL, CellType.ANY, key=()), "s")
    try:
        found = read(data, 1)
    except (CodecError, LogUnknownError, LogCorruptError):
        return
    assert len(found) == 5
