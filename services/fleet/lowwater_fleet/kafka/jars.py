"""Finds Java and the jars. `make jars` downloads the jars; this module does not download."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lowwater.errors import ConfigError

# The jars are compiled for Java 17; older versions cannot load them.
JAVA_VERSION_MIN = 17
JAVA_FIX = (
    f"install Java {JAVA_VERSION_MIN} or newer (Debian: apt-get install default-jre-headless, "
    "macOS: brew install openjdk) and put it on PATH, or set JAVA_HOME to it"
)
JARS_FIX = "run `make jars` in the repository, or set LOWWATER_JARS to the directory that contains kafka/"


def find_java() -> Path:
    """The `java` of JAVA_HOME if that is set, else the one on PATH. Raises ConfigError if there is none or it is too
    old."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise ConfigError(f"there is no java {where}", hint=JAVA_FIX)
    version = java_version(Path(found))
    if version < JAVA_VERSION_MIN:
        raise ConfigError(f"{found} is Java {version}, which is too old", hint=JAVA_FIX)
    return Path(found)


def java_version(java: Path) -> int:
    """The feature version: 17 of "17.0.15", 8 of "1.8.0_392"."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        # macOS has a /usr/bin/java that only prints that no Java is installed
        raise ConfigError(f"{java} does not print its version: {answer.stderr.strip()[:200]}", hint=JAVA_FIX)
    return int(match[1])


def find_jars(program: str, *, start: Path | None = None) -> Path:
    """The directory of the jars of one program, for example `kafka`.

    It is in LOWWATER_JARS if that is set, else in `.jars` of the working directory or of the nearest parent with one.
    """
    start = start or Path.cwd()
    given = os.environ.get("LOWWATER_JARS")
    roots = [Path(given)] if given else [above / ".jars" for above in (start, *start.parents)]
    for root in roots:
        if any((root / program).glob(f"{program}*.jar")):
            return (root / program).absolute()
    where = f"in LOWWATER_JARS ({given})" if given else f"in a .jars directory in or above {start}"
    raise ConfigError(f"the jars of {program} are not {where}", hint=JARS_FIX)


def archive_of(jars: Path) -> Path:
    """The path of the class archive of a program's jars."""
    return jars.with_suffix(".jsa")
