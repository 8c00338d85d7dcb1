"""Folding, beside a plain dictionary that takes the changes one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lowwater.codec.avro import change_schema
from lowwater.codec.table import INT64, STRING, Column, TableSchema
from lowwater.lake.schema.columns import lake_table
from lowwater_spark.maintenance.fold_changes import fold
from lowwater_spark.maintenance.untangled import moved

_SCHEMA = TableSchema(
    "src",
    "bank",
    "t",
    1,
    (Column("a", INT64), Column("b", STRING), Column("x", STRING), Column("y", INT64)),
    ("a", "b"),
)
TABLE = lake_table(json.dumps(change_schema(_SCHEMA)))
KEY = ("a", "b")
COLUMNS = ("a", "b", "x", "y")

Row = dict[str, Any]
Key = tuple[int, str]
State = dict[Key, Row]


def change(op: str, gsn: int, seq: int, row: Row | None, before: Row | None = None, unchanged: list[str] | None = None):  # type: ignore[no-untyped-def]
    cdc = {"_op": op, "_gsn": gsn, "_seq": seq, "_txid": f"t{gsn}", "_thread": 1, "_commit_ts": gsn, "_ts": gsn}
    more = {"_order": {"major": gsn, "minor": 1}, "_unchanged": unchanged, "_before": before}
    return {**cdc, **more, **(row or {})}


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TABLE.stream_schema)


def folded(*rows: Row, **options: bool) -> list[Row]:
    return list(fold(arrow(list(rows)), KEY, **options).to_pylist())


def key_of(row: Row) -> Key:
    return row["a"], row["b"]


def applied(state: State, rows: list[Row]) -> State:
    """What a reader makes of changes."""
    state = dict(state)
    for row in rows:
        if row["_op"] == "t":
            state.clear()
        elif row["_op"] == "d":
            state.pop(key_of(row), None)
        else:
            before = row["_before"]
            old = key_of(before) if row["_op"] == "u" and before and before["a"] is not None else key_of(row)
            was = state.pop(old, {})
            kept = row["_unchanged"] or () if row["_op"] == "u" else ()
            state[key_of(row)] = {c: was.get(c) if c in kept else row[c] for c in COLUMNS}
    return state


class _History:
    """Changes that a database could have made, from rows that were there."""

    def __init__(self, state: State) -> None:
        self.state = dict(state)
        self.rows: list[Row] = []

    def step(self, kind: str, which: int, value: int, flags: int) -> None:
        place = (len(self.rows) // 3 + 1, len(self.rows) % 3 + 1)
        keys = sorted(self.state)
        new = (value % 3, "p" if flags & 8 else "q")
        if kind == "truncate":
            self._add(change("t", *place, None))
        elif kind == "insert":
            if new not in self.state:
                self._add(change("r" if flags & 4 else "c", *place, made(new, value)))
        elif keys:
            self._change(kind, keys[which % len(keys)], new, place, value, flags)

    def _change(self, kind: str, old: Key, new: Key, place: tuple[int, int], value: int, flags: int) -> None:
        was = self.state[old]
        if kind == "delete":
            self._add(change("d", *place, was, was))
            return
        target = new if kind == "move" else old
        if target != old and target in self.state:
            return
        unchanged = [c for bit, c in ((1, "x"), (2, "y")) if flags & bit]
        row = {c: None if c in unchanged else v for c, v in made(target, value).items()}
        before: Row | None = was if flags & 4 else {"a": old[0], "b": old[1], "x": None, "y": None}
        if target == old and flags & 8:
            before = None
        self._add(change("u", *place, row, before, unchanged or None))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.state = applied(self.state, [row])


def made(key: Key, value: int) -> Row:
    return {"a": key[0], "b": key[1], "x": f"x{value}", "y": value}


_KINDS = ("insert", "insert", "update", "update", "update", "delete", "move", "move", "truncate")
steps = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.integers(0, 5), st.integers(0, 99), st.integers(0, 15)),
    max_size=30,
)
some_rows = st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from("pq")), st.integers(100, 199), max_size=6).map(
    lambda found: {key: made(key, value) for key, value in found.items()}
)


@settings(max_examples=500, deadline=None)
@given(some_rows, some_rows, steps, st.integers(0, 30), st.integers(0, 30))
def test_what_is_folded_does_the_same_to_any_base(
    start: State, base: State, found: list[tuple[str, int, int, int]], one: int, other: int
) -> None:
    """Also to the base of a copy, which may have rows from later than the changes."""
    history = _History(start)
    for step in found:
        history.step(*step)
    rows = arrow(history.rows).to_pylist()
    low, high = sorted((min(one, len(rows)), min(other, len(rows))))
    inner = folded(*rows[low:high])
    places = [(row["_gsn"], row["_seq"]) for row in inner]
    assert places == sorted(set(places))
    assert set(places) <= {(row["_gsn"], row["_seq"]) for row in rows[low:high]}
    both = [*rows[:low], *inner, *rows[high:]]
    assert applied(start, both) == history.state
    assert applied(base, both) == applied(base, rows)
    assert applied(start, folded(*both)) == history.state


@settings(max_examples=300, deadline=None)
@given(steps)
def test_a_whole_history_has_one_row_for_each_key(found: list[tuple[str, int, int, int]]) -> None:
    history = _History({})
    for step in found:
        history.step(*step)
    rows = folded(*arrow(history.rows).to_pylist(), is_whole=True)
    there = [row for row in rows if row["_op"] not in "dt"]
    assert {key_of(row): {c: row[c] for c in COLUMNS} for row in there} == history.state
    assert len(there) == len(history.state)
    assert not any(row["_unchanged"] for row in there)


def _row(a: int, x: str | None, y: int | None = 0) -> Row:
    return {"a": a, "b": "p", "x": x, "y": y}


def test_insert_and_update_are_an_insert_with_what_the_update_left_out() -> None:
    (row,) = folded(
        change("c", 1, 1, _row(1, "long", 1)), change("u", 2, 1, _row(1, None, 2), _row(1, "long", 1), ["x"])
    )
    assert (row["_op"], row["x"], row["y"], row["_unchanged"], row["_before"]) == ("c", "long", 2, None, None)
    assert (row["_gsn"], row["_txid"]) == (2, "t2")


def test_two_updates_are_one_with_the_first_image() -> None:
    (row,) = folded(
        change("u", 1, 1, _row(1, None, 1), _row(1, None, 0), ["x"]),
        change("u", 2, 1, _row(1, None, 2), _row(1, None, 1), ["x"]),
    )
    assert (row["_op"], row["y"], row["_unchanged"], row["_before"]["y"]) == ("u", 2, ["x"], 0)


def test_insert_and_delete_are_a_delete() -> None:
    (row,) = folded(change("c", 1, 1, _row(1, "a")), change("d", 2, 1, _row(1, "a"), _row(1, "a")))
    assert (row["_op"], row["_gsn"], row["a"]) == ("d", 2, 1)


def test_delete_and_insert_are_an_update_of_all_columns() -> None:
    (row,) = folded(change("d", 1, 1, _row(1, "a"), _row(1, "a")), change("c", 2, 1, _row(1, "b")))
    assert (row["_op"], row["x"], row["_before"]["x"], row["_unchanged"]) == ("u", "b", "a", None)


def test_nothing_before_a_truncate_stays() -> None:
    rows = folded(
        change("c", 1, 1, _row(1, "a")),
        change("t", 2, 1, None),
        change("t", 2, 2, None),
        change("c", 3, 1, _row(2, "b")),
    )
    assert [(row["_op"], row["_gsn"], row["_seq"]) for row in rows] == [("t", 2, 2), ("c", 3, 1)]


def test_a_changed_key_is_a_delete_of_the_old_one() -> None:
    rows = folded(
        change("u", 1, 1, _row(2, None), _row(1, "a"), ["x"]),
        change("u", 2, 1, _row(2, "now"), None),
    )
    assert [(row["_op"], row["a"], row["x"], row["_gsn"]) for row in rows] == [("d", 1, "a", 1), ("c", 2, "now", 2)]


def test_a_changed_key_stays_where_a_column_must_be_looked_for_below() -> None:
    first = change("u", 1, 1, _row(2, None), _row(1, None), ["x"])
    rows = folded(first, change("u", 2, 1, _row(2, None, 5), None, ["x"]))
    assert [(row["_op"], row["a"], row["_gsn"], row["_unchanged"]) for row in rows] == [
        ("u", 2, 1, ["x"]),
        ("u", 2, 2, ["x"]),
    ]
    assert moved(arrow(rows), KEY).tolist() == [True, False]


def test_empty() -> None:
    assert folded() == []
