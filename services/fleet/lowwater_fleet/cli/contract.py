"""Common parts of all commands: options, exit codes, JSON output (docs/cli.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lowwater.codec.json_values import plain
from lowwater.errors import BusError, ConfigError, ControlConflictError, LowwaterError
from lowwater.runtime import config
from lowwater.runtime.config import Settings

EXIT_GOOD = 0
#: the command ran, but found a problem: a check failed, a source has an error
EXIT_BAD = 1
#: the command or the config is wrong; nothing was done
EXIT_USAGE = 2
#: Kafka, the lake or another component does not answer: a retry may succeed
EXIT_UNAVAILABLE = 3
#: a concurrent change of the same object
EXIT_CONFLICT = 4
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="the fleet's YAML file", envvar="LOWWATER_CONFIG")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON (documented in docs/cli.md)")]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="why; is recorded")]

#: configs written by `lowwater up` and `lowwater demo`
DEFAULT_CONFIGS = (Path(".lowwater/up/fleet.yaml"), Path(".lowwater/demo/fleet.yaml"))


def exit_code(error: LowwaterError) -> int:
    if isinstance(error, ConfigError):
        return EXIT_USAGE
    if isinstance(error, ControlConflictError):
        return EXIT_CONFLICT
    return EXIT_UNAVAILABLE if isinstance(error, BusError) else EXIT_BAD


def find(path: Path | None) -> Path:
    if path is None:
        path = next((default for default in DEFAULT_CONFIGS if default.exists()), None)
    if path is None:
        raise ConfigError("no config", hint="give --config, or set LOWWATER_CONFIG, or run `lowwater up` first")
    return path


def load(path: Path | None) -> Settings:
    return config.load(find(path))


def say_json(data: Any) -> None:
    typer.echo(json.dumps(plain(data), indent=1, ensure_ascii=False, default=str))
