"""Checks the shops in the lake: every sale is whole under one gsn and occurs once, and the final rows are equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lowwater.errors import LakeError
from lowwater.lake import Lake
from lowwater.records.positions import Order
from lowwater.records.types import Commit
from lowwater_devkit.demo.shops import TABLES, Rows, Shop
from lowwater_devkit.verify.history import Verdict
from lowwater_devkit.verify.ordered_topic import Ordered


@dataclass(slots=True)
class ShopBooks:
    sales: int = 0
    copied: int = 0
    sources: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = ", ".join(self.sources)
        return (
            f"shops on {names}: {self.copied:,} orders copied, {self.sales:,} streamed, each sale whole under one gsn; "
            f"orders and lines are {'not ' if self.problems else ''}equal to the databases'"
        )


def has_landed(uri: str, shops: list[Shop]) -> bool:
    """Whether every shop's last order has landed, and with it all earlier ones."""
    try:
        lake = Lake.open(uri)
        return all(shop.sold in _state(lake, shop)[0] for shop in shops)
    except LakeError:
        return False  # nothing has landed yet, or a table cannot be read yet


def _key(shop: Shop) -> str:
    return "_id" if shop.source == "mongodb" else "id"


def _state(lake: Lake, shop: Shop) -> Rows:
    key = _key(shop)
    at = lake.at()
    orders, lines = (at.state(shop.lake_name(table)).arrow().to_pylist() for table in TABLES)
    return {row[key]: row["cents"] for row in orders}, {row[key]: (row["order_id"], row["cents"]) for row in lines}


def shop_transactions(lake: Lake, shop: Shop) -> list[Ordered]:
    """The transactions, assembled from the two tables. Each change has its table, order and cents."""
    found: dict[int, Ordered] = {}
    key = _key(shop)
    for table in TABLES:
        name = shop.lake_name(table)
        if not lake.find(name):
            continue
        order = key if table == "orders" else "order_id"
        columns = ["_gsn", "_thread", "_txid", "_order", order, "cents"]
        for row in lake.changes(name, columns=columns).arrow().to_pylist():
            transaction = found.setdefault(row["_gsn"], Ordered(row["_gsn"]))
            transaction.values.append((table, row[order], row["cents"]))
            place = Order(row["_order"]["major"], row["_order"]["minor"])
            transaction.commit = Commit(shop.source, row["_thread"], row["_txid"], place, 0, 0, 0, 0)
    return list(found.values())


def _is_whole(values: list[Any], number: int) -> bool:
    """Whether the changes contain one order of this number, and lines with the same sum."""
    orders = {cents for table, order, cents in values if (table, order) == ("orders", number)}
    lines = [cents for table, order, cents in values if (table, order) == ("order_lines", number)]
    return len(orders) == 1 and sum(orders) == sum(lines)


def check_shop(lake: Lake, shop: Shop, verdict: Verdict, books: ShopBooks) -> None:
    books.sources.append(shop.source)
    seen: set[int] = set()
    for transaction in shop_transactions(lake, shop):
        numbers = {order for _, order, _ in transaction.values}
        # Turso's log may give two consecutive transactions one id (docs/turso.md)
        is_joined = len(numbers) > 1 and shop.source != "turso"
        if is_joined or not all(_is_whole(transaction.values, number) for number in numbers):
            verdict.torn += 1
            verdict.note(f"gsn {transaction.gsn}: a sale of {shop.source} that is {transaction.values}")
        if numbers & seen:
            verdict.duplicated += 1
            verdict.note(f"{shop.source}: order {min(numbers & seen)} occurs twice")
        seen |= numbers
        books.sales += len(numbers)
    ours, theirs = _state(lake, shop), shop.rows()
    books.copied += len(ours[0].keys() - seen)
    both: list[tuple[str, dict[int, Any], dict[int, Any]]] = [
        (table, ours[place], theirs[place]) for place, table in enumerate(TABLES)
    ]
    for table, mine, real in both:
        if missing := real.keys() - mine.keys():
            verdict.lost += len(missing) if table == "orders" else 0
            books.problems.append(
                f"{shop.source}: {len(missing):,} rows of {table} are missing, such as {min(missing)}"
            )
        if mine != real and not missing:
            books.problems.append(f"{shop.source}: rows of {table} are not the database's")
