"""`lowwater demo`: two redo threads into one ordered topic, with a stopped instance and kills on the way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from lowwater.bus.consumer import read_to_end
from lowwater.errors import LowwaterError
from lowwater.schemas import open_store
from lowwater.topics import positions
from lowwater_fleet import services
from lowwater_fleet.console import err, out, progress
from lowwater_fleet.doctor import examine
from lowwater_fleet.live import LivePicture
from lowwater_fleet.ordered import Ordered, read_ordered
from lowwater_fleet.runner import Runner, bank_config, fresh_directory, start_kafka, wait_for
from lowwater_fleet.verify import Decoder, Verdict, read_history, verify

SOURCE, GROUP = "rac", "bank"
RATE = 300


class Demo:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with progress() as say:
            self.kafka = start_kafka(directory, say)
        self.config = bank_config(directory, self.kafka.bootstrap_servers)
        self.runner = Runner(self.config, directory)
        self.picture = LivePicture(self.runner, SOURCE, GROUP)
        self._commands = directory / SOURCE / "commands"

    def start(self) -> None:
        """The cluster waits until capture has begun, so that the checker can ask for every transaction."""
        self._commands.parent.mkdir(parents=True)
        self.command(do="pause")
        options = ["--threads", "2", "--rate", str(RATE), "--transactions", "0", "--history", "--stay"]
        shares = ["--rollbacks", "0.05", "--savepoints", "0.05", "--xa", "0.05", "--log-bytes", "1000000"]
        self.runner.add(services.simulated_cluster(self._commands.parent, self.directory / "logs", *options, *shares))
        self.runner.services["cluster"].start()
        wait_for("the cluster", (self._commands.parent / "control.json").exists, 30)
        self.runner.start()
        wait_for("the first position", self._is_captured, 60)
        self.command(do="resume")

    def _is_captured(self) -> bool:
        try:
            return bool(read_to_end(self.runner.settings.kafka, positions(SOURCE))[0])
        except LowwaterError:
            return False  # the topic is not there yet

    def command(self, **command: Any) -> None:
        with self._commands.open("a") as file:
            file.write(json.dumps(command) + "\n")

    def play(self, live: Live, caption: str, seconds: float) -> None:
        """Some time passes; the table moves, and what has died is started again."""
        self.picture.caption = caption
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.runner.supervise()
            live.update(self.picture.draw())
            time.sleep(0.2)
        if not out.is_terminal:
            err.print(f"· {caption}: {self.picture.line()}", markup=False)

    def finish(self, live: Live) -> None:
        self.picture.caption = "the bank closes; everything that was committed is released"
        self.command(do="pause")
        time.sleep(1)
        wanted = len(self.history())

        def is_done() -> bool:
            self.runner.supervise()
            live.update(self.picture.draw())
            return bool(self.runner.status(f"merger-{GROUP}").get("next_gsn", 0) > wanted)

        wait_for(f"{wanted} transactions", is_done, 60)

    def history(self) -> dict[Any, dict[str, Any]]:
        return read_history(self._commands.parent / "history.jsonl")

    def check(self) -> tuple[Verdict, list[Ordered], Decoder]:
        store = open_store(self.runner.settings)
        ordered = read_ordered(self.runner.settings.kafka, store.record_codec(), GROUP)
        decode = Decoder(store)
        return verify(ordered, {SOURCE: self.history()}, decode), ordered, decode

    def stop(self) -> None:
        self.runner.stop()
        self.kafka.stop()


def _acts(demo: Demo, live: Live) -> None:
    demo.play(live, "two instances commit; the merger releases in one order", 10)
    demo.command(do="stop", thread=2)
    demo.play(live, "instance 2 stopped without a word: its thread holds the watermark, what commits on 1 waits", 9)
    demo.command(do="restart", thread=2)
    demo.play(live, "instance 2 is back: what waited is released", 6)
    demo.runner.services[f"merger-{GROUP}"].kill()
    demo.play(live, "the merger was killed with -9 and starts again from its progress", 8)
    demo.runner.services[f"extractor-{SOURCE}"].kill()
    demo.play(live, "the extractor was killed with -9 and starts again from its position", 8)


def _total(ordered: list[Ordered], decode: Callable[[bytes], list[Any]]) -> tuple[int, int]:
    """(versions whose total was looked at, versions where it was not what it is at the end)"""
    balances: dict[int, int] = {}
    totals: list[tuple[int, int]] = []
    total = 0
    for transaction in ordered:
        for value in transaction.values:
            _, table, _, after = decode(value)
            if table == "BANK.ACCOUNTS":
                total += after[2] - balances.get(after[0], 0)
                balances[after[0]] = after[2]
        totals.append((len(balances), total))
    full = [t for n, t in totals if n == len(balances)]
    return len(full), sum(t != full[-1] for t in full)


def demo(
    directory: Annotated[Path, typer.Option(help="its data; emptied first")] = Path(".lowwater/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="leave it running at the end, until Ctrl-C")] = False,
) -> None:
    """Show it: a simulated cluster, kills on the way, and a check of every transaction at the end."""
    directory = directory.absolute()
    # the demo takes free ports of its own
    failed = [f for f in examine(directory / "kafka") if not f.ok and f.name != "port"]
    for finding in failed:
        err.print(f"[red]✗[/red] {finding.name}: {finding.found} → {finding.fix}")
    if failed:
        raise typer.Exit(1)
    show = Demo(fresh_directory(directory))
    try:
        show.start()
        with Live(console=out, refresh_per_second=5, transient=not out.is_terminal) as live:
            _acts(show, live)
            show.finish(live)
        verdict, ordered, decode = show.check()
        _report(show, verdict, ordered, decode)
        if keep:
            out.print("Running until Ctrl-C.")
            while True:
                show.runner.supervise()
                time.sleep(0.5)
    finally:
        show.stop()
    if not verdict.is_good:
        raise typer.Exit(1)


def _report(show: Demo, verdict: Verdict, ordered: list[Ordered], decode: Decoder) -> None:
    versions, wrong = _total(ordered, decode)
    changes = sum(len(transaction.values) for transaction in ordered)
    out.print(f"\n[bold {'green' if verdict.is_good and not wrong else 'red'}]{verdict}[/]")
    for line in verdict.details:
        out.print(f"  {line}")
    out.print(f"{changes:,} changes; the bank's total was the same at {versions - wrong:,} of {versions:,} versions\n")
    last = ordered[-1]
    if last.commit is not None:
        out.print(f"The last one, gsn {last.gsn}: thread {last.commit.thread}, SCN {last.commit.order.major}")
    for value in last.values:
        op, table, before, after = decode(value)
        out.print(f"  {op} {table} {before or ''} → {after}")
    port = show.runner.settings.control.port
    out.print("\nTo try next:")
    out.print("  make demo KEEP=1, and in another terminal:")
    out.print(f"  .venv/bin/lowwater group status bank --config {show.config}")
    out.print(f"  .venv/bin/lowwater thread exclude rac 2 --reason 'node is down' --config {show.config}")
    out.print(
        f"  .venv/bin/python examples/consumer.py --bootstrap-servers {show.kafka.bootstrap_servers} "
        f"--registry http://127.0.0.1:{port} --max 5"
    )
