"""Compares ordered transactions with the source's history: counts lost, duplicated, misordered and torn ones."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro

from lowwater.records.ids import SchemaId
from lowwater.records.positions import Order
from lowwater.records.schemas import SchemaStore
from lowwater.records.wire import HEADER_SIZE, schema_id_of
from lowwater_devkit.verify.ordered_topic import Ordered

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

#: converts a value to (op, table, before, after)
Decode = Callable[[Any], list[Any]]
#: the id of a transaction: (thread, txid)
Id = tuple[int, str]


@dataclass(slots=True)
class Verdict:
    transactions: int = 0
    skipped: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    torn: int = 0
    #: descriptions of the first problems
    details: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.torn)

    def note(self, what: str) -> None:
        if len(self.details) < 20:
            self.details.append(what)

    def __str__(self) -> str:
        counts = (
            f"{self.lost} lost · {self.duplicated} duplicated · {self.out_of_order} out of order · {self.torn} torn"
        )
        return f"{self.transactions} transactions · {counts}"


def read_history(path: Path) -> dict[Id, dict[str, Any]]:
    """The transactions that the simulated cluster has committed, without internal ones, which are not captured."""
    found: dict[Id, dict[str, Any]] = {}
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):  # the last line may be incomplete
                entry = json.loads(line)
                if not entry["system"]:
                    found[(entry["thread"], entry["txid"])] = entry
    return found


class Decoder:
    """Converts values to (op, table, before, after), in the format of the history."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._schemas: dict[SchemaId, tuple[str, Any]] = {}

    def __call__(self, value: bytes) -> list[Any]:
        schema_id = schema_id_of(value)
        if schema_id not in self._schemas:
            entry = self._store.entry(schema_id)
            self._schemas[schema_id] = (entry.table, fastavro.parse_schema(json.loads(entry.schema)))
        table, schema = self._schemas[schema_id]
        change: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_SIZE:]), schema, None)
        return [change["op"], table, _row(change["before"]), _row(change["after"])]


def _row(row: dict[str, Any] | None) -> list[Any] | None:
    return None if row is None else [plain_value(value) for value in row.values()]


def plain_value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // _MICROSECOND
    return str(value) if isinstance(value, Decimal) else value


def verify(
    ordered: Iterable[Ordered],
    histories: dict[str, dict[Id, dict[str, Any]]],
    decode: Decode | None = None,
) -> Verdict:
    """Compare all transactions with the histories; with `decode`, also every value."""
    verdict = Verdict()
    seen: dict[str, set[Id]] = {source: set() for source in histories}
    last: dict[str, tuple[Order, int, str]] = {}
    expected_gsn = 1
    for transaction in ordered:
        verdict.transactions += 1
        if transaction.gsn != expected_gsn:
            verdict.out_of_order += 1
            verdict.note(f"gsn {transaction.gsn} where {expected_gsn} belongs")
        expected_gsn = transaction.gsn + 1
        if transaction.torn:
            verdict.torn += 1
            verdict.note(f"gsn {transaction.gsn}: {transaction.torn}")
        head = transaction.commit or transaction.skipped
        if head is None:
            continue
        if transaction.skipped is None:  # a skipped late transaction is out of order
            _check_place(verdict, transaction.gsn, head.source, (head.order, head.thread, head.txid), last)
        _check_once(verdict, transaction, head.source, (head.thread, head.txid), seen, histories, decode)
    for source, history in histories.items():
        for thread, txid in sorted(set(history) - seen[source]):
            verdict.lost += 1
            verdict.note(f"{source}: transaction {txid} of thread {thread} is missing")
    return verdict


def _check_place(
    verdict: Verdict, gsn: int, source: str, key: tuple[Order, int, str], last: dict[str, tuple[Order, int, str]]
) -> None:
    if source in last and key <= last[source]:
        verdict.out_of_order += 1
        verdict.note(f"gsn {gsn}: {source} {key[0]} after {last[source][0]}")
    last[source] = max(key, last.get(source, key))


def _check_once(
    verdict: Verdict, transaction: Ordered, source: str, id_: Id, seen: dict[str, set[Id]],
    histories: dict[str, dict[Id, dict[str, Any]]], decode: Decode | None,
) -> None:  # fmt: skip
    if source not in histories:
        return
    if id_ in seen[source]:
        verdict.duplicated += 1
        verdict.note(f"gsn {transaction.gsn}: {source} {id_} occurs twice")
    seen[source].add(id_)
    if transaction.skipped is not None:
        verdict.skipped += 1
        return
    known = histories[source].get(id_)
    if known is None:
        verdict.torn += 1
        verdict.note(f"gsn {transaction.gsn}: {source} {id_} was never committed")
    elif decode is not None and [decode(v) for v in transaction.values] != known["changes"]:
        verdict.torn += 1
        verdict.note(f"gsn {transaction.gsn}: {source} {id_} has different changes than the source")
    elif len(transaction.values) != len(known["changes"]):
        verdict.torn += 1
        verdict.note(f"gsn {transaction.gsn}: {source} {id_} has {len(transaction.values)} changes")
