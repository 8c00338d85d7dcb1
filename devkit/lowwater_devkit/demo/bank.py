"""The bank: a simulated cluster that runs transfers, one group, one lake."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lowwater.errors import ConfigError
from lowwater_fleet.cli.console import progress
from lowwater_fleet.runner.example import Example
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.runner import start_kafka
from lowwater_fleet.runner.services import Service


def bank(directory: Path) -> Example:
    """The example of `lowwater up` without a config."""
    if (directory / "rac" / "control.json").exists():
        raise ConfigError(
            f"{directory} contains the example of an earlier run, whose simulated database cannot be continued",
            hint=f"rm -r {directory}, or set --directory",
        )
    with progress() as say:
        kafka = start_kafka(directory, say)
    config = bank_config(directory, kafka.bootstrap_servers)
    options = ("--threads", "2", "--rate", "200", "--transactions", "0", "--stay")
    return Example(config, kafka, simulated_cluster(directory / "rac", directory / "logs", *options))


def bank_config(
    directory: Path,
    bootstrap_servers: str,
    control_port: int = 0,
    beside: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """The built-in fleet: one simulated cluster, one group, one lake. `beside`: configs of more sources, by kind."""
    raw: dict[str, Any] = {
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "sources": {
            "rac": {
                "kind": "simulated_rac",
                "config": {"directory": str(directory / "rac"), "spill_directory": str(directory / "spill")},
                "http": {"port": free_port()},
            }
        },
        "groups": {
            "bank": {
                "sources": ["rac"],
                "http": {"port": free_port()},
                "lake": {"uri": str(directory / "lake")},
                "land": {
                    "trigger_seconds": 1,
                    "spark": {"spark.driver.memory": "1g"},
                    "http": {"port": free_port()},
                },
            }
        },
        "control": {"port": control_port or free_port()},
        "state_directory": str(directory),
    }
    for kind, described in (beside or {}).items():
        raw["sources"][kind] = {"kind": kind, "config": dict(described), "http": {"port": free_port()}}
        raw["groups"]["bank"]["sources"].append(kind)
    path = directory / "fleet.yaml"
    path.write_text(yaml.safe_dump(raw, sort_keys=False))
    return path


def simulated_cluster(directory: Path, logs: Path, *options: str) -> Service:
    command = [
        sys.executable,
        "-m",
        "lowwater_devkit.simulated_rac",
        "--directory",
        str(directory),
        *options,
    ]
    return Service("cluster", command, logs / "cluster.log")
