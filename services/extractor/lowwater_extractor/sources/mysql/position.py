"""Places in the log, and what a position keeps of them: the `resume` bytes.

The order of a transaction is a count of our own. File names and offsets fall back when another server takes over, and
GTIDs of several servers do not compare. The count begins with a time, so that a position that was reset goes on above.
Every group of the log counts, captured or not: so the same transaction has the same number whatever `tables` says.
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
    """Behind a group of the log."""

    file: str
    position: int
    #: None where transactions have no names
    gtids: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    @property
    def order(self) -> tuple[int, int]:
        """Compares inside one server's log."""
        return file_number(self.file), self.position


def file_number(file: str) -> int:
    """`binlog.000042`"""
    _, _, number = file.rpartition(".")
    return int(number) if number.isdigit() else 0


def version_of(text: str) -> tuple[int, int, int]:
    """`9.7.4-2`, `10.11.18-MariaDB-log`; zeros where it says nothing."""
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
    #: the server whose file it is, and when that file was begun (0: not seen yet)
    server: str
    made: int = 0
    #: XA transactions that were prepared and not ended yet, and where to read on from to have their rows again
    xa: tuple[str, ...] = ()
    back: Place | None = field(default=None)

    def pack(self) -> bytes:
        kept: dict[str, Any] = {"count": self.count, "server": self.server, "made": self.made, **_packed(self.place)}
        if self.back is not None:
            kept |= {"xa": self.xa, "back": _packed(self.back)}
        # not a brace first: that is what a position of the mode `incremental` begins with
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
        """Read on from a server that may be another one, whose files are others."""
        return self if server == self.server else replace(self, server=server, made=0)


def _packed(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {"file": place.file, "position": place.position}
    return found if place.gtids is None else {**found, "gtids": place.gtids}


def _place(kept: dict[str, Any]) -> Place:
    return Place(kept["file"], kept["position"], kept.get("gtids"))


# -- what was handed over ahead of the position ------------------------------------------------------------


class Ahead:
    """Groups behind the position, by their numbers: a note that is durable before any of them is published.

    A batch may end in the middle of a poll, and the position then lies before the poll, or before several. Another
    server that takes over must have the same transactions in the same order behind that place, or our numbers would
    mean others.
    """

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        #: (count, head of the name, its number, how many follow): a poll may hold ten thousand groups
        self._runs: list[tuple[int, str, int, int]] = []
        for count, name in sorted((names or {}).items()):
            self.add(count - 1, [name])

    def __bool__(self) -> bool:
        return bool(self._runs)

    @property
    def names(self) -> dict[int, str]:
        return {count + n: f"{head}{first + n}" for count, head, first, size in self._runs for n in range(size)}

    def add(self, count: int, names: Iterable[str]) -> None:
        """Those of the counts from `count` + 1 on. What is known already has come again, after a restart."""
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
        """A position with this count is durable."""
        left = ((max(0, count + 1 - at), at, head, first, size) for at, head, first, size in self._runs)
        self._runs = [(at + n, head, first + n, size - n) for n, at, head, first, size in left if n < size]

    def pack(self) -> bytes:
        return json.dumps(self._runs).encode()

    @classmethod
    def unpack(cls, data: bytes, behind: int) -> Ahead:
        """What of it lies behind the count of the position."""
        found = cls()
        found._runs = [(count, head, first, size) for count, head, first, size in json.loads(data)]
        found.forget(behind)
        return found


def _head(name: str) -> tuple[str, int]:
    at = max(name.rfind(":"), name.rfind("-")) + 1
    return name[:at], int(name[at:])
