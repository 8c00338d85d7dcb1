"""State and changes of random histories, beside plain dictionaries."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.lake_maker import LakeMaker
from tests.unit.lake.histories import COLUMNS, KEY, NAME, History, Row, Step, steps

from lowwater.errors import LakeError
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory

slow_disk = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

MOVED_THEN_FOLDED: list[Step] = [
    ("insert", 0, 0, 0), ("copy", 0, 0, 0), ("move", 0, 38, 0), ("fold", 0, 0, 10), ("update", 0, 0, 0),
    ("copied", 0, 0, 0),
]  # fmt: skip


class Distant(LocalDirectory):
    """As an object store: nothing in it has a local path."""

    def local_path(self, path: str) -> str | None:
        return None


def as_dictionaries(rows: list[dict[str, Any]]) -> dict[Any, Row]:
    found = {(row["a"], row["b"]): {name: row.get(name) for name in COLUMNS} for row in rows}
    assert len(found) == len(rows), "one key twice"
    return found


def expected(rows: dict[Any, Row]) -> dict[Any, Row]:
    return {key: {name: row.get(name) for name in COLUMNS} for key, row in rows.items()}


def check_states(history: History, lake: Lake, gsns: list[int]) -> None:
    for gsn in gsns:
        if gsn < history.history_from:
            with pytest.raises(LakeError, match="history"):
                lake.state(NAME, gsn)
            continue
        if history.known_from is not None and gsn >= history.known_from:
            found = lake.state(NAME, gsn, allow_stale=True).rows()
            assert as_dictionaries(found) == expected(history.states[gsn]), f"at gsn {gsn}"


@slow_disk
@given(steps(), st.booleans(), st.integers(0, 1 << 30))
@example(
    [("insert", 0, 1, 8), ("version", 0, 0, 0), ("update", 0, 2, 3), ("move", 0, 3, 3), ("move", 0, 9, 3)], False, 0
)
def test_state_and_changes_are_those_of_a_dictionary(found: list[Step], distant: bool, number: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = (Distant if distant else LocalDirectory)(Path(directory))
        history = History(LakeMaker(store))
        history.run(found)
        lake = Lake(store)
        assert lake.gsn == len(history.states) - 1
        if not lake.gsn:
            return
        check_states(history, lake, sorted({0, number % (lake.gsn + 1), lake.gsn}))
        after, to = sorted((number % (lake.gsn + 1), number // 7 % (lake.gsn + 1)))
        changes = lake.changes(NAME, after, to).arrow()
        seen = [
            (row["_gsn"], row["_seq"], row["_op"], None if row["a"] is None else (row["a"], row["b"]))
            for row in changes.to_pylist()
        ]
        assert seen == [change for change in history.changes if after < change[0] <= to]
        con = duckdb.connect()
        by_sql = lake.changes(NAME, after, to, ["_gsn", "_seq", "n", "_before"]).duckdb(con)
        assert sorted(row[:2] for row in by_sql.fetchall()) == [change[:2] for change in seen]
        con.close()


@slow_disk
@given(steps(bases=True), st.booleans(), st.integers(0, 1 << 30), st.booleans())
# the old key of a row that was moved is deleted at the very place of that row
@example(MOVED_THEN_FOLDED, False, 0, False)
def test_state_over_copies_and_folded_states(found: list[Step], distant: bool, number: int, existing: bool) -> None:
    rows = {(n, "x"): {"a": n, "b": "x", "n": n} for n in range(3)} if existing else {}
    with tempfile.TemporaryDirectory() as directory:
        store = (Distant if distant else LocalDirectory)(Path(directory))
        history = History(LakeMaker(store), rows, versions=(0, 1, 3))
        # most histories would never come to the end of a copy by themselves
        history.run([("copy", 0, 0, 0), *found[:3], ("copied", 0, 0, 0), *found[3:]] if number & 1 else found)
        lake = Lake(store)
        if lake.gsn and NAME in lake.names():
            check_states(history, lake, list(range(lake.gsn + 1)))


@settings(max_examples=15, deadline=None)
@given(steps(), st.lists(st.sampled_from(["n", "b", "a", "_gsn", "_op"]), min_size=1, unique=True))
def test_some_columns_are_as_in_the_whole(found: list[Step], columns: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = LocalDirectory(Path(directory))
        history = History(LakeMaker(store))
        history.run(found)
        lake = Lake(store)
        if lake.gsn:
            whole = lake.state(NAME, columns=[*KEY, "n", "_gsn", "_op"]).rows()
            some = lake.state(NAME, columns=columns).arrow()
            assert some.schema.names == columns
            wanted = [tuple(row[name] for name in columns) for row in whole]
            assert sorted(map(repr, wanted)) == sorted(repr(tuple(row.values())) for row in some.to_pylist())
