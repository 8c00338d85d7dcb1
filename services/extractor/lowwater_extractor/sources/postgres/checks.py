"""Checks that a database is ready for capture, each with a fix."""

from __future__ import annotations

from collections.abc import Iterator

from lowwater.errors import LowwaterError
from lowwater_extractor.api import Check
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect_replication
from lowwater_extractor.sources.postgres.cursor.setup import check_cursors
from lowwater_extractor.sources.postgres.setup import Setup

VERSION_MIN, VERSION_MAX = 14, 18

_SELECT = """
SELECT string_agg(format('%%I.%%I', n.nspname, c.relname), ', ') FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s) AND NOT has_table_privilege(c.oid, 'SELECT')"""
_OWNED = """
SELECT string_agg(format('%%I.%%I', n.nspname, c.relname), ', ') FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%s) AND NOT pg_has_role(c.relowner, 'USAGE')"""
_FREE = """
SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication)"""


def check_source(config: PostgresConfig, source: str) -> list[Check]:
    """Run all checks. A failed check does not stop the next ones, except for a failed connection."""
    catalogue = DatabaseCatalogue(config, source)
    try:
        version = catalogue.connection.info.server_version // 10_000
    except LowwaterError as error:
        return [Check("connection", False, error.what, error.hint or "")]
    try:
        return list(_checks(config, source, catalogue, version))
    finally:
        catalogue.close()


def _checks(config: PostgresConfig, source: str, catalogue: DatabaseCatalogue, version: int) -> Iterator[Check]:
    yield Check("connection", True, f"{config.host}:{config.port}/{config.database} as {config.user}")
    is_known = VERSION_MIN <= version <= VERSION_MAX
    yield Check("version", is_known, str(version), f"lowwater supports PostgreSQL {VERSION_MIN} to {VERSION_MAX}")
    if config.mode == "incremental":
        yield from check_cursors(config, catalogue)
        return
    ((encoding,),) = catalogue.ask("SHOW server_encoding")
    yield Check("encoding", encoding != "SQL_ASCII", encoding, "move to a database with an encoding, for example UTF8")
    setup = Setup(config, source, catalogue)
    if config.has_log:
        yield from _log(config, source, setup, catalogue)
    yield from _tables(config, setup, catalogue)


def _log(config: PostgresConfig, source: str, setup: Setup, catalogue: DatabaseCatalogue) -> Iterator[Check]:
    ((level,),) = catalogue.ask("SHOW wal_level")
    yield Check("wal_level", level == "logical", level, "ALTER SYSTEM SET wal_level = logical; and restart the server")
    ((slots, senders),) = catalogue.ask(_FREE)
    has_slot = bool(catalogue.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", setup.slot))
    yield Check(
        "slots",
        has_slot or slots > 1,
        f"{slots} free",
        "raise max_replication_slots (two for each source)",
    )
    yield Check("senders", senders > 1, f"{senders} free", "raise max_wal_senders (two for each source)")
    yield _replication(config, source)


def _replication(config: PostgresConfig, source: str) -> Check:
    try:
        connect_replication(config, source).close()
    except LowwaterError as error:
        fix = f"ALTER ROLE {config.user} REPLICATION; and a line of type `database` for it in pg_hba.conf"
        return Check("replication", False, error.what, fix)
    return Check("replication", True, "may replicate")


def _tables(config: PostgresConfig, setup: Setup, catalogue: DatabaseCatalogue) -> Iterator[Check]:
    try:
        tables = setup.tables()
    except LowwaterError as error:
        yield Check("tables", False, error.what, error.hint or "")
        return
    keyless = sum(not table.has_identity for table in tables)
    yield Check("tables", True, f"{len(tables)} tables{f', {keyless} of them inserts only' if keyless else ''}")
    oids = [table.oid for table in tables]
    ((unread,),) = catalogue.ask(_SELECT, oids)
    yield Check("select", not unread, unread or "may read them", f"GRANT SELECT ON {unread} TO {config.user}")
    if not config.has_log:
        return
    if config.manage_publication:
        ((foreign,),) = catalogue.ask(_OWNED, oids)
        yield Check(
            "publication", not foreign, f"not owned: {foreign}" if foreign else "can be made",
            f"make {config.user} a member of the role that owns {foreign}; or make the publication yourself and set "
            "manage_publication: false",
        )  # fmt: skip
        return
    try:
        setup.publications.ensure(tables)
    except LowwaterError as error:
        yield Check("publication", False, error.what, error.hint or "")
    else:
        yield Check("publication", True, f"{setup.publications.main} has all tables")
