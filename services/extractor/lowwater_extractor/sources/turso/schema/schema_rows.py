"""Lines of `sqlite_schema`, as the log has them: what becomes of a table."""

from __future__ import annotations

from typing import Any

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.turso.wire.record import decode


def schema_line(record: bytes) -> list[Any]:
    """Of `sqlite_schema`: type, name, table, first page, text."""
    try:
        found = decode(record)
    except UnicodeDecodeError as error:
        raise LogUnknownError(
            "a line of sqlite_schema that is not UTF-8", hint="rename the table: no reader of the lake could name it"
        ) from error
    if len(found) != 5:
        raise LogUnknownError(
            f"a line of sqlite_schema with {len(found)} values", hint="is the writer's Turso newer? update lowwater"
        )
    return found


def table_of(values: list[Any] | None) -> tuple[str, str, int] | None:
    """Name, text and first page, if a row of `sqlite_schema` is of a table."""
    if values is None or values[0] != "table" or values[4] is None:
        return None
    return str(values[1]), str(values[4]), int(values[3] or 0)
