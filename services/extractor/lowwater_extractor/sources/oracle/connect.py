"""Connections, and the driver's errors converted to `SourceError`. No other module imports the driver.

All SQL of this source kind goes through `Database`, so that a test can replace the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import oracledb

from lowwater.errors import LogCorruptError, LogGapError, SnapshotGoneError, SourceError, SourceLostError
from lowwater.runtime.secrets import resolve
from lowwater_extractor.sources.oracle.config import OracleConfig

Rows = list[tuple[Any, ...]]

#: the formats of dates and numbers in a session, also in LogMiner's SQL: `literals.py` parses exactly these
SESSION_SETTINGS = {
    "NLS_DATE_FORMAT": "SYYYY-MM-DD HH24:MI:SS",
    "NLS_TIMESTAMP_FORMAT": "SYYYY-MM-DD HH24:MI:SS.FF9",
    "NLS_TIMESTAMP_TZ_FORMAT": "SYYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM",
    "NLS_NUMERIC_CHARACTERS": ".,",
    "NLS_CALENDAR": "GREGORIAN",
    "TIME_ZONE": "+00:00",
}

#: the server is lost, or not available yet: the operation is retried
_PASSING = frozenset(
    {
        "ORA-00028", "ORA-00054", "ORA-00060", "ORA-01012", "ORA-01033", "ORA-01034", "ORA-01089", "ORA-01090",
        "ORA-01092", "ORA-01109", "ORA-02396", "ORA-03113", "ORA-03114", "ORA-03135", "ORA-12170", "ORA-12514",
        "ORA-12516", "ORA-12519", "ORA-12520", "ORA-12521", "ORA-12528", "ORA-12537", "ORA-12541", "ORA-12543",
        "ORA-12547", "ORA-12571", "ORA-25408",
        "DPY-1001", "DPY-4011", "DPY-4024", "DPY-6000", "DPY-6001", "DPY-6003", "DPY-6005", "DPI-1010", "DPI-1080",
        # a log was switched while it was read: the next query finds it in the archive
        "ORA-00310", "ORA-00313", "ORA-00314", "ORA-16038",
    }
)  # fmt: skip
_GONE = frozenset({"ORA-00308", "ORA-01284", "ORA-01285", "ORA-01291", "ORA-27037", "ORA-15173"})
#: data as of an SCN can no longer be read
_OLD = frozenset({"ORA-01466", "ORA-01555", "ORA-08180", "ORA-08181", "ORA-22924", "ORA-30052"})
_DAMAGED = frozenset({"ORA-00353", "ORA-00354", "ORA-00355", "ORA-00367", "ORA-00368", "ORA-01347", "ORA-01343"})
_HINTS = {
    "ORA-01017": "check user and password; then resume the source",
    "ORA-28000": "ALTER USER … ACCOUNT UNLOCK; then resume the source",
    "ORA-28001": "the password has expired: ALTER USER … IDENTIFIED BY …",
    "ORA-01045": "GRANT CREATE SESSION TO the user (in a container database: CONTAINER=ALL)",
    "ORA-00942": "a grant is missing: `lowwater source check` names the statement",
    "ORA-01031": "a grant is missing: `lowwater source check` names the statement",
    "ORA-01555": "undo of this SCN is no longer retained: raise UNDO_RETENTION; with lob_fetch: never less is queried",
    "ORA-08181": "undo of this SCN is no longer retained: raise UNDO_RETENTION",
    "ORA-01466": "the table was altered since this SCN",
    "ORA-65011": "the PDB does not exist: check `pdb`",
    "ORA-01435": "the user does not exist in this container",
    "DPY-3010": "thin mode supports servers from 12.1 on: set `mode: thick`",
    "DPY-3015": "the user's password verifier is too old for thin mode: set the password again, or set `mode: thick`",
}


class Database(Protocol):
    """The operations that are used on a database connection."""

    def ask(self, sql: str, **binds: object) -> Rows:
        """Run a query and return all rows."""
        ...

    def batches(self, sql: str, rows_max: int, **binds: object) -> Iterator[Rows]:
        """Run a query and return its rows in batches; closing the iterator ends the query."""
        ...

    def frames(self, sql: str, schema: Any, rows_max: int, **binds: object) -> Iterator[Any]:
        """Run a query and return its rows in batches, as Arrow tables with this schema."""
        ...

    def run(self, sql: str, **binds: object) -> None:
        """Run a statement or a PL/SQL block that returns no rows."""
        ...

    def close(self) -> None: ...


class OracleDatabase:
    """`Database` over python-oracledb."""

    def __init__(self, config: OracleConfig, source: str, *, container: str = "") -> None:
        self._source = source
        with named_errors(source, "connect"):
            self._connection = oracledb.connect(**connect_arguments(config))
        self._connection.autocommit = True
        with named_errors(source, "session settings"):
            self._connection.module = f"lowwater {source}"[:48]
        for name, value in SESSION_SETTINGS.items():
            self.run(f"ALTER SESSION SET {name} = '{value}'")
        if container:
            self.run(f"ALTER SESSION SET CONTAINER = {quoted(container)}")

    def ask(self, sql: str, **binds: object) -> Rows:
        with named_errors(self._source, "query"), self._connection.cursor() as cursor:
            cursor.outputtypehandler = _whole_lobs
            cursor.execute(sql, binds)
            return list(cursor.fetchall())

    def batches(self, sql: str, rows_max: int, **binds: object) -> Iterator[Rows]:
        with named_errors(self._source, "query"), self._connection.cursor() as cursor:
            cursor.outputtypehandler = _whole_lobs
            cursor.arraysize = cursor.prefetchrows = rows_max
            cursor.execute(sql, binds)
            while rows := cursor.fetchmany():
                yield list(rows)

    def frames(self, sql: str, schema: Any, rows_max: int, **binds: object) -> Iterator[Any]:
        # imported here because only table copies need Arrow
        import pyarrow as pa

        with named_errors(self._source, "query"):
            for found in self._connection.fetch_df_batches(sql, binds, rows_max, requested_schema=schema):
                yield pa.table(found)

    def run(self, sql: str, **binds: object) -> None:
        with named_errors(self._source, "statement"), self._connection.cursor() as cursor:
            cursor.execute(sql, binds)

    def close(self) -> None:
        # the connection may be lost already, and then there is nothing to close
        try:
            self._connection.close()
        except oracledb.Error:
            return


def _whole_lobs(cursor: oracledb.Cursor, metadata: oracledb.FetchInfo) -> Any:
    """Fetch LOBs as text and bytes, not as locators that have to be read one by one."""
    plain = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }.get(metadata.type_code)
    return None if plain is None else cursor.var(plain, arraysize=cursor.arraysize)


def connect(config: OracleConfig, source: str, *, container: str = "") -> Database:
    return OracleDatabase(config, source, container=container)


def connect_arguments(config: OracleConfig) -> dict[str, Any]:
    """The driver's connect arguments. They contain secrets in plain text."""
    if config.mode == "thick":
        directory = config.client_directory
        oracledb.init_oracle_client(lib_dir=str(directory) if directory else None)
    wanted: dict[str, Any] = {"user": config.user or None, "password": resolve(config.password) or None}
    if config.dsn:
        wanted["dsn"] = config.dsn
    else:
        wanted |= {"host": config.host, "port": config.port, "service_name": config.service}
        # detect a lost peer
        wanted |= {"tcp_connect_timeout": 10.0, "expire_time": 1}
        wanted["protocol"] = "tcps" if config.tls.enabled else "tcp"
    if not config.user:
        wanted["externalauth"] = True
    if config.config_directory is not None:
        wanted["config_dir"] = str(config.config_directory)
    if config.tls.enabled or config.tls.wallet_directory is not None:
        wanted["ssl_server_dn_match"] = config.tls.match_name
        if config.tls.server_name:
            wanted["ssl_server_cert_dn"] = config.tls.server_name
        if config.tls.wallet_directory is not None:
            wanted["wallet_location"] = str(config.tls.wallet_directory)
        if config.tls.wallet_password:
            wanted["wallet_password"] = resolve(config.tls.wallet_password)
    return wanted


def quoted(name: str) -> str:
    """An identifier in SQL text: names cannot be bound."""
    if '"' in name or "\0" in name:
        raise SourceError(f"{name!r} is not a valid Oracle name", hint="names cannot contain double quotes")
    return f'"{name}"'


@contextmanager
def named_errors(source: str, what: str) -> Iterator[None]:
    try:
        yield
    except oracledb.Error as error:
        raise as_source_error(error, source, what) from error


def as_source_error(error: oracledb.Error, source: str, what: str) -> SourceError:
    first = error.args[0] if error.args else None
    code = getattr(first, "full_code", "") or ""
    text = f"{what}: {str(getattr(first, 'message', '') or error).strip()}"
    # one message can contain several errors: ORA-00308 is followed by ORA-27037
    codes = {code, *(word.rstrip(":") for word in text.split() if word.startswith("ORA-"))}
    if codes & _DAMAGED:
        return LogCorruptError(text, source=source, hint="restore the log from a backup")
    if codes & _OLD:
        return SnapshotGoneError(text, source=source, hint=_HINTS.get(code))
    if codes & _GONE:
        return LogGapError(text, source=source, hint="restore the named log at the path that the database expects")
    if code in _PASSING or (not code and getattr(first, "isrecoverable", False)):
        return SourceLostError(text, source=source, hint="the connection is retried; check that the server is up")
    return SourceError(text, source=source, hint=_HINTS.get(code))
