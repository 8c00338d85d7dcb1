"""Connections to PostgreSQL, and the conversion of psycopg errors to `SourceError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, sql

from lowwater.errors import SourceError, SourceLostError
from lowwater.runtime.secrets import resolve
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.wire.text_values import SESSION_SETTINGS

Rows = list[tuple[Any, ...]]

#: SQLSTATEs of temporary failures; an error without SQLSTATE (no answer) is temporary as well
_PASSING = ("08", "55P03", "57P01", "57P02", "57P03", "53300", "55006")
#: connection errors carry no SQLSTATE, so their text decides: temporary failures, and refusals by the server, which
#: have FATAL (or its translation, so other texts are listed as well)
_PASSING_WORDS = ("the database system is", "too many", "connection slots", "max_wal_senders", "terminating connection")
_REFUSED_WORDS = ("FATAL:", "authentication failed", "no pg_hba.conf entry", "does not exist", "no password supplied")


def conninfo_of(config: PostgresConfig, source: str, **more: str) -> str:
    """Return a libpq connection string. It contains the password: never put it into a message."""
    settings = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in SESSION_SETTINGS.items())
    wanted: dict[str, str] = {
        "application_name": f"lowwater {source}",
        "connect_timeout": "10",
        # a dead peer is detected within a minute
        "keepalives_idle": "20",
        "keepalives_interval": "10",
        "keepalives_count": "4",
        **config.options,
        **more,
        "host": config.host,
        "port": str(config.port),
        "dbname": config.database,
        "user": config.user,
        "options": settings,
    }
    password = resolve(config.password)
    if password:
        wanted["password"] = password
    return conninfo.make_conninfo(**wanted)


def connect(config: PostgresConfig, source: str) -> psycopg.Connection[Any]:
    with _connecting(config, source, "connect"):
        connection = psycopg.connect(conninfo_of(config, source), autocommit=True)
        # queries must not wait long for a session that holds a lock, for example during ALTER TABLE
        connection.execute("SET lock_timeout = '5s'")
        return connection


def connect_replication(config: PostgresConfig, source: str) -> psycopg.Connection[Any]:
    """Open a replication connection. It also accepts SQL, by the simple query protocol."""
    with _connecting(config, source, "connect for replication"):
        return psycopg.connect(
            conninfo_of(config, source, replication="database"), autocommit=True, cursor_factory=psycopg.ClientCursor
        )


@contextmanager
def _connecting(config: PostgresConfig, source: str, what: str) -> Iterator[None]:
    """A refused password from `${file:…}` is retryable: the file is read again at each attempt."""
    try:
        with named_errors(source, what):
            yield
    except SourceLostError:
        raise
    except SourceError as error:
        if "password" not in error.what or not config.password.startswith("${file:"):
            raise
        hint = "its file is read again at each attempt: write the new password there; else check user and pg_hba.conf"
        raise SourceLostError(error.what, source=source, hint=hint) from error


def query(connection: psycopg.Connection[Any], source: str, text: str | sql.Composed, *values: object) -> Rows:
    with named_errors(source, "query"):
        cursor = connection.execute(text, values or None)
        return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def named_errors(source: str, what: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise as_source_error(error, source, what) from error


def as_source_error(error: psycopg.Error, source: str, what: str) -> SourceError:
    state = error.sqlstate or ""
    text = (error.diag.message_primary or str(error)).strip()
    if state.startswith("28") or (not state and _is_refused_login(text)):
        return SourceError(
            f"{what}: {text}",
            source=source,
            hint="check database, user, password, the role's REPLICATION and pg_hba.conf; then resume the source",
        )
    is_lost = isinstance(error, psycopg.OperationalError) and (not state or state.startswith(_PASSING))
    if is_lost:
        return SourceLostError(f"{what}: {text}", source=source, hint="it is tried again; is the server up?")
    return SourceError(f"{what}: {text}{f' ({state})' if state else ''}", source=source)


def _is_refused_login(text: str) -> bool:
    """Decide by the text: libpq reports no SQLSTATE for a failed connection attempt."""
    is_passing = any(words in text for words in _PASSING_WORDS)
    return not is_passing and any(words in text for words in _REFUSED_WORDS)
