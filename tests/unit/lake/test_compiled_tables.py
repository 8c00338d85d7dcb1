"""Which table versions are decoded with compiled code."""

from __future__ import annotations

from lowwater_spark.landing.compiled_tables import COLUMNS_AT_START_MAX, COLUMNS_MAX, ROWS_MIN, CompiledTables


def test_a_version_is_compiled_once_it_has_many_rows() -> None:
    tables = CompiledTables(lambda _: 10)
    tables.count({1: ROWS_MIN - 1, 2: ROWS_MIN})
    assert tables.select({1, 2}) == (2,)
    tables.count({1: 1})
    assert tables.select({1, 2}) == (2, 1)


def test_columns_that_are_compiled_are_limited_and_those_with_most_rows_come_first() -> None:
    tables = CompiledTables(lambda _: COLUMNS_MAX // 4)
    tables.count({1: ROWS_MIN, 2: 3 * ROWS_MIN, 3: 2 * ROWS_MIN})
    assert tables.select({1, 2, 3}) == (2, 3)


def test_versions_that_are_compiled_stay_so_that_the_plan_does_not_change() -> None:
    tables = CompiledTables(lambda _: COLUMNS_MAX // 4)
    tables.count({1: ROWS_MIN, 2: ROWS_MIN})
    assert tables.select({1, 2}) == (1, 2)
    tables.count({3: 100 * ROWS_MIN})
    assert tables.select({1, 2, 3}) == (1, 2)
    assert tables.select({2, 3}) == (2, 3), "1 had no rows for a long time"


def test_one_wide_table_is_compiled() -> None:
    tables = CompiledTables(lambda _: COLUMNS_MAX)
    tables.count({1: ROWS_MIN, 2: ROWS_MIN})
    assert tables.select({1, 2}) == (1,)


def test_versions_that_are_often_among_the_first_records_are_compiled_at_the_start() -> None:
    tables = CompiledTables(lambda _: 10)
    tables.expect(set(), [1] * 99 + [2])
    assert tables.select({1, 2}) == (1,)


def test_versions_of_the_last_landings_are_compiled_at_the_start_if_they_are_few() -> None:
    tables = CompiledTables(lambda _: 10)
    few = set(range(COLUMNS_AT_START_MAX // 20))
    tables.expect(few, [])
    assert set(tables.select(few)) == few
    many = set(range(COLUMNS_AT_START_MAX // 20 + 1))
    tables = CompiledTables(lambda _: 10)
    tables.expect(many, [])
    assert tables.select(many) == ()
