"""The simulated Oracle RAC as a kind, as far as its writer goes. It keeps no rows: they are what was done to them.

There is nothing to copy from a simulation, and nothing to begin again with: capture starts before the first row.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from lowwater.codec.table import BYTES, FLOAT64, INT64, STRING, TIMESTAMP, TIMESTAMPTZ, Column, TableSchema, decimal
from lowwater_devkit.simulated_rac.cluster import Cluster, Transaction
from tests.differential import compare
from tests.differential.workload import Kind, Row, State, Step, TableState, makes

THREADS = 3
_TYPES = (("ID", INT64), ("A", INT64), ("T", STRING), ("D", decimal(20, 4)), ("F", FLOAT64), ("B", BYTES),
          ("AT", TIMESTAMPTZ), ("LOCAL", TIMESTAMP))  # fmt: skip
_OF_LAKE = tuple({"D": compare.decimal, "F": compare.float64}.get(name, compare.same) for name, _ in _TYPES)


def _table(name: str, types: tuple[tuple[str, Any], ...] = _TYPES) -> TableSchema:
    columns = tuple(Column(column, type_, nullable=column != "ID") for column, type_ in types)
    return TableSchema("", "APP", name, 1, columns, ("ID",))


MARKER = _table("MARKER", (("ID", INT64), ("N", INT64)))
TABLES = (_table("PLAIN"), _table("OTHER"), _table("BULK"))
LATE = ("LATE1", "LATE2")


class Oracle(Kind):
    name = "oracle"
    source_kind = "simulated_rac"
    marker = "APP.MARKER"
    has_copies = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # rows in several pieces, rows that leave their block, records of something else in between
        self._cluster = Cluster(
            directory, THREADS, tables=(MARKER, *TABLES), history_file=False, log_bytes=1 << 16,
            piece_bytes_max=2000, migrate_bytes=500, noise=7,
        )  # fmt: skip
        self.rows: dict[str, dict[int, Row]] = {table.full_name: {} for table in (MARKER, *TABLES)}
        #: rows of each table when they were last read, and what was made of them
        self._kept: dict[str, tuple[list[Row], TableState]] = {}
        #: of the savepoint: its place, and the rows as they were
        self._saved: tuple[int, dict[str, dict[int, Row]]] = (0, {})

    def version(self) -> str:
        return "simulated"

    def config(self) -> dict[str, Any]:
        return {"directory": str(self._directory)}

    def grow_config(self) -> None:
        raise NotImplementedError("it captures all that there is")

    def set_up(self) -> None:
        """Empty, so that capture begins before the first row; `mark` makes the marker's."""

    # -- steps -------------------------------------------------------------------------------------------

    def mark(self, marker: int) -> None:
        self._transaction((), marker)

    def execute(self, step: Step, number: int) -> list[str]:
        if step.is_atomic:
            return self._transaction(step.statements, 2 * number)
        self.mark(2 * number - 1)
        if "xa" in step.statements or step.statements[0][0] == "truncate":
            # the branches commit one by one, each with a gsn of its own; DDL has a transaction of its own
            errors = self._transaction(step.statements, None)
        else:
            errors = [error for statement in step.statements if (error := self._control(statement))]
        self.mark(2 * number)
        return errors

    def _transaction(self, statements: Sequence[Any], marker: int | None) -> list[str]:
        # all the same in every run: which thread takes it depends on the step alone
        before = {table: dict(rows) for table, rows in self.rows.items()}
        transaction = self._begin(statements)
        try:
            for statement in statements:
                self._apply(transaction, statement)
            if marker is not None:
                self._set(transaction, self.marker, 1, (1, marker))
        except KeyError as error:
            self.rows = before
            self._cluster.rollback(transaction)
            return [f"no such row: {error}"]
        finally:
            self._cluster.heartbeat()
        if "rollback" in statements:
            self.rows = before
            self._cluster.rollback(transaction)
        else:
            self._cluster.commit(transaction)
        # a silent thread holds the others
        self._cluster.heartbeat()
        return []

    def _begin(self, statements: Sequence[Any]) -> Transaction:
        alive = [number for number, instance in self._cluster.instances.items() if instance.alive]
        return self._cluster.begin(alive[len(statements) % len(alive)], xa="xa" in statements)

    def _set(self, transaction: Transaction, table: str, key: int, row: Row, thread: int | None = None) -> None:
        """Inserts or updates."""
        old = self.rows[table].pop(key, None)
        if old is None:
            self._cluster.insert(transaction, table, row, thread)
        else:
            self._cluster.update(transaction, table, old, row, thread)
        self.rows[table][row[0]] = row

    def _apply(self, transaction: Transaction, statement: Any) -> None:
        if statement in ("rollback", "xa"):
            return
        if statement == "savepoint":
            kept = {table: dict(rows) for table, rows in self.rows.items()}
            self._saved = (self._cluster.savepoint(transaction), kept)
            return
        if statement == "rollback to":
            place, self.rows = self._saved
            self._cluster.rollback_to(transaction, place)
            return
        verb, table, key, *rest = statement
        if verb == "shift":
            self._shift(transaction, table, key, is_rising=rest[0])
            return
        if verb == "truncate":
            self._cluster.truncate(transaction, table, key)
            self.rows[table] = {}
            return
        thread = rest[1] if len(rest) > 1 and transaction.xa and self._cluster.instances[rest[1]].alive else None
        if verb == "set":
            if rest[0][0] != key and rest[0][0] in self.rows[table]:
                raise KeyError(f"{rest[0][0]} is taken")
            self._set(transaction, table, key, rest[0], thread)
        elif verb == "delete":
            self._cluster.delete(transaction, table, self.rows[table].pop(key), thread)
        elif verb == "insert many":
            new = [row for row in rest[0] if row[0] not in self.rows[table]]
            if new:
                self._cluster.insert_many(transaction, table, new)
            self.rows[table] |= {row[0]: row for row in new}
        else:
            gone = [self.rows[table].pop(number) for number in sorted(self.rows[table]) if number % 3 == key]
            if gone:
                self._cluster.delete_many(transaction, table, gone)

    def _shift(self, transaction: Transaction, table: str, by: int, is_rising: bool) -> None:
        """One UPDATE of all keys: Oracle looks at uniqueness when the statement ends, and takes rows in any order."""
        rows = self.rows[table]
        moved = [(rows[key], (key + by, *rows[key][1:])) for key in sorted(rows, reverse=not is_rising)]
        if moved:
            self._cluster.update_many(transaction, table, moved)
        self.rows[table] = {row[0]: row for _, row in moved}

    def _control(self, statement: Any) -> str:
        what, *arguments = statement
        try:
            if what == "add_table":
                if f"APP.{arguments[0]}" in self.rows:
                    return "it is there"
                self._cluster.add_table(_table(arguments[0]))
                self.rows[f"APP.{arguments[0]}"] = {}
            elif what == "system":
                transaction = self._cluster.begin(*arguments, system=True)
                self._cluster.insert(transaction, "APP.PLAIN", _row(random.Random(1), 7))
                self._cluster.commit(transaction)
            else:
                getattr(self._cluster, what)(*arguments)
        except (ValueError, KeyError) as error:
            return str(error)
        return ""

    def end_open(self) -> None:
        pass

    # -- what it holds -----------------------------------------------------------------------------------

    def marker_of(self, state: TableState, row: Row) -> int:
        return int(row[1])

    def state(self) -> State:
        found = {}
        for name, rows in self.rows.items():
            kept = self._kept.get(name)
            # by identity: 0.0 and -0.0 are equal
            if kept is not None and len(kept[0]) == len(rows) and all(map(operator.is_, kept[0], rows.values())):
                found[name] = kept[1]
                continue
            self._kept[name] = list(rows.values()), self._read(name, rows)
            found[name] = self._kept[name][1]
        return found

    def _read(self, name: str, rows: dict[int, Row]) -> TableState:
        if name == self.marker:
            return TableState(("ID", "N"), Counter(rows.values()), (compare.same, compare.same))
        names = tuple(column for column, _ in _TYPES)
        # Oracle's empty text is a null
        made = [tuple(make(None if v in ("", b"") else v) for make, v in zip(_OF_LAKE, row, strict=True))
                for row in rows.values()]  # fmt: skip
        return TableState(names, Counter(made), _OF_LAKE, sorted(rows))

    def close(self) -> None:
        self._cluster.close()

    # -- what is done ------------------------------------------------------------------------------------

    def _table_of(self, rng: random.Random, state: State) -> str:
        return rng.choice([name for name in sorted(state) if name != self.marker])

    def _work(self, rng: random.Random, state: State, many: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(many):
            table = self._table_of(rng, state)
            keys = state[table].about
            key = rng.choice(keys) if keys and rng.random() < 0.6 else rng.randrange(60)
            to = rng.randrange(60) if rng.random() < 0.2 else key
            thread = rng.randrange(1, THREADS + 1)
            found.append(rng.choice([
                ("set", table, key, _row(rng, key), thread), ("set", table, key, _row(rng, to), thread),
                ("set", table, key, _row(rng, key), thread), *([("delete", table, key, None, thread)] if keys else []),
            ]))  # fmt: skip
        return found

    @makes(10)
    def some_rows(self, rng: random.Random, state: State) -> Step:
        return Step("rows", tuple(self._work(rng, state, rng.choice([1, 2, 5]))))

    @makes(2)
    def moved_keys(self, rng: random.Random, state: State) -> Step | None:
        table = self._table_of(rng, state)
        keys = state[table].about
        if len(keys) < 2:
            return None
        one, other = rng.sample(keys, 2)
        swap = [("set", table, one, _row(rng, -999)), ("set", table, other, _row(rng, one)),
                ("set", table, -999, _row(rng, other))]  # fmt: skip
        shift = [("set", table, key, _row(rng, key + 1)) for key in sorted(keys, reverse=True)[:50]]
        by, back = rng.choice([1, 2, -1]), rng.choice([1, -1])
        one = [("shift", table, by, rng.random() < 0.7)]
        several = [*one, *self._work(rng, state, 2), ("shift", table, back, rng.random() < 0.7)]
        return Step("moved keys", tuple(rng.choice([swap, shift, one, several])))

    @makes(1)
    def truncate(self, rng: random.Random, state: State) -> Step:
        table = self._table_of(rng, state)
        owner, _, name = table.partition(".")
        text = rng.choice([
            f"TRUNCATE TABLE {table}", f'truncate /* nightly */ table "{owner}"."{name}" reuse storage',
            f"TRUNCATE\nTABLE {name} -- all of it\n DROP STORAGE",
        ])  # fmt: skip
        return Step("truncate", (("truncate", table, text),), is_atomic=False)

    @makes(2)
    def savepoints(self, rng: random.Random, state: State) -> Step:
        inner = ["savepoint", *self._work(rng, state, 2), "rollback to"]
        return Step("savepoints", (*self._work(rng, state, 1), *inner, *self._work(rng, state, 1)))

    @makes(1)
    def rollback(self, rng: random.Random, state: State) -> Step:
        return Step("rollback", (*self._work(rng, state, 3), "rollback"))

    @makes(1.5)
    def xa(self, rng: random.Random, state: State) -> Step:
        """Its branches are transactions of one SCN: which changed a row first is in no commit (docs/oracle.md)."""
        work = {(table, key): (verb, table, key, row, thread) for verb, table, key, row, thread in
                self._work(rng, state, 4) if row is None or row[0] == key}  # fmt: skip
        return Step("XA", ("xa", *work.values()), is_atomic=False)

    @makes(0.7)
    def large(self, rng: random.Random, state: State) -> Step:
        first = rng.randrange(5000)
        rows = [_row(rng, n) for n in range(first, first + rng.choice([300, 1000]))]
        return Step("large transaction", (
            ("insert many", "APP.BULK", 0, rows), ("delete many", "APP.BULK", rng.randrange(3)),
            ("delete many", "APP.BULK", rng.randrange(3)),
        ))  # fmt: skip

    @makes(2)
    def threads(self, rng: random.Random, state: State) -> Step:
        thread, by = rng.sample(range(2, THREADS + 1), 2) if THREADS > 2 else (2, 1)
        how: tuple[Any, ...] = rng.choice([
            (("switch", 1),), (("switch", thread),), (("close_thread", thread), ("open_thread", thread)),
            (("stop", thread), ("restart", thread)),
            (("stop", thread), ("recover", thread, 1), ("open_thread", thread)),
            (("system", 1),), (("close_thread", by), ("open_thread", by)), (("heartbeat",),),
        ])  # fmt: skip
        return Step("threads", how, is_atomic=False)

    @makes(0.3)
    def new_table(self, rng: random.Random, state: State) -> Step:
        return Step("add table", (("add_table", rng.choice(LATE)),), is_atomic=False)


def _row(rng: random.Random, key: int) -> Row:
    choices: tuple[tuple[Any, ...], ...] = (
        (None, 0, -1, 10**18 - 1, -(10**18) + 1, rng.randrange(100)), (None, "", "a", "é€𝄞", "it's", "x" * 3000),
        (None, Decimal("0"), Decimal("-0.0001"), Decimal("9999999999999999.9999")),
        (None, 0.0, -0.0, 0.1, float("inf"), 5e-324), (None, b"", b"\x00\xff", b"x" * 100),
        (None, 0, -1, 1_700_000_000_123_456), (None, 0, 253_402_300_799_999_999, 1_700_000_000_000_001),
    )  # fmt: skip
    return (key, *(rng.choice(some) for some in choices))
