"""Every storage class in every kind of column: the log against the copy, and both against the database."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.turso.conftest import NewFile
from tests.support.turso_file import TursoFile, captured, copied

from lowwater.codec.rules import ColumnRules, Mask
from lowwater.errors import CodecError, LogGapError, SnapshotGoneError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.sources.turso.relations import COMMIT_MINOR
from lowwater_extractor.sources.turso.snapshot import read

TABLE = (
    "CREATE TABLE v (id INTEGER PRIMARY KEY, i BIGINT, r REAL, t TEXT, b BLOB, n NUMERIC, x, d DATETIME,"
    ' "odd ""name" TEXT, g INT GENERATED ALWAYS AS (id + 1))'
)
PLACES = {"i": 1, "r": 2, "t": 3, "b": 4}
MISFITS = [("i", "'a text'"), ("i", "1.5"), ("i", "x'00'"), ("r", "'a'"), ("t", "x'00'"), ("b", "'text'")]
_BIG = 2**63 - 1
ROWS: list[tuple[Any, ...]] = [
    (1, 0, 0.0, "", b"", 0, None, "2026-11-16 10:00:00", "o"),
    (2, 1, 1.5, "é\U0001f600", b"\x00\xff", 1, 1, None, None),
    (3, -1, -0.0, "x" * 5000, b"y" * 5000, 1.5, "text", 5, ""),
    (4, _BIG, 1e308, "a\x00b", None, "abc", b"\x01", 2.5, "o"),
    (5, -_BIG - 1, 5e-324, "'\"\n", b"z", "12.50", float("inf"), b"raw", "o"),
    (6, None, float("-inf"), None, b"\x00", -(2**40), _BIG, "", "o"),
    (7, 2**23, 3.0, "0", b"0", 2**60, -1.25, 0, "o"),
    (8, -(2**47), 2**50, "1", b"1", 1e300, 12.0, "12", "o"),
]  # fmt: skip


def _put(file: TursoFile) -> None:
    names = 'id, i, r, t, b, n, x, d, "odd ""name"'
    for row in ROWS:
        file.ask(f"INSERT INTO v ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)


def _plain(value: Any) -> Any:
    """A value as JSON says it."""
    if not isinstance(value, str):
        return value
    found = json.loads(value)
    if isinstance(found, dict) and "real" in found:
        return float(found["real"].replace("Infinity", "inf"))
    if isinstance(found, dict):
        return base64.b64decode(found["blob"])
    return found


def test_the_log_gives_what_a_copy_gives_and_both_what_the_database_has(new_file: NewFile) -> None:
    file = new_file(features="generated_columns")
    file.do(TABLE)
    with captured(file) as reading:
        _put(file)
        stream = list(reading.state()["main.v"].values())
    batches = copied(file.source(chunk_rows=3), "main.v")
    copy = [tuple(row.values()) for row in pa.Table.from_batches(batches).to_pylist()]
    assert copy == stream
    assert len(batches) == 3, "chunks of about three rows"
    database = file.ask('SELECT id, i, r, t, b, n, x, d, "odd ""name" FROM v ORDER BY id')
    for found, row in zip(stream, database, strict=True):
        anything = tuple(map(_plain, found[5:8]))
        assert (*found[:5], *anything, found[8]) == row
        assert [type(v) for v in (*found[:5], *anything)] == [type(v) for v in row[:8]]


@pytest.mark.parametrize(("column", "value"), MISFITS)
def test_a_value_of_another_type_stops_both_and_neither_loses_it(new_file: NewFile, column: str, value: str) -> None:
    file = new_file(features="generated_columns")
    file.do(TABLE)
    with captured(file) as reading:
        file.do(f"INSERT INTO v (id, {column}) VALUES (1, {value})")
        with pytest.raises(CodecError, match=f"main.v.{column}: ") as caught:
            reading.drain()
    assert f"types: {{main.v.{column}: any}}" in (caught.value.hint or "")
    with pytest.raises(CodecError, match=f"main.v.{column}"):
        copied(file.source(), "main.v")
    # as the hint says
    types = {f"main.v.{column}": "any"}
    with captured(file, types=types) as reading:
        file.do(f"INSERT INTO v (id, {column}) VALUES (2, {value})")
        (change,) = reading.changes()
    rows = pa.Table.from_batches(copied(file.source(types=types), "main.v")).to_pylist()
    assert change.after is not None
    assert _plain(rows[1][column]) == _plain(change.after[PLACES[column]])
    assert _plain(rows[1][column]) == file.ask(f"SELECT {column} FROM v WHERE id = 2")[0][0]


def test_columns_are_hidden_in_a_copy_as_in_the_log(new_file: NewFile) -> None:
    file = new_file()
    file.do("CREATE TABLE s (id INTEGER PRIMARY KEY, ssn TEXT, x, gone TEXT)", "INSERT INTO s VALUES (1, 'a', 2, 'g')")
    rules = ColumnRules(frozenset({"main.s.gone"}), {"main.s.ssn": Mask.HASH, "main.s.x": Mask.REDACT}, b"key")
    ((batch,),) = (copied(file.source(), "main.s", rules),)
    (row,) = batch.to_pylist()
    assert set(row) == {"id", "ssn", "x"}
    assert (len(row["ssn"]), row["x"]) == (64, "***")


def test_an_empty_table_is_one_chunk_without_rows(new_file: NewFile) -> None:
    file = new_file()
    file.do("CREATE TABLE e (id INTEGER PRIMARY KEY)")
    assert copied(file.source(), "main.e") == []


def test_a_table_that_was_altered_since_its_plan_is_not_read(new_file: NewFile) -> None:
    file = new_file()
    file.do("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    source = file.source()
    view = source.begin_view(["main.a", "main.never"])
    planned, never = view.plan(10)
    assert (planned.at, never.chunks) == (None, [])
    file.do("ALTER TABLE a ADD COLUMN b TEXT")
    assert view.keep(["main.a"]) == ["main.a"]
    view.close()
    at = Order(0, 0)
    chunk = Chunk("file", "c", "main.a", 1, 1, 1, planned.chunks[0][0], at, at, 0, "")
    with pytest.raises(SnapshotGoneError, match="altered"):
        list(source.read_chunk(chunk, "{}", ColumnRules()))


def test_a_chunk_is_not_read_before_its_low_is_seen(new_file: NewFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "DOUBT_SECONDS", 0.1)
    file = new_file()
    file.do("CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    ((last,),) = file.ask("SELECT max(change_id) FROM turso_cdc")
    # ends of copies have the places just behind the last COMMIT
    for low in (Order(last, COMMIT_MINOR), Order.mark(last), Order(last + 1, 0), Order(last + 1, 7)):
        (batch,) = copied(file.source(), "main.t", low=low)
        assert batch.to_pylist() == [{"id": 1}]
    with pytest.raises(LogGapError, match=f"change {last + 1}, which was read before the chunk, is gone"):
        copied(file.source(), "main.t", low=Order(last + 1, COMMIT_MINOR))
