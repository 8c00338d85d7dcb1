"""`lowwater up`: run a config's fleet on this machine until Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from lowwater.errors import ConfigError
from lowwater_fleet import services
from lowwater_fleet.console import err, out, progress
from lowwater_fleet.runner import Runner, bank_config, end_as_by_ctrl_c, start_kafka

DEFAULT_DIRECTORY = Path(".lowwater/up")


def up(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="the fleet's YAML file; without one, the bank example runs")
    ] = None,
    directory: Annotated[Path, typer.Option(help="logs and state")] = DEFAULT_DIRECTORY,
) -> None:
    """Run a fleet on this machine: its services are started again when they die; logs in files."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    end_as_by_ctrl_c()
    kafka = None
    cluster = None
    if config is None:
        if (directory / "rac" / "control.json").exists():
            raise ConfigError(
                f"{directory} holds the example of an earlier run, which cannot go on: its database is a simulation",
                hint=f"rm -r {directory}, or give --directory",
            )
        with progress() as say:
            kafka = start_kafka(directory, say)
        config = bank_config(directory, kafka.bootstrap_servers)
        options = ("--threads", "2", "--rate", "200", "--transactions", "0", "--stay")
        cluster = services.simulated_cluster(directory / "rac", directory / "logs", *options)
    runner = Runner(config, directory)
    if cluster is not None:
        runner.add(cluster)
    runner.start()
    out.print(f"running {', '.join(runner.services)}; logs in {directory / 'logs'}; Ctrl-C ends it")
    out.print(f"look at it: lowwater group status {next(iter(runner.settings.groups), '…')} --config {config}")
    if any(group.lake is not None for group in runner.settings.groups.values()):
        out.print(f"once something has landed: lowwater lake tables --config {config}")
    try:
        while True:
            runner.supervise()
            time.sleep(0.5)
    except KeyboardInterrupt:
        err.print("stopping")
    finally:
        runner.stop()
        if kafka is not None:
            kafka.stop()
