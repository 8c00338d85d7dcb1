"""Connections to MySQL, and the conversion of driver errors to `SourceError`."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import ER

from lowwater.errors import SourceError, SourceLostError
from lowwater.runtime.secrets import resolve
from lowwater_extractor.sources.mysql.config import MysqlConfig, TlsConfig

Rows = list[tuple[Any, ...]]

#: settings that determine the text of values, for every session. An sql_mode could pad or truncate values
SESSION = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, net_read_timeout = 3600,"
    " lock_wait_timeout = 30"
)

ACCESS_DENIED = (ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1227, 1698, 1142, 1143, 1370, 1401, 4151)
#: temporary: the server is stopping, starting or out of connections, or has closed the connection
_PASSING = (
    ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.NEW_ABORTING_CONNECTION, ER.ABORTING_CONNECTION,
    ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.QUERY_INTERRUPTED, ER.NET_READ_ERROR, ER.NET_WRITE_INTERRUPTED,
    ER.NET_READ_INTERRUPTED, ER.NET_ERROR_ON_WRITE, 1317, 1159, 1160, 1161, 3169, 3032,
)  # fmt: skip


def connect(config: MysqlConfig, source: str) -> Connection[Any]:
    with _connecting(config, source):
        return pymysql.connect(
            host=config.host, port=config.port, user=config.user, password=resolve(config.password),
            charset="utf8mb4", autocommit=True, init_command=SESSION, connect_timeout=config.connect_seconds_max,
            program_name=f"lowwater {source}", **_tls(config.tls),
        )  # fmt: skip


def _tls(tls: TlsConfig) -> dict[str, Any]:
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred":
        return {}
    context = ssl.create_default_context(cafile=tls.ca or None)
    context.check_hostname = tls.mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if tls.mode.startswith("verify") else ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key or None)
    return {"ssl": context}


@contextmanager
def _connecting(config: MysqlConfig, source: str) -> Iterator[None]:
    """A refused password from `${file:…}` is retryable: the file is read again at each attempt."""
    try:
        with named_errors(source, f"connect to {config.host}:{config.port} as {config.user}"):
            yield
    except (ssl.SSLError, FileNotFoundError) as error:
        raise SourceError(
            f"connect to {config.host}:{config.port}: TLS: {error}", source=source, hint="check `tls`"
        ) from error
    except SourceLostError:
        raise
    except SourceError as error:
        if "denied" not in error.what or not config.password.startswith("${file:"):
            raise
        hint = "its file is read again at each attempt: write the new password there; else check the user's grants"
        raise SourceLostError(error.what, source=source, hint=hint) from error


def query(connection: Connection[Any], source: str, text: str, *values: object) -> Rows:
    with named_errors(source, "query"), connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return list(cursor.fetchall())


@contextmanager
def named_errors(source: str, what: str) -> Iterator[None]:
    try:
        yield
    except (pymysql.MySQLError, OSError, EOFError, RuntimeError) as error:
        if isinstance(error, ssl.SSLError | FileNotFoundError):
            raise
        raise as_source_error(error, source, what) from error


def as_source_error(error: Exception, source: str, what: str) -> SourceError:
    code, text = error_of(error)
    if code in ACCESS_DENIED:
        return SourceError(
            f"{what}: {text} ({code})", source=source, hint="check user, password and grants; then resume the source"
        )
    # 2000 to 2999 are client errors: no connection, or a broken one
    if not isinstance(error, pymysql.MySQLError) or code == 0 or code in _PASSING or code // 1000 == 2:
        return SourceLostError(f"{what}: {text}", source=source, hint="it is tried again; is the server up?")
    return SourceError(f"{what}: {text} ({code})", source=source)


def error_of(error: Exception) -> tuple[int, str]:
    """Return the server's error code (0: none) and text."""
    if isinstance(error, pymysql.MySQLError) and len(error.args) >= 2 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1])
    return 0, str(error) or type(error).__name__


def quoted(*names: str) -> str:
    """Return the names as a quoted, dot-separated identifier."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)
