"""System change numbers (SCNs): Oracle's logical clock, which orders commits across the threads of a database."""

from __future__ import annotations

from typing import NewType

Scn = NewType("Scn", int)

LOWEST = Scn(0)
#: above every SCN: selects the newest version of a table
NEWEST = Scn((1 << 64) - 1)
