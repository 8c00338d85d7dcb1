"""`lowwater demo`: captures a two-thread cluster and other databases into one lake, while services are killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from lowwater.errors import LowwaterError
from lowwater.kafka.consumer import read_to_end
from lowwater.kafka.topics import positions
from lowwater_devkit.demo import pgbench as demo_postgres
from lowwater_devkit.demo import shops as demo_shops
from lowwater_devkit.demo.bank import bank_config, simulated_cluster
from lowwater_devkit.demo.pgbench import DemoPostgres
from lowwater_devkit.demo.shops import Shop
from lowwater_devkit.verify.history import read_history
from lowwater_fleet.cli.console import err, out, progress
from lowwater_fleet.cli.doctor import examine
from lowwater_fleet.cli.doctor_command import print_findings
from lowwater_fleet.cli.live import Figures, Screen, Watch
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.runner import Runner, end_as_by_ctrl_c, fresh_directory, wait_for

SOURCE, GROUP = "rac", "bank"
MERGER, SPARK = f"merger-{GROUP}", f"spark-{GROUP}"
RATE = 200
#: transactions per second of the bank with --keep
RATE_KEPT = 50
#: time limit of each step, for slow machines
SECONDS_MAX = 300.0
#: committed in PostgreSQL at the end
LAST_WORD = "closed"


class Demo:
    def __init__(self, directory: Path, kafka: EmbeddedKafka, postgres: DemoPostgres | None, shops: list[Shop]) -> None:
        self.directory = directory
        self.kafka = kafka
        self.postgres = postgres
        self.shops = shops
        beside = {} if postgres is None else {demo_postgres.SOURCE: postgres.source_config()}
        beside |= {shop.source: shop.source_config() for shop in shops}
        self.config = bank_config(directory, kafka.bootstrap_servers, beside=beside)
        self.lake = directory / "lake"
        self.runner = Runner(self.config, directory)
        self.sources = list(self.runner.settings.sources)
        self.screen = Screen(Watch(self.runner, self.sources, GROUP))
        #: problems found while the demo ran
        self.problems: list[str] = []
        self._commands = directory / SOURCE / "commands"

    def run(self, keep: bool) -> bool:
        """Run the demo. Returns whether all checks passed."""
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
        """Start all services. The cluster is paused until capture has started, so that every transaction is checked."""
        self.screen.say("Spark starts, which takes about ten seconds; the other services do not wait for it")
        self.runner.services[SPARK].start()
        self._commands.parent.mkdir(parents=True)
        self.command(do="pause")
        options = ["--threads", "2", "--rate", str(RATE), "--transactions", "0", "--history", "--stay"]
        shares = ["--rollbacks", "0.05", "--savepoints", "0.05", "--xa", "0.05", "--log-bytes", "1000000"]
        self.runner.add(simulated_cluster(self._commands.parent, self.directory / "logs", *options, *shares))
        self.runner.services["cluster"].start()
        self._wait_for("the cluster", (self._commands.parent / "control.json").exists)
        if self.postgres is not None:
            # before capture starts, so that tables change while they are copied
            self.runner.add(self.postgres.pgbench(self.directory / "logs")).start()
        for shop in self.shops:
            shop.begin()
        self.runner.start()
        self._wait_for("the first position", self._is_captured)
        self.command(do="resume")

    def _wait_for(self, what: str, check: Callable[[], bool]) -> None:
        hint = f"the services' logs are in {self.directory / 'logs'}"
        wait_for(what, check, SECONDS_MAX, each=self._tick, hint=hint)

    def _tick(self) -> Figures:
        """Restart failed services, and update the display."""
        self.runner.supervise()
        return self.screen.show()

    def _is_captured(self) -> bool:
        try:
            return all(read_to_end(self.runner.settings.kafka, positions(source))[0] for source in self.sources)
        except LowwaterError:
            return False  # the topic does not exist yet

    def command(self, **command: Any) -> None:
        with self._commands.open("a") as file:
            file.write(json.dumps(command) + "\n")

    def play(self, caption: str, seconds: float, until: Callable[[Figures], bool] = lambda _: True) -> Figures:
        """Run for at least `seconds`, until `until` is true. Raises LowwaterError after SECONDS_MAX."""
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
                    f"not reached within {passed:.0f} s: {caption}",
                    hint=figures.error or f"the services' logs are in {self.directory / 'logs'}",
                )
            time.sleep(0.2)

    def acts(self) -> None:
        if self.postgres is None:
            caption = "two instances commit; the merger releases in one order; Spark lands the transactions"
            self.play(caption, 10, lambda f: f.landed > 0)
        else:
            others = " and ".join(["pgbench", *(f"a shop on {shop.source}" for shop in self.shops)])
            self.play(f"two instances commit, and so do {others}; the merger releases all of it in one order", 6)
            self.copy()
        self.command(do="stop", thread=2)
        others = "on 1 and elsewhere" if len(self.sources) > 1 else "on 1"
        caption = f"instance 2 stopped silently: {SOURCE}'s thread 2 holds the watermark, commits {others} wait"
        held = self.play(caption, 12)
        if held.holder != (SOURCE, "2") or not held.waiting:
            self.problems.append(f"thread 2 was stopped, but is not shown as the holder: {held}")
        self.command(do="restart", thread=2)
        self.play(
            "instance 2 is back: waiting transactions are released",
            6,
            lambda f: f.released > held.released and not f.held,
        )
        self.kill([MERGER], "the merger was killed with -9 and restarts from its progress", 8)
        extractors = [f"extractor-{source}" for source in self.sources]
        caption = "the extractor was killed with -9 and restarts from its position"
        if len(extractors) > 1:
            caption = f"all {len(extractors)} extractors were killed with -9 and restart, each from its position"
        self.kill(extractors, caption, 6)
        self.kill([SPARK], "Spark was killed with -9 and restarts from the last manifest", 10)

    def copy(self) -> None:
        from lowwater_devkit.demo.pgbench_books import is_copied

        caption = (
            "PostgreSQL's rows are older than its log: Spark copies them while pgbench runs, and lands transactions"
        )
        is_readable = _seldom(lambda: is_copied(str(self.lake)))
        self.play(caption, 5, lambda f: f.landed > 0 and is_readable(f))

    def kill(self, names: list[str], caption: str, seconds: float) -> None:
        """Kill the services, and wait until they have made progress again."""
        for name in names:
            self.runner.services[name].kill()
        before = self.screen.show()
        if SPARK in names:
            self.play(caption, seconds, lambda f: f.landed > before.landed)
        else:
            self.play(caption, seconds, lambda f: f.released > before.released)

    def finish(self) -> None:
        """Stop the workloads, and wait until everything that the databases have committed has landed."""
        self.command(do="pause")
        self.problems += demo_shops.settle(self.shops)
        if self.postgres is not None:
            self.runner.services["pgbench"].stop()
            self.postgres.close_the_books(LAST_WORD)
        self.play("the bank closes" + ("; pgbench stops" if self.postgres is not None else ""), 1)
        wanted = len(self.history())
        caption = f"all of its {wanted:,} transactions are released and land"
        if len(self.sources) > 1:
            caption += ", and those of the other databases"
        has_all = _seldom(lambda: self._has_landed(wanted))
        self.play(caption, 0, lambda f: f.landed >= max(wanted, f.released) and has_all(f))

    def _has_landed(self, wanted: int) -> bool:
        from lowwater.lake import Lake
        from lowwater_devkit.demo.lake import count_landed
        from lowwater_devkit.demo.pgbench_books import has_landed
        from lowwater_devkit.demo.shop_books import has_landed as have_shops_landed

        if self.postgres is not None and not has_landed(str(self.lake), LAST_WORD):
            return False
        if not have_shops_landed(str(self.lake), self.shops):
            return False
        return count_landed(Lake.open(str(self.lake)), SOURCE) >= wanted

    def history(self) -> dict[Any, dict[str, Any]]:
        return read_history(self._commands.parent / "history.jsonl")

    def report(self, keep: bool) -> bool:
        # imported here because pyarrow and duckdb load slowly, and other commands do not need them
        from lowwater.lake import Lake
        from lowwater_devkit.demo.lake import check, print_queries, print_result

        lake = Lake.open(str(self.lake))
        with progress() as say:
            checked = check(lake, SOURCE, self.history(), self.postgres, self.shops, say)
        checked.problems.extend(self.problems)
        print_result(checked)
        print_queries(lake, self.postgres is not None)
        self._print_what_to_try(lake.gsn, keep)
        out.print(f"\nThe demo took {self.screen.seconds:.0f} s.")
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
        if self.postgres is not None:
            lines.append(f"lowwater lake state pgbench_tellers {where} --where 'tid < 4'")
        running = [
            f"lowwater group status {GROUP} {config}",
            f"lowwater thread exclude {SOURCE} 2 --reason 'node is down' {config}",
            f"python examples/consumer.py --bootstrap-servers {self.kafka.bootstrap_servers} "
            f"--registry http://127.0.0.1:{self.runner.settings.control.port} --max 5",
        ]
        if self.postgres is not None:
            running.append(f"lowwater source check {demo_postgres.SOURCE} {config}")
        out.print("\nTo try next" + (", in another terminal:" if keep else ":"), style="bold")
        for line in [*lines, *(running if keep else [])]:
            out.print(f"  .venv/bin/{line}", markup=False)
        if not keep:
            out.print(
                "  make demo KEEP=1     leaves it running, and prints commands for its status and for reading its topic"
            )

    def stay(self) -> None:
        self.command(do="rate", value=RATE_KEPT)
        self.command(do="resume")
        if self.postgres is not None:
            self.runner.services["pgbench"].start()
        for shop in self.shops:
            shop.begin()
        try:
            with self.screen:
                self.screen.say("the bank is open again; Ctrl-C stops it")
                while True:
                    self._tick()
                    time.sleep(0.5)
        except KeyboardInterrupt:
            pass


def _seldom(check: Callable[[], bool], seconds: float = 1.0) -> Callable[[Figures], bool]:
    """Call `check` at most once in `seconds`, because it is more expensive than the services' figures."""
    next_at = 0.0

    def look(_: Figures) -> bool:
        nonlocal next_at
        if time.monotonic() < next_at:
            return False
        found = check()
        next_at = time.monotonic() + seconds
        return found

    return look


def _short(path: Path) -> str:
    """The path relative to the current directory, if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def demo(
    directory: Annotated[Path, typer.Option(help="data directory; is emptied first")] = Path(".lowwater/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="leave it running at the end, until Ctrl-C")] = False,
) -> None:
    """Run a demo: captures a simulated cluster and other databases, kills services, and checks every transaction."""
    directory = directory.absolute()
    findings = examine(directory / "kafka", takes_free_ports=True)
    print_findings(findings)
    if not all(finding.ok for finding in findings):
        err.print("checks of this machine failed; fix them, then run the demo again", style="red")
        raise typer.Exit(1)
    end_as_by_ctrl_c()
    demo_postgres.remove_old(directory)
    demo_shops.remove_old(directory)
    kafka = EmbeddedKafka(fresh_directory(directory) / "kafka", port=0)
    postgres = None if demo_postgres.lacking() else DemoPostgres(directory)
    with ExitStack() as stack:
        stack.callback(kafka.stop)
        with progress() as say:
            kafka.start(progress=say)
            if postgres is not None:
                stack.callback(postgres.remove)
                postgres.start(say)
            shops = demo_shops.open_shops(directory, say)
            for shop in shops:
                stack.callback(shop.remove)
        is_good = Demo(directory, kafka, postgres, shops).run(keep)
    if not is_good:
        raise typer.Exit(1)
