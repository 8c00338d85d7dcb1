"""Queries of the database's current schema."""

from __future__ import annotations

from lowwater.errors import StartRefusedError
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import Database
from lowwater_extractor.sources.turso.schema.definitions import Definition, Definitions, is_internal, quoted
from lowwater_extractor.sources.turso.schema.schema_rows import schema_line, table_of

#: columns of a CDC table; version 2 also has the transaction
_COLUMNS = {"change_id", "change_time", "change_type", "table_name", "id", "before", "after", "updates"}
_TRANSACTION = "change_txn_id"

V1_HINT = (
    "let the writers capture to another table, by lowwater.turso.capture(connection, table=…), and configure it as"
    " cdc_table; or DROP TABLE and capture again. See docs/turso.md, when the log begins again"
)


def texts(database: Database) -> dict[str, str]:
    """Return name → CREATE statement of all tables but the engine's."""
    rows = database.ask("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL")
    return {name: sql for name, sql in rows if not is_internal(name)}


def texts_and_places(database: Database) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Return name → CREATE statement, and name → location in the file, of all tables but the engine's."""
    rows = database.ask("SELECT rowid, name, rootpage, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL")
    found = [row for row in rows if not is_internal(row[1])]
    return {name: sql for _, name, _, sql in found}, {name: (rowid, page) for rowid, name, page, _ in found}


def texts_at(
    database: Database, config: TursoConfig, change_id: int
) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """As `texts_and_places`, at a change: later schema changes in the log are undone, the last one first."""
    found, places = texts_and_places(database)
    rows = database.ask(
        f"SELECT before, after FROM {quoted(config.cdc_table)} WHERE change_id > ? AND table_name = 'sqlite_schema'"
        " ORDER BY change_id DESC",
        (change_id,),
    )
    for before, after in rows:
        was, now = (None if record is None else table_of(schema_line(record)) for record in (before, after))
        if now is not None:
            found.pop(now[0], None)
        if was is not None:
            found[was[0]] = was[1]
    return found, places


def definitions_of(database: Database, config: TursoConfig, source: str) -> list[Definition]:
    """Return the definitions of the configured tables."""
    made = Definitions(source, config.types)
    found = texts(database).items()
    return [made.definition(n, sql) for n, sql in found if n != config.cdc_table and config.wants(f"main.{n}")]


def cdc_version(database: Database, config: TursoConfig) -> str:
    """Return the version of the CDC table: `v2`, `v1`, or empty if there is none."""
    columns = {row[1] for row in database.ask(f"PRAGMA table_info({config.cdc_table})")}
    if not columns >= _COLUMNS:
        return ""
    return "v2" if _TRANSACTION in columns else "v1"


def refuse_without_log(database: Database, config: TursoConfig, source: str) -> None:
    if cdc_version(database, config):
        return
    raise StartRefusedError(
        f"there is no table {config.cdc_table}: no writer captures",
        source=source,
        thread=1,
        hint="call lowwater.turso.capture(connection) in every writer",
    )
