"""Stale tables, and columns that were dropped: one of the same name that comes later is another column."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lowwater_extractor.snapshot.stale_notes import StaleTables

_DROPPED = "dropped/"


class AlteredTables(StaleTables):
    """What statements did to captured tables that the log does not tell. Remembered in notes."""

    def __init__(self, source: str, notes: Mapping[str, bytes]) -> None:
        super().__init__(source, notes)
        self._dropped = {
            name.removeprefix(_DROPPED): set(json.loads(data))
            for name, data in notes.items()
            if name.startswith(_DROPPED) and data
        }
        self._dropped_changed: set[str] = set()

    def emptied(self, table: str) -> None:
        """It has no rows any more, so none has an old value. A copy is still due of one that was stale: until then its
        readers are told so."""
        if self._dropped.pop(table, None) is not None:
            self._dropped_changed.add(table)

    def columns(self, table: str, added: tuple[str, ...], dropped: tuple[str, ...]) -> list[str]:
        """Columns that came, and those that went. Those that had been there before: the old ones had other values."""
        gone = self._dropped.get(table, set())
        # names of columns do not differ by their case
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
