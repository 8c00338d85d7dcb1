"""`lowwater doctor`: checks whether this machine has everything that lowwater needs."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lowwater.errors import ConfigError, LowwaterError
from lowwater.runtime.plugins import DOCTOR_CHECKS, load_plugin, plugins
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.kafka.jars import find_jars, find_java, java_version
from lowwater_fleet.runner.ports import FREE_PORTS, free_port, is_free

PYTHON_VERSION_MIN = (3, 11)
#: the Hadoop client in Spark 4.0 needs a security manager, which Java 23 no longer has
SPARK_JAVA_VERSION_MAX = 22
SPARK_JARS_VARIABLE = "LOWWATER_SPARK_JARS"
PACKAGES = ("pyspark", "pyarrow", "duckdb")
DISK_GB_MIN = 2.0
MEMORY_GB_MIN = 4.0  # the broker, Spark and three services, with some reserve
GB = 1024**3


@dataclass(frozen=True)
class Finding:
    """The result of one check. `fix` is empty if `ok`."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def examine(kafka_directory: Path, takes_free_ports: bool = False) -> list[Finding]:
    """Run all checks, in the order in which to fix problems. `takes_free_ports`: the fleet has no fixed ports."""
    return [
        _finding("Python", _python),
        _finding("packages", _packages),
        _finding("Java", _java),
        _finding("Kafka's jars", _kafka_jars),
        _finding("Spark's jars", _spark_jars),
        _finding("Maven", _maven),
        *(_finding(name, partial(_plugin, name)) for name in sorted(plugins(DOCTOR_CHECKS))),
        _finding("ports", _free_ports) if takes_free_ports else _finding("port", lambda: _port(kafka_directory)),
        _finding("disk", lambda: _disk(kafka_directory)),
        _finding("memory", _memory),
    ]


def _finding(name: str, look: Callable[[], str]) -> Finding:
    """Run one check: it returns what was found, or raises an error with the fix as hint."""
    try:
        return Finding(name, True, look())
    except LowwaterError as error:
        return Finding(name, False, error.what, error.hint or "")


def _plugin(name: str) -> str:
    found: str = load_plugin(DOCTOR_CHECKS, name)()
    return found


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_VERSION_MIN:
        raise ConfigError(
            f"Python {found} is too old",
            hint="install Python 3.11 or newer (Debian: apt-get install python3 python3-venv, "
            "macOS: brew install python), then `make clean setup`",
        )
    return f"{found} ({sys.executable})"


def _packages() -> str:
    """The packages are imported, because an installed package may lack libraries that fit this machine."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError as error:
            raise ConfigError(
                f"{name} cannot be loaded: {error}",
                hint="`make setup` installs what uv.lock names; if it is there and broken, `make clean setup`",
            ) from error
    return ", ".join(found)


def _java() -> str:
    java = find_java()
    version = java_version(java)
    if version > SPARK_JAVA_VERSION_MAX:
        raise ConfigError(
            f"{java} is Java {version}, which Kafka runs on, but Spark does not",
            hint="install Java 21 or 17 as well (Debian: apt-get install openjdk-21-jre-headless, "
            "macOS: brew install openjdk@21), and set JAVA_HOME to it",
        )
    return f"{version} ({java})"


def _kafka_jars() -> str:
    jars = find_jars("kafka")
    return f"{_count(jars)} in {jars}"


def _spark_jars() -> str:
    """Spark itself comes with pyspark; these are its Kafka source and Avro."""
    named = os.environ.get(SPARK_JARS_VARIABLE)
    jars = Path(named) if named else find_jars("spark")
    if not _count(jars):
        raise ConfigError(
            f"there are no jars in {jars}, which {SPARK_JARS_VARIABLE} names",
            hint=f"unset {SPARK_JARS_VARIABLE} and run `make jars`, or set it to the directory of the jars",
        )
    return f"{_count(jars)} in {jars}"


def _count(jars: Path) -> int:
    return len(list(jars.glob("*.jar")))


def _maven() -> str:
    """Maven only fetches the jars: it is not needed if they are already there."""
    maven = shutil.which("mvn")
    if maven is not None:
        return maven
    try:
        _kafka_jars()
        _spark_jars()
    except ConfigError:
        hint = "install Maven (Debian: apt-get install maven, macOS: brew install maven), then `make jars`"
        raise ConfigError("there is no mvn on PATH, and jars are missing", hint=hint) from None
    return "not installed, and not needed: the jars are already here"


def _free_ports() -> str:
    return f"free ones between {FREE_PORTS.start} and {FREE_PORTS.stop}, such as {free_port()}"


def _port(kafka_directory: Path) -> str:
    broker = EmbeddedKafka(kafka_directory)
    if broker.pid is not None:
        return f"{broker.port} is used by the embedded Kafka (pid {broker.pid})"
    number = broker.port
    if not is_free(number):
        raise ConfigError(
            f"{number}, for Kafka, is used by another program",
            hint="stop that program (`ss -ltnp` shows it), or run `lowwater kafka start --port 0`",
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
            hint="free some space, or store the data elsewhere with --directory",
        )
    return f"{free:.0f} GB free at {place}"


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    if total < MEMORY_GB_MIN:
        raise ConfigError(
            f"{total:.1f} GB, less than {MEMORY_GB_MIN:.0f} GB",
            hint="use a larger machine, or give Kafka less (`lowwater kafka start --heap-mb 256`) and Spark less "
            "(land.spark: {spark.driver.memory: 1g})",
        )
    return f"{total:.0f} GB"
