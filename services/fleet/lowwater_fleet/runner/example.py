"""A fleet that `lowwater up` runs without a config: an entry point of the group `lowwater.examples` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lowwater.errors import ConfigError
from lowwater.runtime.plugins import EXAMPLES, load_plugin, plugins
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service


@dataclass(frozen=True)
class Example:
    """The config, a running broker, and a process that writes to the source."""

    config: Path
    kafka: EmbeddedKafka
    writer: Service


def make_example(directory: Path) -> Example:
    """Make the first registered example. ConfigError: there is none."""
    names = sorted(plugins(EXAMPLES))
    if not names:
        raise ConfigError(
            "there is no config", hint="--config names the fleet's YAML file; lowwater-devkit has an example"
        )
    found: Example = load_plugin(EXAMPLES, names[0])(directory)
    return found
