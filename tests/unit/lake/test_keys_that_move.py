"""Keys that move inside a transaction: shifts, swaps, deferred uniqueness. The state is what the database has."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction
from tests.unit.lake.histories import Step
from tests.unit.lake.kept_histories import check
from tests.unit.lake.moving_histories import MovingHistory, moving_steps
from tests.unit.lake.test_reader import schema

from lowwater.codec.table import INT64, STRING, TIMESTAMP
from lowwater.errors import LakeError
from lowwater.lake.moved_keys.roles import key_values
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory

Change = tuple[str, int | None, int | None]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(moving_steps(), st.booleans(), st.booleans(), st.booleans())
def test_state_is_that_of_a_replay(found: list[Step], is_whole: bool, lacks: bool, existing: bool) -> None:
    rows = {(n, "x"): {"a": n, "b": "x", "n": n} for n in range(4)} if existing else {}
    with tempfile.TemporaryDirectory() as directory:
        history = MovingHistory(directory, rows, versions=(0, 1, 3), is_whole=is_whole, lacks=lacks)
        history.run([("copy", 0, 0, 0), ("copied", 0, 0, 0), *found] if existing else found)
        check(history)


def _lake(
    directory: Path, transactions: list[list[Change]], *, is_whole: bool = True, start: dict[int, str] | None = None
) -> Lake:
    """A change is (op, old id, new id); a row's text is made by the change that inserted it, and stays with it."""
    maker = LakeMaker(LocalDirectory(directory))
    table = maker.version(schema("s.n.t", {"id": INT64, "v": STRING, "big": STRING}))
    there = dict(start or {})
    rows = [Made(table, "c", {"id": id_, "v": v, "big": f"big {v}"}) for id_, v in there.items()]
    if rows:
        maker.land([MadeTransaction(rows)])
    versions = {id_: [v] for id_, v in there.items()}
    for number, changes in enumerate(transactions):
        made: list[Made] = []
        for op, old, new in changes:
            v = f"new {number}.{len(made)}" if op == "c" else versions[old].pop(0)  # type: ignore[index]
            before = {"id": old, "v": v, "big": f"big {v}"} if is_whole else {"id": old}
            if op == "d":
                made.append(Made(table, "d", before))
                continue
            versions.setdefault(new, []).append(v)  # type: ignore[arg-type]
            if op == "c":
                made.append(Made(table, "c", {"id": new, "v": v, "big": f"big {v}"}))
            else:
                # the log leaves out what is large and did not change
                made.append(Made(table, "u", {"id": new, "v": v}, before, ["big"]))
        maker.land([MadeTransaction(made)])
    return Lake(maker.store)


def _seen(lake: Lake, as_of: int | None = None) -> dict[int, str]:
    rows = lake.state("t", as_of).rows()
    assert all(row["big"] == f"big {row['v']}" for row in rows)
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


ABC = {1: "a", 2: "b", 3: "c"}
UP: list[Change] = [("u", 1, 2), ("u", 2, 3), ("u", 3, 4)]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_shift_of_all_keys_keeps_every_row(tmp_path: Path, is_whole: bool) -> None:
    lake = _lake(tmp_path, [UP], is_whole=is_whole, start=ABC)
    assert _seen(lake) == {2: "a", 3: "b", 4: "c"}
    assert _seen(lake, 1) == ABC


@pytest.mark.parametrize("is_whole", [True, False])
def test_two_shifts_in_one_transaction_keep_every_row(tmp_path: Path, is_whole: bool) -> None:
    again: list[Change] = [("u", 2, 3), ("u", 3, 4), ("u", 4, 5)]
    assert _seen(_lake(tmp_path, [[*UP, *again]], is_whole=is_whole, start=ABC)) == {3: "a", 4: "b", 5: "c"}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_swap_of_two_keys_keeps_both_rows(tmp_path: Path, is_whole: bool) -> None:
    assert _seen(_lake(tmp_path, [[("u", 1, 2), ("u", 2, 1)]], is_whole=is_whole, start=ABC)) == {
        1: "b",
        2: "a",
        3: "c",
    }


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_row_inserted_and_deleted_in_one_transaction_is_not_there(tmp_path: Path, is_whole: bool) -> None:
    lake = _lake(
        tmp_path, [[("c", None, 7), ("d", 7, None)], [("c", None, 7), ("u", 7, 8)]], is_whole=is_whole, start=ABC
    )
    assert _seen(lake, 2) == ABC
    assert _seen(lake) == {**ABC, 8: "new 1.0"}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_row_inserted_over_another_that_is_deleted_later_stays(tmp_path: Path, is_whole: bool) -> None:
    """As a deferred constraint lets it."""
    assert _seen(_lake(tmp_path, [[("c", None, 1), ("d", 1, None)]], is_whole=is_whole, start=ABC)) == {
        **ABC,
        1: "new 0.0",
    }


def test_a_whole_image_names_the_newer_version(tmp_path: Path) -> None:
    maker = LakeMaker(LocalDirectory(tmp_path))
    table = maker.version(schema("s.n.t", {"id": INT64, "v": STRING}))
    maker.land([MadeTransaction([Made(table, "c", {"id": 1, "v": "old"})])])
    new = {"id": 1, "v": "new"}
    maker.land([MadeTransaction([Made(table, "c", new), Made(table, "d", new)])])
    assert [row["v"] for row in Lake(maker.store).state("t").rows()] == ["old"]


FAR = (1 << 63) - 1


def test_times_further_than_python_reaches_do_not_hinder(tmp_path: Path) -> None:
    """PostgreSQL's infinity. Large values are left out of the log, so the transaction is looked at change by change."""
    maker = LakeMaker(LocalDirectory(tmp_path))
    table = maker.version(schema("s.n.t", {"id": INT64, "at": TIMESTAMP, "big": STRING}))
    maker.land([MadeTransaction([Made(table, "c", {"id": n, "at": FAR, "big": f"big {n}"}) for n in (1, 2)])])
    swap = [
        Made(table, "u", {"id": new, "at": FAR}, {"id": old, "at": FAR, "big": f"big {old}"}, ["big"])
        for old, new in ((1, 2), (2, 1))
    ]
    maker.land([MadeTransaction(swap)])
    state = Lake(maker.store).state("t")
    found = state.arrow().select(["id", "big"]).to_pylist()
    assert {row["id"]: row["big"] for row in found} == {1: "big 2", 2: "big 1"}
    with pytest.raises(LakeError, match="outside of the range"):
        state.rows()


def test_values_are_compared_by_what_they_are() -> None:
    times = pa.array([[FAR], [FAR], [1]], pa.list_(pa.timestamp("us")))
    rows = pa.table({"a": times, "b": pa.array([math.nan, math.nan, 0.0]), "c": pa.array([0.0, -0.0, -0.0])})
    one, two, three = key_values(rows, ["a", "b", "c"])
    assert one == two
    assert one != three
