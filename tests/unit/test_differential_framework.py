"""The pure parts of tests/differential: what is equal, what a marker means, what shrinking leaves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.differential import compare
from tests.differential.shrink import shrink
from tests.differential.workload import History, Step, TableState


def _state(*rows: tuple[Any, ...], columns: tuple[str, ...] = ("id", "v")) -> TableState:
    return TableState(columns, Counter(rows), tuple(compare.same for _ in columns))


# -- comparing ---------------------------------------------------------------------------------------------


def test_equal_rows_in_another_order_are_equal() -> None:
    table = pa.table({"v": ["b", "a"], "id": [2, 1]})
    assert compare.difference(table, _state((1, "a"), (2, "b"))) == ""


def test_a_row_that_is_there_twice_is_not_a_row_that_is_there_once() -> None:
    assert compare.difference(pa.table({"id": [1, 1], "v": ["a", "a"]}), _state((1, "a")))


def test_a_column_that_the_lake_does_not_have_is_null() -> None:
    table = pa.table({"id": [1]})
    assert compare.difference(table, _state((1, None))) == ""
    assert "no column v" in compare.difference(table, _state((1, "a")))


def test_a_column_named_as_one_of_the_lakes_own_is_found_under_its_other_name() -> None:
    state = _state((1, 7), columns=("id", "_gsn"))
    assert compare.difference(pa.table({"id": [1], "_gsn_": [7]}), state) == ""


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (0.1, 0.1 + 1e-17 * 2), (float("inf"), float("-inf"))])
def test_floats_are_compared_by_their_bits(one: float, other: float) -> None:
    is_same = one.hex() == other.hex()
    assert (compare.float64(one) == compare.float64(other)) is is_same
    assert compare.float64(float("nan")) == compare.float64(float("nan"))


def test_json_is_compared_by_its_meaning() -> None:
    assert compare.of_json('{"a": 1, "b": [1.0]}') == compare.of_json('{"b":[1.00],"a":1}')
    assert compare.of_json("1") != compare.of_json("1.0")
    assert compare.of_json("true") != compare.of_json("1")
    assert compare.of_json("[1, 2]") != compare.of_json("[2, 1]")


def test_times_beyond_python_are_compared_as_numbers() -> None:
    far = pa.array([(1 << 63) - 1, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    assert compare.plain(pa.chunked_array([far])) == [(1 << 63) - 1, None]


# -- the history -------------------------------------------------------------------------------------------


def test_a_marker_names_the_last_state_at_or_before_it() -> None:
    history = History()
    history.record(0, {"t": _state((1, "a"))})
    history.record(4, {"t": _state((1, "b"))})
    assert history.at("t", 2) == _state((1, "a"))
    assert history.at("t", 4) == _state((1, "b"))
    assert history.at("t", 6) == _state((1, "b"))


def test_inside_a_step_only_tables_that_it_did_not_change_are_known() -> None:
    history = History()
    history.record(0, {"t": _state((1, "a")), "u": _state((1, "x"))})
    history.record(2, {"t": _state((1, "b")), "u": _state((1, "x"))})
    assert history.at("t", 1) is None
    assert history.at("u", 1) == _state((1, "x"))


def test_a_column_of_another_type_is_another_state_though_its_values_are_equal() -> None:
    history = History()
    number, text = _state((1, 1)), replace(_state((1, 1)), from_lake=(int, int))
    history.record(0, {"t": number})
    history.record(2, {"t": text})
    assert history.at("t", 2) is text


def test_a_dropped_table_is_not_known() -> None:
    history = History()
    history.record(0, {"t": _state((1, "a"))})
    history.record(2, {})
    assert history.at("t", 0) is not None
    assert history.at("t", 2) is None


# -- shrinking ---------------------------------------------------------------------------------------------


def test_shrinking_keeps_the_steps_and_statements_that_are_needed_together() -> None:
    steps = [Step(f"s{n}", (f"a{n}", f"b{n}", f"c{n}")) for n in range(40)]

    def fails(some: Sequence[Step]) -> bool:
        statements = [statement for step in some for statement in step.statements]
        return "b7" in statements and "c31" in statements

    few = shrink(steps, fails, seconds=20)
    assert [(step.name, step.statements) for step in few] == [("s7", ("b7",)), ("s31", ("c31",))]


def test_shrinking_ends_with_its_time() -> None:
    def fails(_: Sequence[Step]) -> bool:
        time.sleep(0.05)
        return False

    steps = [Step(f"s{n}") for n in range(1000)]
    started = time.monotonic()
    assert shrink(steps, fails, seconds=0.2) == steps
    assert time.monotonic() < started + 5
