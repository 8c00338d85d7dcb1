"""`lowwater logs`: the logs of the services of `lowwater up`, one event per line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from lowwater.errors import ConfigError
from lowwater_fleet.cli.contract import AsJson
from lowwater_fleet.cli.up import DEFAULT_DIRECTORY, Directory

POLL_SECONDS = 0.3


class Tail:
    """The last lines of a file, and the lines appended to it. Incomplete lines are held back."""

    def __init__(self, path: Path, lines: int) -> None:
        self.name = path.stem
        self._file: BinaryIO = path.open("rb")
        self._rest = b""
        text = self._file.read()
        whole, _, self._rest = text.rpartition(b"\n")
        found = whole.decode(errors="replace").splitlines()
        self.first = found[len(found) - min(lines, len(found)) :]

    def read(self) -> list[str]:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        self._file.close()


def logs(
    services: Annotated[list[str] | None, typer.Argument(help="for example extractor-bank; default: all")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="print new lines until Ctrl-C")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="number of last lines of each service", min=0)] = 20,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: AsJson = False,
) -> None:
    """Print the logs of the services. With --json, each line is {"service", "line"}."""
    place = directory / "logs"
    known = {path.stem: path for path in sorted(place.glob("*.log"))}
    if unknown := [name for name in services or [] if name not in known]:
        names = ", ".join(known) or f"none: there are no logs in {place}"
        raise ConfigError(f"there is no log of {unknown[0]!r}", hint=f"known: {names}")
    tails = [Tail(known[name], lines) for name in services or known]
    try:
        for tail in tails:
            _print(tail, tail.first, as_json)
        while follow:
            for tail in tails:
                _print(tail, tail.read(), as_json)
            time.sleep(POLL_SECONDS)
    finally:
        for tail in tails:
            tail.close()


def _print(tail: Tail, lines: list[str], as_json: bool) -> None:
    for line in lines:
        typer.echo(json.dumps({"service": tail.name, "line": line}) if as_json else f"{tail.name}: {line}")
