"""The conformance kit of `simulated_rac`: the bank on three redo threads, with all that its options can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.kit import PastChange, PastTransaction

from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions

THREADS = 3


class SimulatedRacDatabase:
    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory, THREADS, tables=BANK, log_bytes=8000, lwn_bytes=2000)
        options = BankOptions(accounts=60, transactions=0, transfers=3, chunk=30, rollbacks=0.1, savepoints=0.1, xa=0.2)
        self._bank = Bank(self._cluster, options)
        self._steps: Iterator[None] = self._bank.steps()

    def work(self, transactions: int) -> None:
        wanted = len(self._cluster.history) + transactions
        while len(self._cluster.history) < wanted:
            next(self._steps)
        for _ in range(2):
            self._cluster.heartbeat()

    def history(self) -> list[PastTransaction]:
        return [
            PastTransaction(entry.thread, entry.txid, tuple(PastChange(*change) for change in entry.changes))
            for entry in self._cluster.history
        ]

    def version(self) -> str:
        return "simulated"

    def close(self) -> None:
        self._cluster.close()


class SimulatedRacKit:
    kind = "simulated_rac"
    threads = THREADS
    begins_now = True

    def create(self, directory: Path) -> SimulatedRacDatabase:
        return SimulatedRacDatabase(directory)

    def config(self, directory: Path) -> dict[str, Any]:
        return {
            "directory": str(directory),
            "read_bytes": 3000,
            "spill_bytes_max": 500,
            "spill_directory": str(directory / "spill"),
        }

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "directory": {k: v for k, v in good.items() if k != "directory"},
            "read_bytes": {**good, "read_bytes": 0},
            "open_at_start": {**good, "open_at_start": "perhaps"},
            "colour": {**good, "colour": "blue"},
        }

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return {table.full_name: (tuple(c.name for c in table.columns), table.key) for table in BANK}

    def stop(self) -> None:
        """They share nothing."""
