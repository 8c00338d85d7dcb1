"""`lowwater up` and `lowwater down`: the fleet of a config on this machine, in the foreground or background."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from lowwater.errors import BusError, ConfigError, LowwaterError
from lowwater.runtime import config as configs
from lowwater_fleet.cli.console import err, out, progress
from lowwater_fleet.cli.contract import AsJson, say_json
from lowwater_fleet.runner.example import make_example
from lowwater_fleet.runner.process import Daemon
from lowwater_fleet.runner.runner import Runner, end_as_by_ctrl_c, wait_for
from lowwater_fleet.runner.services import get_json

DEFAULT_DIRECTORY = Path(".lowwater/up")
DETACH_SECONDS_MAX = 120.0
#: Spark may need some time to finish its batch
DOWN_SECONDS_MAX = 90.0

Directory = Annotated[Path, typer.Option("--directory", help="logs and state")]


def daemon(directory: Path) -> Daemon:
    """The `lowwater up` process of a directory."""
    return Daemon(directory / "up.pid", ("lowwater", "up"))


def up(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="the fleet's YAML file; default: an example, if installed"),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    control: Annotated[
        bool, typer.Option(help="follow the control topic: also run sources that are added there")
    ] = True,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="run in the background; `lowwater down` stops it")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a fleet on this machine. Services that fail are restarted; their logs are files."""
    directory = directory.absolute()
    (directory / "logs").mkdir(parents=True, exist_ok=True)
    pid = daemon(directory).pid
    if pid is not None and pid != os.getpid():
        raise ConfigError(f"a fleet already runs in {directory} (pid {pid})", hint="`lowwater down` stops it")
    if detach:
        _detach(config, directory, control, as_json)
        return
    end_as_by_ctrl_c()
    (directory / "up.pid").write_text(str(os.getpid()))
    try:
        _run(config, directory, control)
    finally:
        (directory / "up.pid").unlink(missing_ok=True)


def _run(config: Path | None, directory: Path, follows_control: bool) -> None:
    example = make_example(directory) if config is None else None
    config = example.config if example is not None else config
    assert config is not None
    runner = Runner(config, directory, follows_control)
    if example is not None:
        runner.add(example.writer)
    try:
        runner.start()
        out.print(f"running {', '.join(runner.services)}; logs in {directory / 'logs'}; Ctrl-C stops it")
        out.print(f"web page: http://{runner.settings.control.host}:{runner.settings.control.port}/")
        out.print(f"status: lowwater status --config {config}")
        while True:
            try:
                runner.supervise()
            except BusError as error:
                # the services wait for Kafka themselves, and without Kafka the desired state cannot change
                err.print(f"the control topic cannot be read: {error.what}", style="yellow", markup=False)
                time.sleep(5)
            time.sleep(0.3)
    except KeyboardInterrupt:
        err.print("stopping")
    finally:
        runner.stop()
        if example is not None:
            example.kafka.stop()


def _detach(config: Path | None, directory: Path, follows_control: bool, as_json: bool) -> None:
    given = [] if config is None else ["--config", str(config.absolute())]
    follow = "--control" if follows_control else "--no-control"
    command = [sys.executable, "-m", "lowwater_fleet.cli.main", "up", *given, "--directory", str(directory), follow]
    log = directory / "logs" / "up.log"
    started = daemon(directory)
    started.start(command, log=log)

    def port() -> int | None:
        if started.pid is None:
            last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
            raise LowwaterError(f"it ended during startup: {last}", hint=f"see {log}")
        path = config or directory / "fleet.yaml"
        found = configs.load(path).control.port if path.exists() else 0
        return found if found and get_json(found, "/v1") else None

    with progress() as say:
        say("starting")
        found = wait_for("the API", port, DETACH_SECONDS_MAX, hint=f"see {log}")
    result = {"pid": started.pid, "directory": str(directory), "api": f"http://127.0.0.1:{found}"}
    if as_json:
        say_json(result)
    else:
        out.print(f"running in the background (pid {started.pid}): http://127.0.0.1:{found}/; `lowwater down` stops it")


def down(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Stop the fleet of `lowwater up`, and wait until it has stopped. Its data is retained."""
    with progress() as say:
        say("stopping the fleet")
        was_running = daemon(directory.absolute()).stop(timeout_seconds=DOWN_SECONDS_MAX)
    if as_json:
        say_json({"was_running": was_running})
    else:
        out.print("stopped" if was_running else "nothing was running")
