"""`lowwater kafka`: the embedded broker. Any other broker can be used instead (`bootstrap_servers`)."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lowwater_fleet.cli.console import out, progress
from lowwater_fleet.cli.contract import AsJson
from lowwater_fleet.kafka.embedded import HEAP_MB_DEFAULT, EmbeddedKafka, KafkaStatus

app = typer.Typer(help="Run the embedded Kafka broker.", no_args_is_help=True)

DIRECTORY_DEFAULT = Path(".lowwater/kafka")

Directory = Annotated[Path, typer.Option("--directory", "-d", help="The broker's data directory.")]


@app.command()
def start(
    directory: Directory = DIRECTORY_DEFAULT,
    port: Annotated[
        int | None,
        typer.Option(help="Default: that of the previous start, else 9092. 0: a free port.", min=0, max=65535),
    ] = None,
    heap_mb: Annotated[int, typer.Option(help="Java heap in MB.", min=128)] = HEAP_MB_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Start it and wait until it accepts requests. It continues to run in the background."""
    broker = EmbeddedKafka(directory, port=port, heap_mb=heap_mb)
    begin = time.monotonic()
    with progress() as say:
        started = broker.start(progress=say)
    took = f"after {time.monotonic() - begin:.1f} s" if started else "already running"
    _report(broker.status(), as_json, note=took)


@app.command()
def stop(directory: Directory = DIRECTORY_DEFAULT, as_json: AsJson = False) -> None:
    """Stop it. The data is retained."""
    broker = EmbeddedKafka(directory)
    with progress() as say:
        say("stopping Kafka")
        stopped = broker.stop()
    _report(broker.status(), as_json, note="" if stopped else "it was not running")


@app.command()
def status(directory: Directory = DIRECTORY_DEFAULT, as_json: AsJson = False) -> None:
    """Print whether it runs and accepts requests. The exit code is 0 only if it accepts requests."""
    now = EmbeddedKafka(directory).status()
    _report(now, as_json)
    if not now.serving:
        raise typer.Exit(1)


def _report(status: KafkaStatus, as_json: bool, *, note: str = "") -> None:
    if as_json:
        typer.echo(json.dumps(asdict(status)))
        return
    word = "serves" if status.serving else "runs, but does not answer" if status.running else "is stopped"
    where = f" at {status.bootstrap_servers}" if status.running else ""
    details = [note] if note else []
    if status.pid is not None:
        details += [f"pid {status.pid}", f"log {status.log}"]
    out.print(f"Kafka {word}{where}" + (f" ({', '.join(details)})" if details else ""), markup=False)
