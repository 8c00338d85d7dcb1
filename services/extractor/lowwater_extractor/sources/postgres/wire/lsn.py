"""Log sequence numbers (LSNs): positions in the write-ahead log. They are compared as numbers, never as text."""

from __future__ import annotations

from typing import NewType

Lsn = NewType("Lsn", int)


def parse_lsn(text: str) -> Lsn:
    """Parse `16/B374D848`; the part before the slash is the upper 32 bits."""
    upper, _, lower = text.partition("/")
    return Lsn(int(upper, 16) << 32 | int(lower, 16))


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
