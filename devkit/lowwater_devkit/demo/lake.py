"""The demo's checks of the lake: every transaction, the bank at every version, and queries on one version."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow.compute as pc

from lowwater.lake import Lake, Version
from lowwater.lake.chain.manifest import ManifestKind
from lowwater_devkit.demo.pgbench import DemoPostgres
from lowwater_devkit.demo.pgbench_books import Books, check_books, check_transactions, pgbench_transactions
from lowwater_devkit.demo.shop_books import ShopBooks, check_shop, shop_transactions
from lowwater_devkit.demo.shops import Shop
from lowwater_devkit.verify.history import Id, Verdict, verify
from lowwater_devkit.verify.lake import read_lake, stale_records
from lowwater_devkit.verify.ordered_topic import Ordered
from lowwater_fleet.cli.console import out
from lowwater_fleet.cli.lake_print import print_rows
from lowwater_fleet.cli.lake_sql import ask

ACCOUNTS, TRANSFERS = "BANK.ACCOUNTS", "BANK.TRANSFERS"
#: the balance of an account, and the balance computed from its transfers: equal only if both tables have one version
QUERY = """\
WITH moves AS (SELECT TARGET_ACCOUNT AS id, AMOUNT_CENTS AS cents FROM transfers
               UNION ALL SELECT SOURCE_ACCOUNT, -AMOUNT_CENTS FROM transfers)
SELECT a.ID AS account, a.BRANCH AS branch, count(*) AS transfers, a.BALANCE_CENTS / 100 AS balance,
       round(10000 + sum(cents) / 100, 2) AS by_transfers
FROM accounts a JOIN moves ON a.ID = moves.id GROUP BY ALL ORDER BY balance DESC, account LIMIT 5"""
#: tables of two independent databases: one gsn is a version of both
BOTH_QUERY = """\
SELECT (SELECT sum(BALANCE_CENTS) / 100 FROM accounts) AS cluster_accounts,
       (SELECT sum(abalance) FROM pgbench_accounts) AS pgbench_accounts,
       (SELECT sum(delta) FROM pgbench_history) AS pgbench_history"""

Row = dict[str, Any]


@dataclass(slots=True)
class Bank:
    """The balances computed from the changes, and the total paid in when accounts were opened."""

    opened: dict[int, int] = field(default_factory=dict)
    balances: dict[int, int] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)
    paid_in: int = 0
    total: int = 0

    def apply(self, row: Row) -> tuple[int, ...]:
        """Apply a change. Returns the accounts that it affects."""
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
        """Whether the total is unchanged, and both tables agree on the affected accounts."""
        if self.total != self.paid_in:
            return False
        return all(self.balances.get(a) == self.opened.get(a, 0) + self.moved.get(a, 0) for a in touched)


@dataclass(frozen=True, slots=True)
class Totals:
    """The bank's total after each gsn, and the versions at which the bank was inconsistent."""

    cents: dict[int, int]
    wrong: list[int]

    @property
    def last(self) -> int:
        return self.cents[max(self.cents)]

    def at(self, gsn: int) -> int:
        """The total after the bank's last transaction at or below this gsn."""
        gsns = list(self.cents)
        return self.cents[gsns[bisect_right(gsns, gsn) - 1]]


def _rows(lake: Lake, table: str, columns: list[str]) -> Iterator[Row]:
    for batch in lake.changes(table, columns=["_gsn", "_seq", *columns]).batches():
        yield from batch.to_pylist()


def _place(row: Row) -> tuple[int, int]:
    return row["_gsn"], row["_seq"]


def totals(lake: Lake) -> Totals:
    """Apply the changes of both tables in order, and check the bank after each gsn."""
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
    """The same total, computed from the rows that the lake returns for this version."""
    return int(pc.sum(at.state(ACCOUNTS, ["BALANCE_CENTS"]).arrow()["BALANCE_CENTS"]).as_py())


def some_versions(first: int, last: int, count: int = 6) -> list[int]:
    """Versions in equal steps."""
    return sorted({first + (last - first) * step // (count - 1) for step in range(count)})


def transactions(lake: Lake, cluster: str, shops: Sequence[Shop] = ()) -> list[Ordered]:
    """All transactions by gsn: those of the cluster with all values, those of the other sources, and those without
    changes, which only make a copy readable or mark tables as stale.
    """
    found = [*read_lake(lake, source=cluster), *pgbench_transactions(lake)]
    found += [transaction for shop in shops for transaction in shop_transactions(lake, shop)]
    without_changes = {copied.gsn for copied in lake.chain.copied} | set(stale_records(lake))
    found += [Ordered(gsn) for gsn in without_changes - {transaction.gsn for transaction in found}]
    return sorted(found, key=lambda transaction: transaction.gsn)


def count_landed(lake: Lake, source: str) -> int:
    """The number of landed transactions of one source."""
    found: set[int] = set()
    for name in lake.names():
        if name.startswith(f"{source}."):
            found.update(lake.changes(name, columns=["_gsn"]).arrow()["_gsn"].unique().to_pylist())
    return len(found)


@dataclass(slots=True)
class Checked:
    verdict: Verdict
    totals: Totals
    changes: int
    landings: int
    books: Books | None
    shops: ShopBooks
    #: versions whose total was also computed from the state, with the same result
    states: list[int]
    problems: list[str]

    @property
    def is_good(self) -> bool:
        return self.verdict.is_good and self.verdict.transactions > 0 and not self.problems


def check(
    lake: Lake,
    cluster: str,
    history: dict[Id, dict[str, Any]],
    postgres: DemoPostgres | None,
    shops: Sequence[Shop],
    say: Callable[[str], None],
) -> Checked:
    """Compare every transaction and value with the cluster's history, and check the books of all databases at every
    version."""
    say(f"comparing {lake.gsn:,} transactions of the lake with the cluster's history")
    ordered = transactions(lake, cluster, shops)
    verdict = verify(ordered, {cluster: history}, lambda change: change)
    check_transactions(verdict, ordered)
    books = None if postgres is None else check_books(lake, postgres, verdict, say)
    sold = ShopBooks()
    for shop in shops:
        say(f"comparing the sales of {shop.source} with its rows")
        check_shop(lake, shop, verdict, sold)
    say(f"checking the bank at each of {lake.gsn:,} versions")
    found = totals(lake)
    changes = sum(len(transaction.values) for transaction in ordered)
    landings = sum(manifest.kind is ManifestKind.LAND for manifest in lake.chain.log())
    problems = [*verdict.details, *(books.problems if books else []), *sold.problems]
    checked = Checked(verdict, found, changes, landings, books, sold, [], problems)
    if found.wrong:
        checked.problems.append(
            f"the bank is inconsistent at {len(found.wrong):,} versions, the first is {found.wrong[0]}"
        )
    for gsn in some_versions(min(found.cents), lake.gsn):
        say(f"checking the bank as of gsn {gsn:,}")
        if (total := total_of_state(lake.at(gsn))) == found.at(gsn):
            checked.states.append(gsn)
        else:
            checked.problems.append(f"as of gsn {gsn} the state has a total of {total}, the changes {found.at(gsn)}")
    return checked


def print_result(checked: Checked) -> None:
    out.print(f"\n[bold {'green' if checked.is_good else 'red'}]{checked.verdict}[/]")
    for problem in checked.problems:
        out.print(f"  {problem}", style="red", markup=False)
    versions, wrong = len(checked.totals.cents), len(checked.totals.wrong)
    out.print(
        f"{checked.changes:,} changes in {checked.landings:,} landings; the bank was in balance at "
        f"{versions - wrong:,} of {versions:,} versions, the last with {checked.totals.last / 100:,.2f}"
    )
    out.print(f"the state as of gsn {' · '.join(f'{gsn:,}' for gsn in checked.states)} has the same total")
    if checked.books is not None:
        out.print(str(checked.books))
    if checked.shops.sources:
        out.print(str(checked.shops))


def print_queries(lake: Lake, has_postgres: bool) -> None:
    """Print queries on the newest version."""
    at = lake.at()
    out.print(
        f"\nThe richest accounts at gsn {at.gsn:,}, with the balance computed from their transfers:", style="bold"
    )
    out.print(QUERY, style="dim", markup=False)
    print_rows(*ask(at, QUERY, 5))
    if has_postgres:
        out.print(f"\nBoth databases at gsn {at.gsn:,}:", style="bold")
        out.print(BOTH_QUERY, style="dim", markup=False)
        print_rows(*ask(at, BOTH_QUERY, 1))
