"""The bank keeps its totals; a seed gives the same files; the process does as it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.simulated_rac.test_kit import Runtime, check_all

from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_devkit.simulated_rac.script import Script
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions

MODULE = "lowwater_devkit.simulated_rac"


def check_bank(transactions: list[list[Any]], accounts: int, first_cents: int) -> None:
    """At every commit: the same sum, and each balance is what the transfers make it."""
    balances: dict[int, int] = {}
    by_transfers: dict[int, int] = {}
    for changes in transactions:
        for _, table, before, after in changes:
            if table == "BANK.ACCOUNTS":
                if before is None:
                    by_transfers[after[0]] = after[2]
                else:
                    assert balances[before[0]] == before[2]
                balances[after[0]] = after[2]
            else:
                _, source, target, cents, *_ = after
                by_transfers[source] -= cents
                by_transfers[target] += cents
        assert balances == by_transfers
        if len(balances) == accounts:
            assert sum(balances.values()) == accounts * first_cents


@pytest.mark.parametrize("transfers", [1, 4])
def test_the_banks_totals_never_change(tmp_path: Path, transfers: int) -> None:
    cluster = Cluster(tmp_path, 3, tables=BANK, log_bytes=1 << 15)
    options = BankOptions(
        accounts=50, transactions=150, transfers=transfers, rollbacks=0.2, savepoints=0.2, xa=0.2, chunk=20
    )
    bank = Bank(cluster, options)
    runtime = Runtime(tmp_path)
    runtime.poll()
    for number, _ in enumerate(bank.steps(flush=False)):
        if number % 40 == 0:
            runtime.poll()
        if number == 200:
            cluster.flush()
            cluster.stop(2)
        if number == 260:
            cluster.recover(2, by=1)
        if number == 300:
            cluster.open_thread(2)
            cluster.close_thread(3)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    order = {txid: number for number, txid in enumerate(runtime.released())}
    released = sorted(zip(runtime.txids(), runtime.contents, strict=True), key=lambda published: order[published[0]])
    check_bank([changes for _, changes in released], 50, options.first_balance_cents)
    assert bank.committed > 100


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_seed_gives_the_same_files(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        cluster = Cluster(tmp_path / name, 2, tables=BANK, log_bytes=4000, history_file=True)
        script = Script(cluster, seed=5)
        for _ in range(200):
            script.step()
        for _ in Bank(cluster, BankOptions(accounts=10, transactions=20, seed=3)).steps():
            pass
        script.finish()
        cluster.close()
        made.append(files(tmp_path / name))
    assert made[0] == made[1]
    lines = [json.loads(line) for line in made[0]["history.jsonl"].decode().splitlines()]
    assert [line["scn"] for line in lines] == [entry.scn for entry in cluster.history]


def start(directory: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", MODULE, "--directory", str(directory), "--accounts", "20", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(what: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_the_process_runs_to_its_end_and_refuses_a_used_directory(tmp_path: Path) -> None:
    process = start(tmp_path, "--transactions", "200", "--rate", "0", "--history")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "200 transactions" in output
    assert len(Layout(tmp_path).history.read_text().splitlines()) == 201
    again = start(tmp_path)
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 1
    assert "already contains a cluster" in output


def test_the_process_takes_commands_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    process = start(tmp_path, "--transactions", "0", "--rate", "300", "--history", "--heartbeat-s", "0.1")
    layout = Layout(tmp_path)
    try:
        wait_for(lambda: layout.history.exists() and layout.history.read_text().count("\n") > 20)
        commands = [
            {"do": "stop", "thread": 2},
            {"do": "recover", "thread": 2, "by": 1},
            {"do": "open", "thread": 2},
            {"do": "add", "thread": 3},
            {"do": "switch", "thread": 1},
            {"do": "nonsense"},
            {"do": "close", "thread": 3},
        ]
        with layout.commands.open("a") as file:
            for command in commands:
                file.write(json.dumps(command) + "\n")

        def closed() -> bool:
            threads = json.loads(layout.control.read_bytes())["threads"]
            return "3" in threads and threads["3"]["state"] == "closed"

        wait_for(closed)
        before = layout.history.read_text().count("\n")
        wait_for(lambda: layout.history.read_text().count("\n") > before + 20)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "nonsense" in output
    assert output.count("done") == 6
    control = json.loads(layout.control.read_bytes())
    assert {number: info["state"] for number, info in control["threads"].items()} == {
        "1": "open",
        "2": "open",
        "3": "closed",
    }
