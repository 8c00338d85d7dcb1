"""Reads all transactions of a lake, for the comparison with the source's history."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lowwater.lake import Lake
from lowwater.records.positions import Order
from lowwater.records.types import Commit, Skipped
from lowwater_devkit.verify.history import plain_value
from lowwater_devkit.verify.ordered_topic import Ordered


def read_lake(lake: Lake, to_gsn: int | None = None, source: str = "") -> list[Ordered]:
    """All transactions of the lake, or of one source, assembled from its tables."""
    found: dict[int, Ordered] = {}
    places: dict[int, list[int]] = {}
    for table in lake.tables():
        if source and not table.name.startswith(f"{source}."):
            continue
        rows = lake.changes(table.name, to_gsn=to_gsn).arrow()
        names = [name for name in rows.column_names if not name.startswith("_")]
        for row in rows.to_pylist():
            transaction = found.setdefault(row["_gsn"], Ordered(row["_gsn"]))
            places.setdefault(row["_gsn"], []).append(row["_seq"])
            transaction.values.append(_change(row, names, table.name))
            transaction.commit = _commit(row, table.name.partition(".")[0])
    records = stale_records(lake)
    for gsn, transaction in found.items():
        seqs = places[gsn]
        transaction.torn = gap_in(seqs, records[gsn])
        transaction.values = [value for _, value in sorted(zip(seqs, transaction.values, strict=True))]
    for manifest in lake.chain.log():
        for skip in manifest.skipped:
            head = Skipped(skip.source, skip.thread, skip.txid, Order(0, 0), 0, skip.reason)
            found[skip.gsn] = Ordered(skip.gsn, skipped=head)
    return [found[gsn] for gsn in sorted(found)]


def stale_records(lake: Lake) -> Counter[int]:
    """By gsn: the number of Stale records of a transaction. They precede its changes."""
    return Counter(stale.gsn for stale in lake.chain.stale)


def gap_in(seqs: list[int], preceding: int) -> str:
    """A description of a gap in the numbers of a transaction's changes; empty if they are complete."""
    wanted = range(preceding + 1, preceding + len(seqs) + 1)
    return "" if sorted(seqs) == list(wanted) else f"its changes have the numbers {sorted(seqs)[:20]}"


def _change(row: dict[str, Any], names: list[str], table: str) -> Any:
    before = row["_before"]
    after = None if row["_op"] == "d" else [plain_value(row[name]) for name in names]
    old = None if before is None else [plain_value(before[name]) for name in names]
    return [row["_op"], table.partition(".")[2], old, after]


def _commit(row: dict[str, Any], source: str) -> Commit:
    order = Order(row["_order"]["major"], row["_order"]["minor"])
    return Commit(source, row["_thread"], row["_txid"], order, 0, 0, 0, 0)
