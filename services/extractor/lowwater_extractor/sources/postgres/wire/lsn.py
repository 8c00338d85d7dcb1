"""Log sequence numbers: places in PostgreSQL's write-ahead log. They are compared as numbers, never as text."""

from __future__ import annotations

from typing import NewType

Lsn = NewType("Lsn", int)


def parse_lsn(text: str) -> Lsn:
    """`16/B374D848`; the part before the stroke is the upper half."""
    upper, _, lower = text.partition("/")
    return Lsn(int(upper, 16) << 32 | int(lower, 16))


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
