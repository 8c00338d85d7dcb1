"""Records out of the table of changes, against the format as it is described."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.turso.records import Value, record, values, varint

from lowwater.errors import LogCorruptError
from lowwater_extractor.sources.turso.wire import record as decoder


@given(st.lists(values, max_size=150))
def test_every_record_reads_as_it_was_written(row: list[Value]) -> None:
    found = decoder.decode(record(*row))
    assert found == row
    assert list(map(type, found)) == list(map(type, row))


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_numbers_of_every_length(n: int, behind: bytes) -> None:
    data = varint(n) + behind
    assert decoder.varint(data, 0) == (n, len(data) - len(behind))


@given(st.lists(values, min_size=1, max_size=6), st.data())
def test_a_record_that_ends_too_soon_is_refused(row: list[Value], data: st.DataObject) -> None:
    whole = record(*row)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(LogCorruptError):
        decoder.decode(whole[:cut])


def test_bytes_behind_a_record_are_refused() -> None:
    with pytest.raises(LogCorruptError, match="1 bytes after its end"):
        decoder.decode(record(1, "a") + b"x")


@pytest.mark.parametrize("serial", [10, 11])
def test_a_type_that_the_format_reserves_is_refused(serial: int) -> None:
    with pytest.raises(LogCorruptError, match=f"serial type {serial}"):
        decoder.decode(bytes([2, serial]))


def test_a_text_that_is_not_one_raises() -> None:
    with pytest.raises(UnicodeDecodeError):
        decoder.decode(bytes([2, 15]) + b"\xff")


def test_a_float_that_is_not_finite_stays_what_it_is() -> None:
    assert decoder.decode(record(float("inf"), float("-inf"))) == [float("inf"), float("-inf")]


def test_updates_have_a_flag_and_a_value_for_each_column() -> None:
    assert decoder.updated(record(0, 1, 1, None, "b", None)) == {1: "b", 2: None}


@pytest.mark.parametrize("row", [(0, 1, "b"), (0, 2, None, None), ("x", None)])
def test_updates_that_are_none_are_refused(row: tuple[Value, ...]) -> None:
    with pytest.raises(LogCorruptError, match="flags"):
        decoder.updated(record(*row))


def test_sqlite_itself_writes_what_is_read_here() -> None:
    """Out of a page of a file that the reference implementation wrote."""
    connection = sqlite3.connect(":memory:")
    row: list[Value] = [None, 1, -70_000, 2**40, 1.5, "é", b"\x00\xff"]
    connection.execute("CREATE TABLE t (a, b, c, d, e, f, g)")
    connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    assert record(*row) in connection.serialize()
