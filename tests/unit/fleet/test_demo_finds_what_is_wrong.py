"""The demo's check of pgbench's books: a lake with a planted fault is not called good."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction
from tests.unit.lake.test_reader import schema

from lowwater.codec.table import INT32, INT64, STRING, Type
from lowwater.lake import Lake
from lowwater.lake.store.local import LocalDirectory
from lowwater_devkit.demo.lake import Totals, count_landed, some_versions, transactions
from lowwater_devkit.demo.pgbench import TABLES, DemoPostgres, lake_name
from lowwater_devkit.demo.pgbench_books import (
    COLUMNS,
    Books,
    check_books,
    check_transactions,
    copied_rows,
    has_landed,
    is_copied,
    readable_from,
)
from lowwater_devkit.verify.history import Verdict, verify
from lowwater_devkit.verify.lake import gap_in

ACCOUNTS, TELLERS, BRANCHES, HISTORY = TABLES


class _Database(DemoPostgres):
    """Has the rows that it is given."""

    def __init__(self, rows: dict[str, list[tuple[Any, ...]]]) -> None:
        self._rows = rows

    def rows(self, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
        assert columns[:2] == list(COLUMNS[table])
        return self._rows[table]


class _Bench:
    """A branch with one account and one teller; `low` is the end of the log when they were copied."""

    def __init__(self, directory: Path) -> None:
        self.maker = LakeMaker(LocalDirectory(directory))
        self.ids: dict[str, int] = {}
        for table, (key, amount) in COLUMNS.items():
            types: dict[str, Type] = {key: INT64, amount: INT32}
            more: dict[str, Type] = {"filler": STRING} if table == BRANCHES else {}
            self.ids[table] = self.maker.version(schema(lake_name(table), {**types, **more}, (key,)))
        other = self.maker.version(schema("rac.BANK.ACCOUNTS", {"ID": INT64}, ("ID",)))
        self.maker.land([MadeTransaction([Made(other, "c", {"ID": 1})])])
        for table in TABLES:
            rows = [] if table == HISTORY else [self._row(table, 1, 0)]
            self.maker.copy(self.ids[table], table, [rows], "1.*")
        for table in TABLES:
            self.maker.copied(self.ids[table], table, "1.*")
        self.balance = 0
        self.number = 0

    def _row(self, table: str, key: int, amount: int) -> dict[str, Any]:
        return dict(zip(COLUMNS[table], (key, amount), strict=True))

    def work(self, delta: int, without: Sequence[str] = ()) -> None:
        self.balance += delta
        self.number += 1
        changes = [Made(self.ids[table], "u", self._row(table, 1, self.balance)) for table in TABLES[:3]]
        changes.append(Made(self.ids[HISTORY], "c", self._row(HISTORY, self.number, delta)))
        left = {self.ids[table] for table in without}
        self.maker.land([MadeTransaction([change for change in changes if change.schema_id not in left])])

    @property
    def lake(self) -> Lake:
        return Lake.open(self.maker.store.uri)

    def database(self, *deltas: int) -> _Database:
        total = sum(deltas)
        history = [(number, delta) for number, delta in enumerate(deltas, 1)]
        one: dict[str, list[tuple[Any, ...]]] = {ACCOUNTS: [(1, total)], TELLERS: [(1, total)]}
        return _Database({**one, BRANCHES: [(1, total, None)], HISTORY: list(history)})

    def check(self, database: DemoPostgres) -> tuple[Verdict, Books]:
        ordered = transactions(self.lake, "rac")
        verdict = verify(ordered, {}, lambda change: change)
        check_transactions(verdict, ordered)
        return verdict, check_books(self.lake, database, verdict, lambda _: None)


@pytest.fixture
def bench(tmp_path: Path) -> _Bench:
    return _Bench(tmp_path / "lake")


def test_books_in_balance(bench: _Bench) -> None:
    assert readable_from(bench.lake) == 5
    assert is_copied(bench.maker.store.uri)
    assert copied_rows(bench.lake) == 3
    for delta in (5, -3, 10):
        bench.work(delta)
    verdict, books = bench.check(bench.database(5, -3, 10))
    assert verdict.is_good
    assert verdict.transactions == 8
    assert (books.from_gsn, books.versions, books.wrong, books.rows) == (5, 4, [], 6)
    assert books.problems == []
    assert count_landed(bench.lake, "rac") == 1


@pytest.mark.parametrize("table", TABLES)
def test_a_torn_transaction(bench: _Bench, table: str) -> None:
    bench.work(5)
    bench.work(7, without=[table])
    verdict, books = bench.check(bench.database(5, 7))
    assert verdict.torn > 0
    assert books.wrong == [7]


def test_a_lost_transaction(bench: _Bench) -> None:
    bench.work(5)
    verdict, books = bench.check(bench.database(5, 7))
    assert verdict.lost == 1
    assert any("missing" in problem for problem in books.problems)


def test_a_transaction_that_comes_twice(bench: _Bench) -> None:
    bench.work(5)
    ordered = transactions(bench.lake, "rac")
    verdict = Verdict()
    check_transactions(verdict, [*ordered, ordered[-1]])
    assert verdict.duplicated == 1


def test_a_transaction_that_only_says_that_tables_are_stale_is_not_a_gap(bench: _Bench) -> None:
    bench.work(5)
    bench.maker.stale(bench.ids[HISTORY], "for the test")
    bench.maker.copy(bench.ids[HISTORY], "again", [[bench._row(HISTORY, 1, 5)]], "3.*")
    bench.maker.copied(bench.ids[HISTORY], "again", "3.*")
    verdict, _ = bench.check(bench.database(5))
    assert verdict.is_good, verdict.details


def test_numbers_after_records_that_say_that_tables_are_stale() -> None:
    assert gap_in([3, 2], preceding=1) == ""
    assert gap_in([1, 2], preceding=1)
    assert gap_in([2, 4], preceding=1)


def test_a_number_that_is_missing(bench: _Bench) -> None:
    bench.maker.land([], rowless=1)
    bench.work(5)
    verdict, _ = bench.check(bench.database(5))
    assert verdict.out_of_order == 1


def test_the_last_word(bench: _Bench) -> None:
    assert not has_landed(bench.maker.store.uri, "closed")
    row = {"bid": 1, "bbalance": 0, "filler": "closed    "}
    bench.maker.land([MadeTransaction([Made(bench.ids[BRANCHES], "u", row)])])
    assert has_landed(bench.maker.store.uri, "closed")
    ordered = transactions(bench.lake, "rac")
    verdict = Verdict()
    check_transactions(verdict, ordered)
    assert verdict.is_good


def test_nothing_has_landed_yet(tmp_path: Path) -> None:
    assert not is_copied(str(tmp_path / "lake"))


def test_a_version_of_another_database_has_the_total_of_the_one_before() -> None:
    totals = Totals({3: 100, 5: 200}, [])
    assert [totals.at(gsn) for gsn in (3, 4, 5, 6)] == [100, 100, 200, 200]
    assert some_versions(3, 13, 3) == [3, 8, 13]
