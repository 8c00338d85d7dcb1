"""Checks pgbench's tables in the lake: sums are equal at every version, and the final rows equal the database's."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from lowwater.errors import LakeError
from lowwater.lake import Lake
from lowwater.lake.chain.manifest import Layer
from lowwater.lake.read.state_plan import all_files
from lowwater.records.positions import Order
from lowwater.records.types import Commit
from lowwater_devkit.demo.pgbench import SOURCE, TABLES, DemoPostgres, lake_name
from lowwater_devkit.verify.history import Verdict
from lowwater_devkit.verify.lake import gap_in, stale_records
from lowwater_devkit.verify.ordered_topic import Ordered
from lowwater_fleet.cli.lake_sql import ask

#: by table: its key, and the amount whose sum TPC-B keeps equal in all tables
COLUMNS = {
    "pgbench_accounts": ("aid", "abalance"),
    "pgbench_tellers": ("tid", "tbalance"),
    "pgbench_branches": ("bid", "bbalance"),
    "pgbench_history": ("id", "delta"),
}
#: the same sums, computed from the rows that the lake returns for a version
SUMS = "SELECT " + ", ".join(f"(SELECT coalesce(sum({COLUMNS[t][1]}), 0) FROM {t}) AS {t}" for t in TABLES)


class _Change(NamedTuple):
    gsn: int
    seq: int
    table: str
    key: int
    amount: int


@dataclass(slots=True)
class Books:
    #: the first gsn at which all four tables can be read
    from_gsn: int
    #: the number of versions checked, and those with different sums
    versions: int = 0
    wrong: list[int] = field(default_factory=list)
    rows: int = 0
    copied_rows: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        equal = "not equal" if self.problems else "equal"
        return (
            f"pgbench: {self.copied_rows:,} rows copied while it wrote; accounts, tellers, branches and history in "
            f"balance at {self.versions - len(self.wrong):,} of {self.versions:,} versions from gsn "
            f"{self.from_gsn:,} on; at the end {self.rows:,} rows, {equal} to PostgreSQL's"
        )


def readable_from(lake: Lake) -> int:
    """The first gsn at which all tables of pgbench can be read; 0 if there is none yet."""
    found = {table: copied.gsn for copied in lake.chain.copied for table in copied.tables}
    return max(found.get(lake_name(t), 0) for t in TABLES) if all(lake_name(t) in found for t in TABLES) else 0


def copied_rows(lake: Lake) -> int:
    readable = {copied.copy_id for copied in lake.chain.copied}
    files = [file for table in TABLES for file in all_files(lake.chain, lake_name(table), Layer.COPY)]
    return sum(file.rows for file in files if file.copy_id in readable)


def is_copied(uri: str) -> bool:
    try:
        return readable_from(Lake.open(uri)) > 0
    except LakeError:
        return False  # nothing has landed yet


def has_landed(uri: str, word: str) -> bool:
    """Whether the final update of `close_the_books` has landed, and with it all earlier transactions."""
    found = Lake.open(uri).state(lake_name("pgbench_branches"), columns=["filler"]).arrow()["filler"].to_pylist()
    return word in [filler.rstrip() for filler in found if filler]


def pgbench_transactions(lake: Lake) -> list[Ordered]:
    """The transactions, assembled from the four tables. Of each change, only the table is included."""
    found: dict[int, Ordered] = {}
    seqs: dict[int, list[int]] = {}
    for table in TABLES:
        if not lake.find(lake_name(table)):
            continue
        rows = lake.changes(lake_name(table), columns=["_gsn", "_seq", "_thread", "_txid", "_order"]).arrow()
        for row in rows.to_pylist():
            transaction = found.setdefault(row["_gsn"], Ordered(row["_gsn"]))
            transaction.values.append(table)
            order = Order(row["_order"]["major"], row["_order"]["minor"])
            transaction.commit = Commit(SOURCE, row["_thread"], row["_txid"], order, 0, 0, 0, 0)
            seqs.setdefault(row["_gsn"], []).append(row["_seq"])
    records = stale_records(lake)
    for gsn, numbers in seqs.items():
        found[gsn].torn = gap_in(numbers, records[gsn])
    return list(found.values())


def check_transactions(verdict: Verdict, transactions: list[Ordered]) -> None:
    """A TPC-B transaction changes each of the four tables once: others count as torn, repeated ones as duplicated."""
    whole = Counter(TABLES)
    times: Counter[str] = Counter()
    for transaction in transactions:
        if transaction.commit is None or transaction.commit.source != SOURCE:
            continue
        times[transaction.commit.txid] += 1
        touched = Counter(transaction.values)
        # except the final update of `close_the_books`
        if touched != whole and touched != {"pgbench_branches": 1}:
            verdict.torn += 1
            verdict.note(f"gsn {transaction.gsn}: a transaction of pgbench that changes {dict(touched)}")
    for txid, count in times.items():
        if count > 1:
            verdict.duplicated += 1
            verdict.note(f"{SOURCE}: transaction {txid} was found {count} times")


def check_books(lake: Lake, database: DemoPostgres, verdict: Verdict, say: Callable[[str], None]) -> Books:
    books = Books(readable_from(lake), copied_rows=copied_rows(lake))
    say("checking pgbench's sums at each version")
    _check_every_version(lake, books)
    for gsn in (books.from_gsn, (books.from_gsn + lake.gsn) // 2, lake.gsn):
        _, (row,) = ask(lake.at(gsn), SUMS, 1)
        if len(set(row.values())) != 1:
            books.problems.append(f"pgbench: as of gsn {gsn} the sums are {row}")
    say("comparing pgbench's rows with PostgreSQL's")
    for table in TABLES:
        _check_rows(lake, database, table, books, verdict)
    if books.wrong:
        verdict.torn += len(books.wrong)
        books.problems.append(f"pgbench: not in balance at {len(books.wrong):,} versions, first {books.wrong[0]}")
    return books


def _changes(lake: Lake, table: str, after_gsn: int) -> Iterator[_Change]:
    key, amount = COLUMNS[table]
    found = lake.changes(lake_name(table), after_gsn, columns=["_gsn", "_seq", key, amount])
    for batch in found.batches():
        for row in batch.to_pylist():
            yield _Change(row["_gsn"], row["_seq"], table, row[key], row[amount])


def _check_every_version(lake: Lake, books: Books) -> None:
    """Start with the state at the first version, apply the changes in order, and check the sums after each gsn."""
    at = lake.at(books.from_gsn)
    amounts: dict[str, dict[int, int]] = {}
    for table in TABLES:
        rows = at.state(lake_name(table), COLUMNS[table]).arrow()
        keys, values = (rows[name].to_pylist() for name in COLUMNS[table])
        amounts[table] = dict(zip(keys, values, strict=True))
    sums = {table: sum(found.values()) for table, found in amounts.items()}
    books.versions, books.wrong = 1, [books.from_gsn] if len(set(sums.values())) > 1 else []
    merged = heapq.merge(*(_changes(lake, table, books.from_gsn) for table in TABLES))
    for gsn, changes in groupby(merged, key=lambda change: change.gsn):
        for _, _, table, key, amount in changes:
            sums[table] += amount - amounts[table].get(key, 0)
            amounts[table][key] = amount
        books.versions += 1
        if len(set(sums.values())) > 1:
            books.wrong.append(gsn)


def _check_rows(lake: Lake, database: DemoPostgres, table: str, books: Books, verdict: Verdict) -> None:
    found = lake.state(lake_name(table)).arrow()
    columns = found.column_names
    ours = set(zip(*(column.to_pylist() for column in found.columns), strict=True))
    theirs = set(database.rows(table, columns))
    books.rows += found.num_rows
    if found.num_rows != len(ours):
        books.problems.append(f"pgbench: {table} has a row twice")
    missing = sorted(theirs - ours, key=str)
    if missing:
        verdict.lost += len(missing) if table == "pgbench_history" else 0  # one row for each transaction
        books.problems.append(f"pgbench: {len(missing):,} rows of {table} are missing, such as {missing[0]}")
    if more := sorted(ours - theirs, key=str):
        books.problems.append(f"pgbench: {len(more):,} rows of {table} are not the database's, such as {more[0]}")
