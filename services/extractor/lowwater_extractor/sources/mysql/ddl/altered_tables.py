"""Stale tables, and dropped columns: a column added later with the same name is a different one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lowwater_extractor.snapshot.stale_notes import StaleTables

_DROPPED = "dropped/"


class AlteredTables(StaleTables):
    """Effects of statements on captured tables that are not in row events. Stored in notes."""

    def __init__(self, source: str, notes: Mapping[str, bytes]) -> None:
        super().__init__(source, notes)
        self._dropped = {
            name.removeprefix(_DROPPED): set(json.loads(data))
            for name, data in notes.items()
            if name.startswith(_DROPPED) and data
        }
        self._dropped_changed: set[str] = set()

    def emptied(self, table: str) -> None:
        """Forget dropped columns: no row has old values any more. A stale table stays stale until it is copied."""
        if self._dropped.pop(table, None) is not None:
            self._dropped_changed.add(table)

    def columns(self, table: str, added: tuple[str, ...], dropped: tuple[str, ...]) -> list[str]:
        """Record added and dropped columns. Return the added ones whose name was dropped before: old rows had other
        values in them."""
        gone = self._dropped.get(table, set())
        # column names are case-insensitive
        again = [name for name in added if name.lower() in gone]
        if dropped:
            self._dropped[table] = gone | {name.lower() for name in dropped}
            self._dropped_changed.add(table)
        return again

    def notes(self) -> dict[str, bytes]:
        changed, self._dropped_changed = self._dropped_changed, set()
        dropped = {table: sorted(self._dropped.get(table, ())) for table in sorted(changed)}
        return super().notes() | {
            _DROPPED + t: json.dumps(names).encode() if names else b"" for t, names in dropped.items()
        }
