"""Detects schema changes that are not in the log.

Turso's log does not contain renames, nor statements of connections that do not capture. Their results are visible in
`sqlite_schema`, unless they were undone: two tables that swapped names and swapped them back had each other's changes
in the meantime. But the file counts every DDL statement (`schema_version`): if there were more than the log and the
differences account for, it is unknown which tables were changed.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping

from lowwater_extractor.sources.turso.catalogue import texts_and_places
from lowwater_extractor.sources.turso.connect import Database
from lowwater_extractor.sources.turso.schema.definitions import quoted
from lowwater_extractor.sources.turso.schema.schema_rows import schema_line, table_of
from lowwater_extractor.sources.turso.schema.unlogged import Line, unlogged_changes
from lowwater_extractor.sources.turso.tables import SCHEMA, Tables

NOTE = "schema"
_WHY = "there were more schema changes than the log contains: tables may have swapped their names"


class SchemaWatch:
    """Methods that query the database must be called in a view, at the end of the log."""

    def __init__(self, database: Database, cdc_table: str) -> None:
        self._database = database
        self._cdc = quoted(cdc_table)
        self._version: int | None = None
        #: the log up to this change accounts for `_version`
        self._at = 0
        #: type and name → checksum of every row of `sqlite_schema`
        self._lines: dict[str, int] = {}
        #: result of `unlogged` for `_unlogged_version`
        self._unlogged: set[str] = set()
        self._unlogged_version: int | None = None

    def restore(self, notes: Mapping[str, bytes]) -> None:
        if note := notes.get(NOTE):
            self._version, self._at, self._lines = json.loads(note)

    @property
    def differs(self) -> bool:
        """Whether the schema has changed since `look`."""
        return bool(self._database.ask("PRAGMA schema_version")[0][0] != self._version)

    def is_changed(self, at: int) -> bool:
        """Return whether the schema has changed since `look`; if not, the log up to `at` accounts for it."""
        if self.differs:
            return True
        self._at = max(self._at, at)
        return False

    def look(self, tables: Tables, at: int) -> bytes:
        """Mark stale tables; returns a note of the current schema."""
        ((version,),) = self._database.ask("PRAGMA schema_version")
        rows = self._database.ask("SELECT type, name, rowid, rootpage, sql FROM sqlite_schema")
        lines = {f"{row[0]} {row[1]}": zlib.crc32(repr(tuple(row)).encode()) for row in rows}
        if self._version is not None and self._is_log_whole(at):
            known = self._logged(at) + self._differences(lines)
            if version - self._version > known:
                tables.mark_all_stale(at, _WHY)
        self._version, self._at, self._lines = version, at, lines
        return json.dumps([version, at, lines]).encode()

    def unlogged(self, tables: Tables, read_to: int) -> set[str]:
        """Return the tables that were changed without the log, before the log is read to its end; all if unknown.

        The log after `read_to` is searched once for each version of the schema.
        """
        ((version,),) = self._database.ask("PRAGMA schema_version")
        if version != self._unlogged_version:
            rows = self._database.ask(
                f"SELECT before, after FROM {self._cdc} WHERE change_id > ? AND table_name = ? ORDER BY change_id",
                (read_to, SCHEMA),
            )
            ahead = [(_line(before), _line(after)) for before, after in rows]
            changed, unknown = unlogged_changes(tables.known(), ahead, texts_and_places(self._database))
            self._unlogged = changed | unknown
            self._unlogged_version = version
            # the statements on `unknown` tables that are visible are in the log
            if self._version is not None and version - self._version > self._logged(sys.maxsize) + len(changed):
                self._unlogged |= set(tables.captured_names())
        return self._unlogged

    def _differences(self, lines: Mapping[str, int]) -> int:
        """Return the maximum number of statements that the changed rows account for; one more for swapped names."""
        changed = [name for name in lines.keys() | self._lines.keys() if lines.get(name) != self._lines.get(name)]
        stayed = sum(name in lines and name in self._lines and name.startswith("table ") for name in changed)
        return len(changed) + (stayed > 1)

    def _is_log_whole(self, at: int) -> bool:
        """Return whether the log since the last `look` is complete, and not pruned."""
        ((first,),) = self._database.ask(f"SELECT min(change_id) FROM {self._cdc}")
        return self._at >= at or (first is not None and first <= self._at + 1)

    def _logged(self, at: int) -> int:
        asked = f"SELECT count(*) FROM {self._cdc} WHERE change_id > ? AND change_id <= ? AND table_name = ?"
        ((count,),) = self._database.ask(asked, (self._at, at, SCHEMA))
        return int(count)


def _line(record: bytes | None) -> Line | None:
    return None if record is None else table_of(schema_line(record))
