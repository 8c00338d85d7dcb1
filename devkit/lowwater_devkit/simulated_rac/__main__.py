"""Runs a simulated cluster with the bank workload in its own process, in real time.

Commands are lines of JSON that are appended to the file `commands` in the cluster's directory:

    {"do": "stop", "thread": 2}            the instance crashes (kill -9)
    {"do": "restart", "thread": 2}         … and restarts
    {"do": "recover", "thread": 2, "by": 1}  … or another instance closes its thread and rolls back its transactions
    {"do": "close", "thread": 2}           a clean shutdown
    {"do": "open", "thread": 2}            … and a start
    {"do": "add", "thread": 3}             a new thread
    {"do": "switch", "thread": 1}          a log switch
    {"do": "idle", "thread": 1}            no workload on this instance, only heartbeats
    {"do": "busy", "thread": 1}            … workload again
    {"do": "pause"}, {"do": "resume"}      the workload
    {"do": "rate", "value": 500}           transactions per second, 0 for no limit
    {"do": "delete_archives", "thread": 1, "below": 7}
    {"do": "delete_acknowledged"}          the logs that the extractor has acknowledged
    {"do": "quit"}
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lowwater.errors import ConfigError, LowwaterError
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions

_PROGRESS_S = 5.0
_COMMANDS_S = 0.05
_DONE = object()


class Runner:
    """The main loop: workload at the configured rate, flushes, heartbeats and commands, until `quit`."""

    def __init__(
        self, cluster: Cluster, bank: Bank, *, rate: float, flush_s: float, heartbeat_s: float, stay: bool
    ) -> None:
        self.cluster = cluster
        self.bank = bank
        self.rate = rate
        self.paused = False
        self.quitting = False
        self._flush_s = flush_s
        self._heartbeat_s = heartbeat_s
        self._stay = stay
        self._commands_read = 0
        self._started = time.monotonic()
        #: start of the rate limit: number of transactions, and time
        self._from = (0, self._started)
        self._next: dict[str, float] = {}
        self._written: dict[int, tuple[tuple[int, int], float]] = {}

    def run(self) -> None:
        steps = self.bank.steps(flush=False)
        working = True
        while not self.quitting:
            if self._due("commands", _COMMANDS_S):
                self._read_commands()
            if self._due("flush", self._flush_s):
                self.cluster.flush()
                self._heartbeats()
            if self._due("progress", _PROGRESS_S):
                self._progress()
            if not working and not self._stay:
                break
            if not working or self.paused or self._ahead():
                time.sleep(min(0.001, self._flush_s))
                continue
            # without a rate limit the clock is read only every 100 steps
            for _ in range(1 if self.rate else 100):
                working = next(steps, _DONE) is not _DONE
            if not working:
                self.cluster.flush()
                self.cluster.heartbeat()
        self.cluster.flush()
        self.cluster.heartbeat()
        self._progress()

    def _due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every_s
        return True

    def _ahead(self) -> bool:
        if not self.rate:
            return False
        started, since = self._from
        return self.bank.started - started >= (time.monotonic() - since) * self.rate

    def _heartbeats(self) -> None:
        """Write a heartbeat for threads that have written nothing for `heartbeat_s`."""
        now = time.monotonic()
        for number, instance in self.cluster.instances.items():
            end = (instance.sequence, instance.offset)
            before, since = self._written.get(number, ((0, 0), now))
            if before != end:
                self._written[number] = (end, now)
            elif now - since >= self._heartbeat_s:
                self.cluster.heartbeat(number)

    def _progress(self) -> None:
        bank, seconds = self.bank, max(0.001, time.monotonic() - self._started)
        threads = ", ".join(
            f"{number} {'stopped' if each.state == 'open' and not each.alive else each.state} log {each.sequence}"
            for number, each in self.cluster.instances.items()
        )
        typer.echo(
            f"SCN {self.cluster.scn}: {bank.committed} transactions, {bank.changes} changes, "
            f"{bank.committed / seconds:.0f} transactions/s; threads: {threads}"
        )

    # --- commands

    def _read_commands(self) -> None:
        path = self.cluster.layout.commands
        if not path.exists():
            return
        text = path.read_text()
        # a line that is still being written has no newline yet
        whole = text[self._commands_read : text.rfind("\n") + 1]
        self._commands_read += len(whole)
        for line in whole.splitlines():
            if line.strip():
                self._command(line)

    def _command(self, line: str) -> None:
        try:
            command = json.loads(line)
            done = self._known()[command.pop("do")](**command)
        except (ValueError, KeyError, TypeError) as error:
            typer.echo(f"command {line!r} refused: {type(error).__name__}: {error}", err=True)
            return
        typer.echo(f"command {line} done{f': {done}' if done else ''}")

    def _known(self) -> dict[str, Callable[..., Any]]:
        cluster = self.cluster
        return {
            "stop": self._stop,
            "restart": cluster.restart,
            "recover": cluster.recover,
            "close": cluster.close_thread,
            "open": cluster.open_thread,
            "add": cluster.add_thread,
            "switch": cluster.switch,
            "idle": self.bank.idle.add,
            "busy": self.bank.idle.discard,
            "pause": lambda: setattr(self, "paused", True),
            "resume": self._resume,
            "rate": self._set_rate,
            "delete_archives": cluster.delete_archives,
            "delete_acknowledged": cluster.delete_acknowledged,
            "quit": self.quit,
        }

    def _stop(self, thread: int) -> None:
        # the bank counts a commit as done when it is in the buffer, so the buffer must not be lost
        self.cluster.flush(thread)
        self.cluster.stop(thread)

    def _resume(self) -> None:
        self.paused = False
        self._set_rate(self.rate)

    def _set_rate(self, value: float) -> None:
        self.rate = value
        self._from = (self.bank.started, time.monotonic())

    def quit(self) -> None:
        self.quitting = True


def run(
    directory: Annotated[Path, typer.Option(help="directory of the logs; must not contain a cluster yet")],
    threads: Annotated[int, typer.Option(min=1)] = 2,
    seed: Annotated[int, typer.Option()] = 1,
    accounts: Annotated[int, typer.Option(min=2)] = 1000,
    transactions: Annotated[int, typer.Option(min=0, help="0: no end")] = 10_000,
    transfers: Annotated[int, typer.Option(min=1, help="transfers in one transaction, 3 changes each")] = 1,
    rate: Annotated[float, typer.Option(min=0, help="transactions per second; 0: no limit")] = 1000.0,
    sessions: Annotated[int, typer.Option(min=1, help="transactions that are open at the same time")] = 8,
    rollbacks: Annotated[float, typer.Option(min=0, max=1, help="share of transactions")] = 0.0,
    savepoints: Annotated[float, typer.Option(min=0, max=1, help="share of transfers")] = 0.0,
    xa: Annotated[float, typer.Option(min=0, max=1, help="share of transactions")] = 0.0,
    groups: Annotated[int, typer.Option(min=2, help="log groups of a thread")] = 3,
    log_bytes: Annotated[int, typer.Option(min=4096)] = 16 << 20,
    flush_ms: Annotated[float, typer.Option(min=0.1, help="maximum time of a commit in the log buffer")] = 5.0,
    heartbeat_s: Annotated[float, typer.Option(min=0.01)] = 3.0,
    history: Annotated[bool, typer.Option(help="append each commit to history.jsonl, for a checker")] = False,
    stay: Annotated[bool, typer.Option(help="keep running with heartbeats when the workload is done")] = False,
) -> None:
    """Run a simulated RAC cluster with the bank workload."""
    layout = Layout(directory)
    if layout.control.exists():
        raise ConfigError(
            f"{directory} already contains a cluster, and the simulation cannot continue one",
            hint="give another directory, or remove this one",
        )
    cluster = Cluster(
        directory,
        threads,
        tables=BANK,
        groups=groups,
        log_bytes=log_bytes,
        now_us=lambda: time.time_ns() // 1000,
        keep_history=history or savepoints > 0,
        history_file=history,
        history_in_memory=False,
    )
    options = BankOptions(
        accounts=accounts,
        transactions=transactions,
        transfers=transfers,
        sessions=sessions,
        rollbacks=rollbacks,
        savepoints=savepoints,
        xa=xa,
        seed=seed,
    )
    runner = Runner(
        cluster,
        Bank(cluster, options),
        rate=rate,
        flush_s=flush_ms / 1000,
        heartbeat_s=heartbeat_s,
        stay=stay,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.quit())
    try:
        runner.run()
    finally:
        cluster.close()


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)
    try:
        app()
    except LowwaterError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
