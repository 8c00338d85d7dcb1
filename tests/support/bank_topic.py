"""A bank over two tables, written into an ordered topic: every transaction moves money from one table to the other."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.lake import Lake
from lowwater.lake.chain.chain import Chain
from lowwater.lake.store.base import open_lake_store
from lowwater.runtime.config import LakeConfig
from tests.support.ordered_topic import OrderedTopic

COLUMNS = (Column("ID", INT64), Column("CENTS", INT64))
ACCOUNTS = TableSchema("bank", "B", "ACCOUNTS", 1, COLUMNS, ("ID",))
VAULTS = TableSchema("bank", "B", "VAULTS", 1, COLUMNS, ("ID",))
ROWS, CENTS = 20, 1_000


class BankTopic:
    """Transactions 1 and 2 open the two tables; from then on the total of both is always the same."""

    def __init__(self, topic: OrderedTopic, seed: int = 1) -> None:
        self._topic = topic
        self._random = random.Random(seed)
        self._balance = {table: dict.fromkeys(range(ROWS), CENTS) for table in (ACCOUNTS, VAULTS)}
        #: (gsn, seq, op, id, cents) of every change, by table
        self.written: dict[str, list[tuple[int, int, str, int, int]]] = {"ACCOUNTS": [], "VAULTS": []}
        with topic:
            self._transaction([(t, "c", n, CENTS) for t in (ACCOUNTS, VAULTS) for n in range(ROWS)])

    @property
    def gsn(self) -> int:
        return self._topic.gsn

    def _transaction(self, changes: list[tuple[TableSchema, str, int, int]]) -> None:
        rows: list[Any] = []
        for seq, (table, op, id_, cents) in enumerate(changes, 1):
            before = (id_, self._balance[table][id_]) if op == "u" else None
            rows.append((table, op, before, (id_, cents)))
            self._balance[table][id_] = cents
            self.written[table.table].append((self.gsn + 1, seq, op, id_, cents))
        self._topic.transaction(*rows)

    def work(self, transactions: int, transfers: int = 2) -> None:
        """One release of the merger."""
        with self._topic:
            for _ in range(transactions):
                changes: list[tuple[TableSchema, str, int, int]] = []
                for one, other in zip(*[self._random.sample(range(ROWS), transfers) for _ in (1, 2)], strict=True):
                    cents = self._random.randint(1, 50)
                    changes.append((ACCOUNTS, "u", one, self._balance[ACCOUNTS][one] - cents))
                    changes.append((VAULTS, "u", other, self._balance[VAULTS][other] + cents))
                self._transaction(changes)

    def check(self, config: LakeConfig) -> None:
        """Nothing lost, nothing twice, nothing torn, all in its place."""
        lake = Lake.open(config)
        assert lake.gsn == self.gsn
        for table, wanted in self.written.items():
            rows = lake.changes(table).arrow()
            columns = [rows[name].to_pylist() for name in ("_gsn", "_seq", "_op", "ID", "CENTS")]
            assert list(zip(*columns, strict=True)) == wanted, table


class Watcher:
    """A reader that looks all the while: at each version that it finds, the total over both tables."""

    def __init__(self, config: LakeConfig) -> None:
        self._config = config
        self._stop = threading.Event()
        self.versions: set[int] = set()
        self.wrong: list[str] = []
        self.failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed
        assert not self.wrong, self.wrong

    def _run(self) -> None:
        try:
            store = open_lake_store(self._config)
            while not Chain.open(store).head.n and not self._stop.is_set():
                time.sleep(0.05)
            lake = Lake.open(self._config)
            while not self._stop.is_set():
                lake.refresh()
                if lake.gsn and lake.gsn not in self.versions:
                    self._look(lake)
                time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001 - it is raised again by the test's own thread
            self.failed = error

    def _look(self, lake: Lake) -> None:
        at = lake.at()
        total = sum(pc.sum(at.state(t.table).arrow()["CENTS"]).as_py() for t in (ACCOUNTS, VAULTS))
        self.versions.add(at.gsn)
        if total != 2 * ROWS * CENTS:
            self.wrong.append(f"gsn {at.gsn}: the total is {total}")


def until(check: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
