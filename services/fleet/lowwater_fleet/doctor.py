"""`lowwater doctor`: does this machine have what lowwater needs, and if not, what to do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lowwater.errors import ConfigError, LowwaterError
from lowwater_fleet.jars import find_jars, find_java, java_version
from lowwater_fleet.kafka import EmbeddedKafka
from lowwater_fleet.ports import is_free

PYTHON_VERSION_MIN = (3, 11)
DISK_GB_MIN = 2.0
MEMORY_GB_MIN = 2.0  # the broker and three services, with some room
GB = 1024**3


@dataclass(frozen=True)
class Finding:
    """`fix` is empty when it is fine."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def examine(kafka_directory: Path) -> list[Finding]:
    """Everything, in the order in which one would mend it."""
    return [
        _finding("Python", _python),
        _finding("Java", _java),
        _finding("jars", _jars),
        _finding("Maven", _maven),
        _finding("port", lambda: _port(kafka_directory)),
        _finding("disk", lambda: _disk(kafka_directory)),
        _finding("memory", _memory),
    ]


def _finding(name: str, look: Callable[[], str]) -> Finding:
    """A look gives what was found, or raises with the hint that mends it."""
    try:
        return Finding(name, True, look())
    except LowwaterError as error:
        return Finding(name, False, error.what, error.hint or "")


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_VERSION_MIN:
        raise ConfigError(
            f"Python {found} is too old",
            hint="install Python 3.11 or newer (Debian: apt-get install python3 python3-venv, "
            "macOS: brew install python), then `make clean setup`",
        )
    return f"{found} ({sys.executable})"


def _java() -> str:
    java = find_java()
    return f"{java_version(java)} ({java})"


def _jars() -> str:
    jars = find_jars("kafka")
    return f"{len(list(jars.glob('*.jar')))} in {jars}"


def _maven() -> str:
    """Only fetches the jars, so a machine that has them does without."""
    maven = shutil.which("mvn")
    if maven is not None:
        return maven
    try:
        find_jars("kafka")
    except ConfigError:
        hint = "install Maven (Debian: apt-get install maven, macOS: brew install maven), then `make jars`"
        raise ConfigError("there is no mvn on PATH, and the jars are missing", hint=hint) from None
    return "not installed, and not needed: the jars are here"


def _port(kafka_directory: Path) -> str:
    broker = EmbeddedKafka(kafka_directory)
    if broker.pid is not None:
        return f"{broker.port} is our own Kafka's (pid {broker.pid})"
    number = broker.port
    if not is_free(number):
        raise ConfigError(
            f"{number}, for Kafka, is taken by another program",
            hint="stop that program (ss -ltnp names it), or run `lowwater kafka start --port 0`",
        )
    return f"{number}, for Kafka, is free"


def _disk(kafka_directory: Path) -> str:
    place = kafka_directory.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / GB
    if free < DISK_GB_MIN:
        raise ConfigError(
            f"{free:.1f} GB free at {place}, less than {DISK_GB_MIN:.0f} GB",
            hint="free some space, or keep the data elsewhere with --directory",
        )
    return f"{free:.0f} GB free at {place}"


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    if total < MEMORY_GB_MIN:
        raise ConfigError(
            f"{total:.1f} GB, less than {MEMORY_GB_MIN:.0f} GB",
            hint="use a larger machine, or give Kafka less: `lowwater kafka start --heap-mb 256`",
        )
    return f"{total:.0f} GB"
