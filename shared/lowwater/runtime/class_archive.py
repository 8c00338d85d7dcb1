"""The classes that a Java program loads, kept so that its next start maps them: Java calls it class data sharing.

It halves what a start costs and changes nothing else. An archive is made for one Java and one set of jars; with others
Java passes over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: what cannot be shared, or is of another Java, is loaded as ever: nobody need hear of it
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def options(archive: Path) -> list[str]:
    """Of a start that uses it; none where there is none."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.exists() else []


@contextmanager
def making(archive: Path) -> Iterator[list[str]]:
    """The options of a start that makes it: it is written when that Java ends by itself, inside of this."""
    part = archive.with_suffix(".part")
    for old in (archive, part):  # one cannot be made while another is used
        old.unlink(missing_ok=True)
    yield [f"-XX:ArchiveClassesAtExit={part}", *_QUIET]
    part.rename(archive)
