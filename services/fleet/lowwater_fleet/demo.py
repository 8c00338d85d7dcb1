"""`lowwater demo`: two redo threads into one order and one lake, with a stopped instance and kills on the way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lowwater.bus.consumer import read_to_end
from lowwater.errors import LowwaterError
from lowwater.topics import positions
from lowwater_fleet import services
from lowwater_fleet.console import err, out, progress
from lowwater_fleet.doctor import examine
from lowwater_fleet.doctor_cli import print_findings
from lowwater_fleet.kafka import EmbeddedKafka
from lowwater_fleet.live import Figures, Screen, Watch
from lowwater_fleet.runner import Runner, bank_config, end_as_by_ctrl_c, fresh_directory, wait_for
from lowwater_fleet.verify import read_history

SOURCE, GROUP = "rac", "bank"
EXTRACTOR, MERGER, SPARK = f"extractor-{SOURCE}", f"merger-{GROUP}", f"spark-{GROUP}"
RATE = 300
#: of the bank that is left running
RATE_KEPT = 50
#: on a slow machine, a process that starts and catches up
SECONDS_MAX = 300.0


class Demo:
    def __init__(self, directory: Path, kafka: EmbeddedKafka) -> None:
        self.directory = directory
        self.kafka = kafka
        self.config = bank_config(directory, kafka.bootstrap_servers)
        self.lake = directory / "lake"
        self.runner = Runner(self.config, directory)
        self.screen = Screen(Watch(self.runner, SOURCE, GROUP))
        #: what was not as it must be on the way
        self.problems: list[str] = []
        self._commands = directory / SOURCE / "commands"

    def run(self, keep: bool) -> bool:
        """Whether all was well."""
        try:
            with self.screen:
                self.start()
                self.acts()
                self.finish()
            is_good = self.report(keep)
            if keep:
                self.stay()
            return is_good
        finally:
            with progress() as say:
                say("stopping the services")
                self.runner.stop()

    def start(self) -> None:
        """The cluster waits until capture has begun, so that the checker can ask for every transaction."""
        self.screen.say("Spark starts, which takes some ten seconds; the others do not wait for it")
        self.runner.services[SPARK].start()
        self._commands.parent.mkdir(parents=True)
        self.command(do="pause")
        options = ["--threads", "2", "--rate", str(RATE), "--transactions", "0", "--history", "--stay"]
        shares = ["--rollbacks", "0.05", "--savepoints", "0.05", "--xa", "0.05", "--log-bytes", "1000000"]
        self.runner.add(services.simulated_cluster(self._commands.parent, self.directory / "logs", *options, *shares))
        self.runner.services["cluster"].start()
        self._wait_for("the cluster", (self._commands.parent / "control.json").exists)
        self.runner.start()
        self._wait_for("the first position", self._is_captured)
        self.command(do="resume")

    def _wait_for(self, what: str, check: Callable[[], bool]) -> None:
        hint = f"the services' logs are in {self.directory / 'logs'}"
        wait_for(what, check, SECONDS_MAX, each=self._tick, hint=hint)

    def _tick(self) -> Figures:
        """What has died is started again, and the table moves."""
        self.runner.supervise()
        return self.screen.show()

    def _is_captured(self) -> bool:
        try:
            return bool(read_to_end(self.runner.settings.kafka, positions(SOURCE))[0])
        except LowwaterError:
            return False  # the topic is not there yet

    def command(self, **command: Any) -> None:
        with self._commands.open("a") as file:
            file.write(json.dumps(command) + "\n")

    def play(self, caption: str, seconds: float, until: Callable[[Figures], bool] = lambda _: True) -> Figures:
        """Some time passes, and more if what is waited for has not come."""
        self.screen.say(caption)
        begin = time.monotonic()
        while True:
            figures = self._tick()
            passed = time.monotonic() - begin
            if passed >= seconds and until(figures):
                self.screen.note(str(figures))
                return figures
            if passed > SECONDS_MAX:
                raise LowwaterError(
                    f"in {passed:.0f} s it did not come to pass: {caption}",
                    hint=figures.error or f"the services' logs are in {self.directory / 'logs'}",
                )
            time.sleep(0.2)

    def acts(self) -> None:
        self.play("two instances commit; the merger releases in one order; Spark lands it", 10, lambda f: f.landed > 0)
        self.command(do="stop", thread=2)
        caption = "instance 2 stopped without a word: its thread holds the watermark, what commits on 1 waits"
        held = self.play(caption, 12)
        if held.holder != "2" or not held.waiting:
            self.problems.append(f"thread 2 was stopped, and this was shown: {held}")
        self.command(do="restart", thread=2)
        self.play("instance 2 is back: what waited is released", 6, lambda f: f.released > held.released and not f.held)
        self.kill(MERGER, "the merger was killed with -9 and starts again from its progress", 8)
        self.kill(EXTRACTOR, "the extractor was killed with -9 and starts again from its position", 6)
        self.kill(SPARK, "Spark was killed with -9 and starts again from the last manifest", 10)

    def kill(self, name: str, caption: str, seconds: float) -> None:
        """It is back when it has done something that it had not done before."""
        self.runner.services[name].kill()
        before = self.screen.show()
        if name == SPARK:
            self.play(caption, seconds, lambda f: f.landed > before.landed)
        else:
            self.play(caption, seconds, lambda f: f.released > before.released)

    def finish(self) -> None:
        self.command(do="pause")
        self.play("the bank closes", 1)
        wanted = len(self.history())
        self.play(f"all of its {wanted:,} transactions are released and land", 0, lambda f: f.landed >= wanted)

    def history(self) -> dict[Any, dict[str, Any]]:
        return read_history(self._commands.parent / "history.jsonl")

    def report(self, keep: bool) -> bool:
        # pyarrow and duckdb take a while: other commands need not load them
        from lowwater.lake import Lake
        from lowwater_fleet.demo_lake import check, print_query, print_result

        lake = Lake.open(str(self.lake))
        with progress() as say:
            checked = check(lake, {SOURCE: self.history()}, say)
        checked.problems.extend(self.problems)
        print_result(checked)
        print_query(lake)
        self._print_what_to_try(lake.gsn, keep)
        out.print(f"\nAll of it took {self.screen.seconds:.0f} s.")
        return checked.is_good

    def _print_what_to_try(self, gsn: int, keep: bool) -> None:
        where, config = f"--lake {_short(self.lake)}", f"--config {_short(self.config)}"
        by_branch = "SELECT BRANCH, sum(BALANCE_CENTS) FROM accounts GROUP BY 1 ORDER BY 1"
        lines = [
            f"lowwater lake tables {where}",
            f"lowwater lake log {where} --limit 5",
            f"lowwater lake state accounts {where} --as-of {gsn // 2} --where 'ID < 5'",
            f"lowwater lake show transfers {where} --changes --after {gsn - 3}",
            f'lowwater lake sql "{by_branch}" {where} --as-of {gsn // 2}',
            f"lowwater lake verify {where}",
        ]
        running = [
            f"lowwater group status {GROUP} {config}",
            f"lowwater thread exclude {SOURCE} 2 --reason 'node is down' {config}",
            f"python examples/consumer.py --bootstrap-servers {self.kafka.bootstrap_servers} "
            f"--registry http://127.0.0.1:{self.runner.settings.control.port} --max 5",
        ]
        out.print("\nTo try next" + (", in another terminal:" if keep else ":"), style="bold")
        for line in [*lines, *(running if keep else [])]:
            out.print(f"  .venv/bin/{line}", markup=False)
        if not keep:
            out.print("  make demo KEEP=1     leaves it running, and says how to look at it and how to read its topic")

    def stay(self) -> None:
        self.command(do="rate", value=RATE_KEPT)
        self.command(do="resume")
        try:
            with self.screen:
                self.screen.say("the bank is open again; Ctrl-C ends it")
                while True:
                    self._tick()
                    time.sleep(0.5)
        except KeyboardInterrupt:
            pass


def _short(path: Path) -> str:
    """As one would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def demo(
    directory: Annotated[Path, typer.Option(help="its data; emptied first")] = Path(".lowwater/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="leave it running at the end, until Ctrl-C")] = False,
) -> None:
    """Show it: a simulated cluster, kills on the way, and a check of every transaction in the lake at the end."""
    directory = directory.absolute()
    findings = examine(directory / "kafka", takes_free_ports=True)
    print_findings(findings)
    if not all(finding.ok for finding in findings):
        err.print("this machine lacks something; with it, run the demo again", style="red")
        raise typer.Exit(1)
    end_as_by_ctrl_c()
    kafka = EmbeddedKafka(fresh_directory(directory) / "kafka", port=0)
    try:
        with progress() as say:
            kafka.start(progress=say)
        is_good = Demo(directory, kafka).run(keep)
    finally:
        kafka.stop()
    if not is_good:
        raise typer.Exit(1)
