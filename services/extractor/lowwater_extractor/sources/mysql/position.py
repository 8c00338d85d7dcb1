"""Positions in the binary log, and the `resume` bytes in which they are stored.

The order of a transaction is a count kept by lowwater: file names and offsets may go back after a failover, and GTIDs
of different servers have no order. The count starts at the current time in microseconds, so that after a reset it
continues above the old one. Every event group is counted, captured or not, so a transaction's count does not depend on
`tables`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lowwater.errors import CodecError
from lowwater_extractor.sources.mysql.wire.gtid import GtidPosition, Gtids, GtidSet


@dataclass(frozen=True, slots=True)
class Place:
    """A position after an event group of the log."""

    file: str
    position: int
    #: GTIDs read so far; None if the log is read by file position
    gtids: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    @property
    def order(self) -> tuple[int, int]:
        """Comparable within one server's log."""
        return file_number(self.file), self.position


def file_number(file: str) -> int:
    """`binlog.000042`"""
    _, _, number = file.rpartition(".")
    return int(number) if number.isdigit() else 0


def version_of(text: str) -> tuple[int, int, int]:
    """Parse `9.7.4-2` or `10.11.18-MariaDB-log`; missing parts are 0."""
    numbers = [int(part) if part.isdigit() else 0 for part in text.split("-")[0].split(".")]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return major, minor, patch


def parse_gtids(text: str | None, is_mariadb: bool) -> Gtids | None:
    if text is None:
        return None
    return GtidPosition.parse(text) if is_mariadb else GtidSet.parse(text)


@dataclass(frozen=True, slots=True)
class Resume:
    count: int
    place: Place
    #: the server of the log file, and the file's creation time (0: unknown)
    server: str
    made: int = 0
    #: XA transactions that are prepared and not ended, and the position to read their rows from again
    xa: tuple[str, ...] = ()
    back: Place | None = field(default=None)

    def pack(self) -> bytes:
        kept: dict[str, Any] = {"count": self.count, "server": self.server, "made": self.made, **_packed(self.place)}
        if self.back is not None:
            kept |= {"xa": self.xa, "back": _packed(self.back)}
        # the prefix distinguishes it from a position of the mode `incremental`, which starts with a brace
        return b"mysql " + json.dumps(kept).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Resume:
        try:
            kept = json.loads(data.removeprefix(b"mysql "))
            back = _place(kept["back"]) if "back" in kept else None
            return cls(kept["count"], _place(kept), kept["server"], kept["made"], tuple(kept.get("xa", ())), back)
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                "the position is not one of this kind", hint="was the source another kind before? give it a new name"
            ) from error

    @property
    def start(self) -> Place:
        return self.back or self.place

    def on(self, server: str) -> Resume:
        """Return the position for reading from this server. Another server has other log files."""
        return self if server == self.server else replace(self, server=server, made=0)


def _packed(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {"file": place.file, "position": place.position}
    return found if place.gtids is None else {**found, "gtids": place.gtids}


def _place(kept: dict[str, Any]) -> Place:
    return Place(kept["file"], kept["position"], kept.get("gtids"))


# -- transactions after the durable position ---------------------------------------------------------------


class PendingGtids:
    """GTIDs by count of the event groups after the durable position. Stored in a note before they are published.

    A batch may end in the middle of a poll, so the durable position may be several polls behind. After a failover the
    new server must have the same transactions in the same order after that position, otherwise their counts would
    refer to different transactions.
    """

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        #: (first count, GTID prefix, first number, length): runs, because a poll may have ten thousand groups
        self._runs: list[tuple[int, str, int, int]] = []
        for count, name in sorted((names or {}).items()):
            self.add(count - 1, [name])

    def __bool__(self) -> bool:
        return bool(self._runs)

    @property
    def names(self) -> dict[int, str]:
        return {count + n: f"{head}{first + n}" for count, head, first, size in self._runs for n in range(size)}

    def add(self, count: int, names: Iterable[str]) -> None:
        """Add the GTIDs of the counts from `count` + 1 on. Known ones, read again after a restart, are skipped."""
        last, head, first, size = self._runs.pop() if self._runs else (0, "", 0, 0)
        for at, name in enumerate(names, count + 1):
            if at < last + size:
                continue
            new_head, number = _head(name)
            if size and (at, new_head, number) == (last + size, head, first + size):
                size += 1
                continue
            if size:
                self._runs.append((last, head, first, size))
            last, head, first, size = at, new_head, number, 1
        if size:
            self._runs.append((last, head, first, size))

    def forget(self, count: int) -> None:
        """Remove the GTIDs up to `count`, whose position is durable now."""
        left = ((max(0, count + 1 - at), at, head, first, size) for at, head, first, size in self._runs)
        self._runs = [(at + n, head, first + n, size - n) for n, at, head, first, size in left if n < size]

    def pack(self) -> bytes:
        return json.dumps(self._runs).encode()

    @classmethod
    def unpack(cls, data: bytes, behind: int) -> PendingGtids:
        """Return the GTIDs with a count above `behind`, the count of the position."""
        found = cls()
        found._runs = [(count, head, first, size) for count, head, first, size in json.loads(data)]
        found.forget(behind)
        return found


def _head(name: str) -> tuple[str, int]:
    at = max(name.rfind(":"), name.rfind("-")) + 1
    return name[:at], int(name[at:])
