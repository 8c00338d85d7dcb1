"""`Order`: the position of a commit or a mark in its thread."""

from __future__ import annotations

import struct
from typing import NamedTuple

U64_MAX = (1 << 64) - 1
#: encoding of an order in a record
ORDER_PAIR = struct.Struct(">QQ")


class Order(NamedTuple):
    """Two unsigned 64-bit numbers, compared by major, then by minor.

    Commits of a log have `minor` ≥ 1; marks have the largest minor, so that a mark at `major`
    covers every commit at that major.
    """

    major: int
    minor: int

    @classmethod
    def mark(cls, major: int) -> Order:
        """The mark that covers everything up to and including `major`."""
        return cls(major, U64_MAX)

    def pack(self) -> bytes:
        """Sixteen bytes that compare in the same way as the pair."""
        return ORDER_PAIR.pack(self.major, self.minor)

    @classmethod
    def unpack(cls, data: bytes) -> Order:
        major, minor = ORDER_PAIR.unpack(data)
        return cls(major, minor)

    @classmethod
    def parse(cls, text: str) -> Order:
        """Parses the format of `str`: `17.3`, or `17.*` for a mark. Raises ValueError."""
        major, dot, minor = text.partition(".")
        order = cls(int(major), U64_MAX if minor == "*" else int(minor))
        if not dot or not (0 <= order.major <= U64_MAX and 0 <= order.minor <= U64_MAX):
            raise ValueError(f"{text!r} is not an order: major.minor, or major.* for a mark")
        return order

    def __str__(self) -> str:
        return f"{self.major}.{'*' if self.minor == U64_MAX else self.minor}"


#: below every commit and every mark
ORDER_MIN = Order(0, 0)
#: above every commit and every mark: stands for an order that is not known yet
ORDER_MAX = Order(U64_MAX, U64_MAX)
