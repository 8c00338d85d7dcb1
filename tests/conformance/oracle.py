"""The conformance kit of `oracle`: redo files without a database, as the simulated cluster writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.kit import PastChange, PastTransaction

from lowwater_extractor.sources.oracle import dictionary_file
from lowwater_extractor.sources.oracle.discovery import txid_text
from lowwater_extractor.sources.simulated_rac.cluster import Cluster
from lowwater_extractor.sources.simulated_rac.log import Layout
from lowwater_extractor.sources.simulated_rac.view import SimulatedView
from lowwater_extractor.sources.simulated_rac.workload import BANK, Bank, BankOptions

THREADS = 2


class RedoFiles:
    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory, THREADS, tables=BANK, format="redo", log_bytes=40_000, lwn_bytes=4000)
        dictionary_file.save(SimulatedView("files", Layout(directory)).dictionary(), directory / "dictionary.json")
        options = BankOptions(accounts=60, transactions=0, transfers=3, chunk=30, rollbacks=0.1, savepoints=0.1)
        self._steps = Bank(self._cluster, options).steps()

    def work(self, transactions: int) -> None:
        wanted = len(self._cluster.history) + transactions
        while len(self._cluster.history) < wanted:
            next(self._steps)
        for _ in range(2):
            self._cluster.heartbeat()

    def history(self) -> list[PastTransaction]:
        return [
            PastTransaction(entry.thread, txid_text(entry.xid), tuple(PastChange(*change) for change in entry.changes))
            for entry in self._cluster.history
        ]

    def close(self) -> None:
        self._cluster.close()


class OracleKit:
    kind = "oracle"
    threads = THREADS
    begins_now = False

    def create(self, directory: Path) -> RedoFiles:
        return RedoFiles(directory)

    def config(self, directory: Path) -> dict[str, Any]:
        return {
            "tables": ["BANK.*"],
            "threads": list(range(1, THREADS + 1)),
            "redo": {"online": [str(directory / "online")], "archive": [str(directory / "archive")]},
            "dictionary": str(directory / "dictionary.json"),
            "read_bytes": 3000,
            "spill_bytes_max": 500,
            "spill_directory": str(directory / "spill"),
        }

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "tables": {k: v for k, v in good.items() if k != "tables"},
            "threads": {**good, "threads": []},
            "capture": {**good, "capture": "by hand"},
            "colour": {**good, "colour": "blue"},
        }

    def tables(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return {table.full_name: (tuple(c.name for c in table.columns), table.key) for table in BANK}

    def stop(self) -> None:
        """They share nothing."""
