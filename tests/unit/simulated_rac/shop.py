"""Random changes of tables of all shapes, for tests of the redo that the simulated cluster writes."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from lowwater.codec.table import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    TableSchema,
    Type,
    decimal,
)
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.history import Transaction

_KINDS: list[Type] = [
    *(INT32, INT64, decimal(12, 3), STRING, BYTES, BOOLEAN, FLOAT32, FLOAT64, TIMESTAMP, TIMESTAMPTZ),
    decimal(30, 0),
]


def _table(name: str, kinds: list[Type], key: tuple[str, ...] = ("ID",)) -> TableSchema:
    columns = [Column("ID", INT64, nullable=False), *[Column(f"C{at}", kind) for at, kind in enumerate(kinds)]]
    return TableSchema("", "SHOP", name, 1, tuple(columns), key)


MIXED = _table("MIXED", _KINDS)
#: rows of more than 255 columns
WIDE = _table("WIDE", [INT32, STRING] * 140)
#: rows of more bytes than a piece holds
LONG = _table("LONG", [STRING] * 12)
TWO_KEYS = _table("TWO_KEYS", [STRING, INT64], ("ID", "C0"))
TABLES = (MIXED, WIDE, LONG, TWO_KEYS)


class Shop:
    """Sessions that change rows; a row belongs to the session that has changed it until that ends."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self._random = random.Random(seed)
        self._number = 0
        self._rows: dict[str, list[tuple[Any, ...]]] = {table.full_name: [] for table in TABLES}
        #: open transactions, and the rows that they leave behind
        self._open: list[tuple[Transaction, dict[str, list[tuple[Any, ...]]]]] = []

    def step(self) -> None:
        rng = self._random
        if len(self._open) < 4:
            threads = [number for number, each in self.cluster.instances.items() if each.alive]
            kind = rng.random()
            txn = self.cluster.begin(rng.choice(threads), system=kind < 0.1, xa=kind > 0.9)
            self._open.append((txn, {name: [] for name in self._rows}))
        chosen, mine = rng.choice(self._open)
        self._work(chosen, mine)
        if rng.random() < 0.05:
            self.cluster.switch(rng.choice(list(self.cluster.instances)))

    def _work(self, txn: Transaction, mine: dict[str, list[tuple[Any, ...]]]) -> None:
        rng = self._random
        savepoint, before = self.cluster.savepoint(txn), {name: list(rows) for name, rows in mine.items()}
        for _ in range(rng.randrange(1, 5)):
            self._change(txn, mine)
        if rng.random() < 0.15:
            self.cluster.rollback_to(txn, savepoint)
            mine.update(before)
        if rng.random() < 0.3:
            self._end(txn, mine)

    def finish(self) -> None:
        while self._open:
            self._end(*self._open[0])
        self.cluster.heartbeat()

    def _end(self, txn: Transaction, mine: dict[str, list[tuple[Any, ...]]]) -> None:
        self._open.remove((txn, mine))
        if self._random.random() < 0.2:
            self.cluster.rollback(txn)
            return
        if txn.xa and self._random.random() < 0.5:
            self.cluster.prepare(txn)
        self.cluster.commit(txn, flush=self._random.random() < 0.5)
        for name, rows in mine.items():
            self._rows[name] += rows

    def _change(self, txn: Transaction, mine: dict[str, list[tuple[Any, ...]]]) -> None:
        rng, cluster = self._random, self.cluster
        table = rng.choice(TABLES)
        name = table.full_name
        rows = mine[name] if mine[name] and rng.random() < 0.5 else self._rows[name]
        kind = rng.random()
        if kind < 0.35 or not rows:
            mine[name].append(self._row(table))
            cluster.insert(txn, name, mine[name][-1])
        elif kind < 0.45:
            new = [self._row(table) for _ in range(rng.randrange(1, 8))]
            cluster.insert_many(txn, name, new)
            mine[name] += new
        elif kind < 0.8:
            old = rows.pop(rng.randrange(len(rows)))
            mine[name].append(self._changed(table, old))
            cluster.update(txn, name, old, mine[name][-1])
        elif kind < 0.92:
            cluster.delete(txn, name, rows.pop(rng.randrange(len(rows))))
        else:
            gone, rows[:] = rows[:5], rows[5:]
            cluster.delete_many(txn, name, gone)

    def _row(self, table: TableSchema) -> tuple[Any, ...]:
        self._number += 1
        return (self._number, *[self._value(column) for column in table.columns[1:]])

    def _changed(self, table: TableSchema, row: tuple[Any, ...]) -> tuple[Any, ...]:
        new = list(row)
        for at in self._random.sample(range(len(row)), min(len(row), self._random.randrange(1, 5))):
            new[at] = self._row(table)[0] if at == 0 else self._value(table.columns[at])
        return tuple(new)

    def _value(self, column: Column) -> Any:
        rng, kind = self._random, column.type
        if rng.random() < 0.15 and column.name != "C0":
            return None
        if kind is STRING:
            return "".join(rng.choices("abcäß€𝄞", k=rng.choice([1, 3, 40, 300, 1900])))
        if kind is BYTES:
            return rng.randbytes(rng.randrange(1, 300))
        if kind is BOOLEAN:
            return rng.random() < 0.5
        if kind is FLOAT32:
            return rng.randrange(-1000, 1000) / 8
        if kind is FLOAT64:
            return rng.uniform(-1e9, 1e9)
        if kind in (TIMESTAMP, TIMESTAMPTZ):
            return rng.randrange(-(1 << 50), 1 << 51)
        if kind is INT32:
            return rng.randrange(-999_999_999, 1_000_000_000)
        if kind is INT64:
            return rng.randrange(-(10**17), 10**17)
        digits = rng.randrange(-(10**kind.precision) + 1, 10**kind.precision)
        return Decimal(digits).scaleb(-kind.scale) if kind.precision < 28 else Decimal(digits)
