"""Sets of transactions that were read: GTID sets of MySQL, GTID positions of MariaDB.

A MySQL GTID is `uuid:number`, and a set may have gaps. A MariaDB GTID is `domain-server-number`; numbers increase
within a domain, so the last one of each domain is sufficient.
"""

from __future__ import annotations

import re
import struct
import uuid
from bisect import bisect_right
from typing import NamedTuple, Protocol, Self

from lowwater.errors import CodecError

_UUID_LETTERS = 36
_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
#: first 8 bytes of an encoded set with tags: 1 in the first and in the last byte
_TAGGED = 1 | 1 << 56


class Gtids(Protocol):
    """A set of GTIDs that were read."""

    def add(self, gtid: str) -> None: ...

    def __contains__(self, gtid: str) -> bool: ...

    def __str__(self) -> str: ...

    def copy(self) -> Self: ...


def _wrong(text: str) -> CodecError:
    return CodecError(f"not a GTID set: {text[:80]!r}", hint="was the position written by another version of lowwater?")


class GtidSet:
    """MySQL: `3e11fa47-…:1-5:11-18,4350f323-…:7`; since 8.3 also with tags, `3e11fa47-…:nightly:1-5`."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        #: server uuid with optional tag → inclusive starts and ends of its ranges, sorted and not adjacent
        self._ranges: dict[str, tuple[list[int], list[int]]] = {}

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        found = cls()
        try:
            for part in filter(None, (p.strip() for p in text.replace("\n", "").split(","))):
                server, *ranges = part.split(":")
                name = str(uuid.UUID(server.strip()))
                is_open = True
                for one in (r.strip() for r in ranges):
                    if _TAG.fullmatch(one):
                        # a tag applies to the ranges after it, up to the next tag
                        name, is_open = f"{name[:_UUID_LETTERS]}:{one.lower()}", True
                        continue
                    start, _, end = one.partition("-")
                    found._add_range(name, int(start), int(end or start))
                    is_open = False
                if is_open and ranges:
                    raise _wrong(text)
        except ValueError as error:
            raise _wrong(text) from error
        return found

    def add(self, gtid: str) -> None:
        server, _, number = gtid.rpartition(":")
        self._add_range(server, int(number), int(number))

    def _add_range(self, server: str, start: int, end: int) -> None:
        if start > end:
            raise _wrong(f"{start}-{end}")
        starts, ends = self._ranges.setdefault(server, ([], []))
        if ends and ends[-1] + 1 == start:
            # the common case: the next number
            ends[-1] = end
            return
        # merge ranges that overlap or touch the new one
        first = bisect_right(ends, start - 2)
        last = bisect_right(starts, end + 1)
        if first < last:
            start, end = min(start, starts[first]), max(end, ends[last - 1])
        starts[first:last], ends[first:last] = [start], [end]

    def __contains__(self, gtid: str) -> bool:
        server, _, number = gtid.rpartition(":")
        return self._has_range(server, int(number), int(number))

    def _has_range(self, server: str, start: int, end: int) -> bool:
        starts, ends = self._ranges.get(server, ([], []))
        at = bisect_right(starts, start) - 1
        return at >= 0 and ends[at] >= end

    def __le__(self, other: GtidSet) -> bool:
        """Whether `other` contains all of these."""
        return all(
            other._has_range(server, start, end)
            for server, (starts, ends) in self._ranges.items()
            for start, end in zip(starts, ends, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._ranges == other._ranges

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> GtidSet:
        made = GtidSet()
        made._ranges = {server: (list(starts), list(ends)) for server, (starts, ends) in self._ranges.items()}
        return made

    def __str__(self) -> str:
        return ",".join(
            ":".join([server, *(f"{s}-{e}" if e > s else str(s) for s, e in zip(starts, ends, strict=True))])
            for server, (starts, ends) in sorted(self._ranges.items())
        )

    def encode(self) -> bytes:
        """Encode for COM_BINLOG_DUMP_GTID, with exclusive ends."""
        is_tagged = any(len(server) > _UUID_LETTERS for server in self._ranges)
        count = len(self._ranges)
        parts = [struct.pack("<Q", _TAGGED | count << 8 if is_tagged else count)]
        for server, (starts, ends) in sorted(self._ranges.items()):
            tag = server[_UUID_LETTERS + 1 :].encode()
            parts.append(uuid.UUID(server[:_UUID_LETTERS]).bytes + (bytes([2 * len(tag)]) + tag if is_tagged else b""))
            parts.append(struct.pack("<Q", len(starts)))
            parts += [struct.pack("<QQ", s, e + 1) for s, e in zip(starts, ends, strict=True)]
        return b"".join(parts)


class _Last(NamedTuple):
    server: int
    number: int


class GtidPosition:
    """MariaDB: `0-1-42,7-2-9`."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, _Last] = {}

    @classmethod
    def parse(cls, text: str) -> GtidPosition:
        found = cls()
        for part in filter(None, (p.strip() for p in text.split(","))):
            found.add(part)
        return found

    def add(self, gtid: str) -> None:
        domain, last = _split(gtid)
        self._last[domain] = last

    def __contains__(self, gtid: str) -> bool:
        domain, one = _split(gtid)
        last = self._last.get(domain)
        return last is not None and one.number <= last.number

    def __le__(self, other: GtidPosition) -> bool:
        return all(domain in other._last and last.number <= other._last[domain].number
                   for domain, last in self._last.items())  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidPosition) and self._last == other._last

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> GtidPosition:
        made = GtidPosition()
        made._last = dict(self._last)
        return made

    def __str__(self) -> str:
        return ",".join(f"{domain}-{last.server}-{last.number}" for domain, last in sorted(self._last.items()))


def _split(gtid: str) -> tuple[int, _Last]:
    found = re.fullmatch(r"(\d+)-(\d+)-(\d+)", gtid)
    if found is None:
        raise _wrong(gtid)
    domain, server, number = map(int, found.groups())
    return domain, _Last(server, number)
