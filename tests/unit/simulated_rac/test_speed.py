"""How fast a prepared log is read. By hand: `python …/test_speed.py [transactions] [transfers]`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.records.ids import SchemaId
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.source import SimulatedRac, SimulatedRacConfig
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions


class NoEncoder:
    header = b""

    def __init__(self, table: TableSchema) -> None:
        self.table = table

    def body(self, op: str, before: Any, after: Any, ts_us: int, unchanged: Any = ()) -> bytes:
        return b""

    def insert(self, row: Any, ts_us: int) -> bytes:
        return b""

    update = delete = insert


class NoEncoders:
    """What reading and assembly cost by themselves."""

    notes: Mapping[str, bytes] = MappingProxyType({})
    rules = ColumnRules()

    def encoder(self, table: TableSchema) -> Any:
        return NoEncoder(table)

    def known(self) -> list[str]:
        return []

    def last_header(self, table: str) -> bytes | None:
        return None

    def versioned(self, table: TableSchema) -> TableSchema:
        return table


class RealEncoders:
    notes: Mapping[str, bytes] = MappingProxyType({})
    rules = ColumnRules()

    def encoder(self, table: TableSchema) -> TableEncoder:
        return TableEncoder(table, SchemaId(1))

    def known(self) -> list[str]:
        return []

    def last_header(self, table: str) -> bytes | None:
        return None

    def versioned(self, table: TableSchema) -> TableSchema:
        return table


def measure(directory: Path, transactions: int, transfers: int) -> dict[str, tuple[int, float]]:
    """Seconds of processor time and changes, by encoder."""
    cluster = Cluster(directory, 2, tables=BANK, log_bytes=64 << 20, keep_history=False)
    source = SimulatedRac("bench", SimulatedRacConfig(directory=directory))
    begin = source.stream({}, {}, NoEncoders()).poll(frozenset()).marks
    resumes = {thread: mark.resume for thread, mark in begin.items()}
    bank = Bank(cluster, BankOptions(accounts=10_000, transactions=transactions, transfers=transfers))
    for _ in bank.steps(flush=False):
        pass
    cluster.heartbeat()
    found: dict[str, tuple[int, float]] = {}
    for name, encoders in (("no encoder", NoEncoders()), ("encoder", RealEncoders())):
        stream = source.stream(resumes, {}, encoders)
        changes, started, ended = 0, time.process_time(), False
        while not ended:
            polled = stream.poll(frozenset())
            for transaction in polled.transactions:
                for _ in transaction.changes:
                    changes += 1
            ended = all(mark.at_end for mark in polled.marks.values())
        found[name] = changes, time.process_time() - started
        stream.close()
    assert found["encoder"][0] == bank.changes
    return found


def test_it_measures(tmp_path: Path) -> None:
    assert measure(tmp_path, transactions=100, transfers=2)["no encoder"][0] == 10_600


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[1:]] or [60_000, 1]
    with tempfile.TemporaryDirectory() as directory:
        for name, (changes, seconds) in measure(Path(directory), *sizes).items():
            print(f"{name}: {changes} changes, {changes / seconds:,.0f}/s, {seconds / changes * 1e6:.2f} µs each")
