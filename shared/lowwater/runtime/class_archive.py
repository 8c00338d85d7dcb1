"""Java class data sharing: an archive of the classes that a program loads, which its next start maps into memory.

It halves the start time and changes nothing else. An archive is valid for one Java version and one set of jars; with
others Java ignores it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: classes that cannot be shared, or an archive of another Java, are loaded from the jars: no warning is needed
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def options(archive: Path) -> list[str]:
    """Java options that use the archive; none if it does not exist."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.exists() else []


@contextmanager
def making(archive: Path) -> Iterator[list[str]]:
    """Java options that create the archive. Java writes it at its normal exit, which must be inside the context."""
    part = archive.with_suffix(".part")
    for old in (archive, part):  # Java cannot create an archive while it uses another one
        old.unlink(missing_ok=True)
    yield [f"-XX:ArchiveClassesAtExit={part}", *_QUIET]
    part.rename(archive)
