"""Checks of the prerequisites of a database file for capture, each with its fix."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.errors import LowwaterError
from lowwater_extractor.api import Check
from lowwater_extractor.sources.turso import catalogue
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import Database
from lowwater_extractor.sources.turso.cursor import stream as cursors
from lowwater_extractor.sources.turso.schema.definitions import Definitions
from lowwater_extractor.sources.turso.tables import check_tables


def check_source(config: TursoConfig, source: str) -> list[Check]:
    """Run all checks; a failed check does not hide the next ones."""
    try:
        database = Database(config, source)
    except LowwaterError as error:
        return [Check("file", False, error.what, error.hint or "")]
    try:
        return list(_checks(database, config, source))
    finally:
        database.close()


def _checks(database: Database, config: TursoConfig, source: str) -> Iterator[Check]:
    yield Check("file", True, f"{config.path}, shared with its writers")
    if config.mode == "incremental":
        yield from cursors.check_cursors(database, config, source)
        return
    if config.has_log:
        yield _log(database, config)
    wrong = list(wrong_tables(database, config, source))
    if wrong:
        what, fix = "; ".join(what for what, _ in wrong), wrong[0][1]
        yield Check("tables", False, what, fix)
        return
    found = len(catalogue.definitions_of(database, config, source))
    yield Check("tables", found > 0, f"{found} tables", "tables are `main.table` or `main.*`")


def _log(database: Database, config: TursoConfig) -> Check:
    version = catalogue.cdc_version(database, config)
    if not version:
        fix = "call lowwater.turso.capture(connection) in every writer"
        return Check("capture", False, f"no table {config.cdc_table}: no writer captures", fix)
    what = f"{config.cdc_table}, {version}"
    if version == "v1":
        return Check("capture", False, f"{what}, which does not contain transaction boundaries", catalogue.V1_HINT)
    return Check("capture", True, what)


def wrong_tables(database: Database, config: TursoConfig, source: str) -> list[tuple[str, str]]:
    return list(check_tables(catalogue.texts(database), Definitions(source, config.types), config))
