"""Rows of `sqlite_schema` in the log, which record schema changes."""

from __future__ import annotations

from typing import Any

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.turso.wire.record import decode


def schema_line(record: bytes) -> list[Any]:
    """Decode a row of `sqlite_schema`: type, name, table, root page, CREATE statement."""
    try:
        found = decode(record)
    except UnicodeDecodeError as error:
        raise LogUnknownError(
            "a row of sqlite_schema that is not UTF-8", hint="rename the table: the lake needs UTF-8 names"
        ) from error
    if len(found) != 5:
        raise LogUnknownError(
            f"a row of sqlite_schema with {len(found)} values", hint="is the writer's Turso newer? update lowwater"
        )
    return found


def table_of(values: list[Any] | None) -> tuple[str, str, int] | None:
    """Return name, CREATE statement and root page if a row of `sqlite_schema` is of a table, else None."""
    if values is None or values[0] != "table" or values[4] is None:
        return None
    return str(values[1]), str(values[4]), int(values[3] or 0)
