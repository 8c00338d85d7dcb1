"""What the demo reads out of the lake: the bank at every version, and a query over one of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow.compute as pc

from lowwater.lake import Lake, Version
from lowwater_fleet.console import out
from lowwater_fleet.lake_print import print_rows
from lowwater_fleet.lake_sql import ask
from lowwater_fleet.verify import Id, Verdict
from lowwater_fleet.verify_lake import verify_lake

ACCOUNTS, TRANSFERS = "BANK.ACCOUNTS", "BANK.TRANSFERS"
#: what an account has, beside what its transfers say that it has: they agree only in one version of both tables
QUERY = """\
WITH moves AS (SELECT TARGET_ACCOUNT AS id, AMOUNT_CENTS AS cents FROM transfers
               UNION ALL SELECT SOURCE_ACCOUNT, -AMOUNT_CENTS FROM transfers)
SELECT a.ID AS account, a.BRANCH AS branch, count(*) AS transfers, a.BALANCE_CENTS / 100 AS balance,
       round(10000 + sum(cents) / 100, 2) AS by_transfers
FROM accounts a JOIN moves ON a.ID = moves.id GROUP BY ALL ORDER BY balance DESC, account LIMIT 5"""

Row = dict[str, Any]


@dataclass(slots=True)
class Bank:
    """The balances as they follow from the changes, and the money that was paid in at the opening of accounts."""

    opened: dict[int, int] = field(default_factory=dict)
    balances: dict[int, int] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)
    paid_in: int = 0
    total: int = 0

    def apply(self, row: Row) -> tuple[int, ...]:
        """The accounts that it touches."""
        if "AMOUNT_CENTS" in row:
            source, target, amount = row["SOURCE_ACCOUNT"], row["TARGET_ACCOUNT"], row["AMOUNT_CENTS"]
            self.moved[source] = self.moved.get(source, 0) - amount
            self.moved[target] = self.moved.get(target, 0) + amount
            return source, target
        account, balance = row["ID"], row["BALANCE_CENTS"]
        if account not in self.opened:
            self.opened[account] = balance
            self.paid_in += balance
        self.total += balance - self.balances.get(account, 0)
        self.balances[account] = balance
        return (account,)

    def is_sound(self, touched: set[int]) -> bool:
        """No money came or went, and both tables say the same of the accounts that were touched."""
        if self.total != self.paid_in:
            return False
        return all(self.balances.get(a) == self.opened.get(a, 0) + self.moved.get(a, 0) for a in touched)


@dataclass(frozen=True, slots=True)
class Totals:
    """The bank's total after each gsn, and the versions at which the bank was not sound."""

    cents: dict[int, int]
    wrong: list[int]

    @property
    def last(self) -> int:
        return self.cents[max(self.cents)]


def _rows(lake: Lake, table: str, columns: list[str]) -> Iterator[Row]:
    for batch in lake.changes(table, columns=["_gsn", "_seq", *columns]).batches():
        yield from batch.to_pylist()


def _place(row: Row) -> tuple[int, int]:
    return row["_gsn"], row["_seq"]


def totals(lake: Lake) -> Totals:
    """Every version, one after the other: the changes of both tables in their order, looked at after each gsn."""
    accounts = _rows(lake, ACCOUNTS, ["ID", "BALANCE_CENTS"])
    transfers = _rows(lake, TRANSFERS, ["SOURCE_ACCOUNT", "TARGET_ACCOUNT", "AMOUNT_CENTS"])
    bank, cents, wrong = Bank(), {}, []
    for gsn, rows in groupby(heapq.merge(accounts, transfers, key=_place), key=lambda row: int(row["_gsn"])):
        touched = {account for row in rows for account in bank.apply(row)}
        cents[gsn] = bank.total
        if not bank.is_sound(touched):
            wrong.append(gsn)
    return Totals(cents, wrong)


def total_of_state(at: Version) -> int:
    """The same sum the other way: out of the rows that the lake gives for this version."""
    return int(pc.sum(at.state(ACCOUNTS, ["BALANCE_CENTS"]).arrow()["BALANCE_CENTS"]).as_py())


def some_versions(lake: Lake, count: int = 6) -> list[int]:
    """From the first to the newest, in equal steps."""
    return sorted({1 + (lake.gsn - 1) * step // (count - 1) for step in range(count)})


@dataclass(slots=True)
class Checked:
    verdict: Verdict
    totals: Totals
    rows: int
    landings: int
    #: versions whose total was also taken from the state, and was the same
    states: list[int]
    problems: list[str]

    @property
    def is_good(self) -> bool:
        return self.verdict.is_good and self.verdict.transactions > 0 and not self.problems


def check(lake: Lake, histories: dict[str, dict[Id, dict[str, Any]]], say: Callable[[str], None]) -> Checked:
    """Every transaction and value against the cluster's own history, and the bank at every version."""
    say(f"reading the lake: {lake.gsn:,} transactions against the cluster's history")
    verdict = verify_lake(lake, histories)
    say(f"the bank at each of {lake.gsn:,} versions")
    found = totals(lake)
    rows = sum(table.rows for table in lake.tables())
    checked = Checked(verdict, found, rows, lake.chain.head.n, [], list(verdict.details))
    if found.wrong:
        checked.problems.append(
            f"the bank is not sound at {len(found.wrong):,} versions, the first is {found.wrong[0]}"
        )
    for gsn in some_versions(lake):
        say(f"the bank as of gsn {gsn:,}")
        if (total := total_of_state(lake.at(gsn))) == found.cents.get(gsn):
            checked.states.append(gsn)
        else:
            checked.problems.append(f"as of gsn {gsn} the accounts hold {total}, by the changes {found.cents.get(gsn)}")
    return checked


def print_result(checked: Checked) -> None:
    out.print(f"\n[bold {'green' if checked.is_good else 'red'}]{checked.verdict}[/]")
    for problem in checked.problems:
        out.print(f"  {problem}", style="red", markup=False)
    versions, wrong = len(checked.totals.cents), len(checked.totals.wrong)
    out.print(
        f"{checked.rows:,} changes in {checked.landings:,} landings; the bank was in balance at "
        f"{versions - wrong:,} of {versions:,} versions, the last with {checked.totals.last / 100:,.2f}"
    )
    out.print(f"the state as of gsn {' · '.join(f'{gsn:,}' for gsn in checked.states)} has the same total")


def print_query(lake: Lake) -> None:
    """The newest version; both tables are of it."""
    at = lake.at()
    out.print(f"\nThe richest accounts at gsn {at.gsn:,}, by their rows and by their transfers:", style="bold")
    out.print(QUERY, style="dim", markup=False)
    print_rows(*ask(at, QUERY, 5))
