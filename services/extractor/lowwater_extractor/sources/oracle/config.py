"""Settings of the source kind `oracle`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lowwater.runtime.secrets import check_reference
from lowwater_extractor.spill import MEMORY_BYTES_MAX

Secret = Annotated[str, AfterValidator(lambda value: check_reference("password", value))]


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}: write one as Europe/Vienna, or UTC") from None
    return name


def _table(name: str) -> str:
    owner, dot, table = name.partition(".")
    if not owner or not dot or not table or "." in table:
        raise ValueError(f"{name!r}: a table is OWNER.TABLE, or OWNER.* for all of a schema")
    return name


Zone = Annotated[str, AfterValidator(_zone)]
TableName = Annotated[str, AfterValidator(_table)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsConfig(Model):
    """Wallet and TLS settings of python-oracledb."""

    enabled: bool = Field(default=False, description="connect by tcps")
    wallet_directory: Path | None = Field(default=None, description="with ewallet.pem (thin) or cwallet.sso (thick)")
    wallet_password: Secret = Field(default="", description="a reference such as ${env:WALLET_PASSWORD}")
    match_name: bool = Field(default=True, description="check the server's name in its certificate")
    server_name: str = Field(default="", description="the expected distinguished name, if it is not the host's")


class RedoConfig(Model):
    """Where the extractor finds the redo files, for `capture: redo`."""

    online: list[Path] = Field(default=[], description="directories with the online logs")
    archive: list[Path] = Field(default=[], description="directories with the archived logs")
    paths: dict[str, Path] = Field(
        default={}, description="prefix of a path on the server → the local directory that replaces it"
    )

    def local(self, server_path: str) -> Path:
        """The local path of a file on the server, by the longest matching prefix; the same path if none matches."""
        plain = server_path.replace("\\", "/")
        fitting = [begin for begin in self.paths if _begins(plain, begin.replace("\\", "/").rstrip("/"))]
        if not fitting:
            return Path(server_path)
        begin = max(fitting, key=len)
        rest = plain[len(begin.replace("\\", "/").rstrip("/")) :].lstrip("/")
        return self.paths[begin] / PurePosixPath(rest) if rest else self.paths[begin]


def _begins(path: str, begin: str) -> bool:
    return path == begin or path.startswith(begin + "/")


class LogMinerConfig(Model):
    """For `capture: logminer`."""

    batch_rows: int = Field(default=10_000, ge=1, description="rows per fetch from V$LOGMNR_CONTENTS")
    window_scns_min: int = Field(default=1_000, ge=1, description="SCNs in the smallest window that a session mines")
    window_scns_max: int = Field(default=1_000_000, ge=1, description="SCNs in the largest window")
    look_seconds: float = Field(default=1.0, ge=0, description="poll interval at the end of the logs")

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        if self.window_scns_min > self.window_scns_max:
            raise ValueError("window_scns_min is above window_scns_max")
        return self


class OracleConfig(Model):
    capture: Literal["redo", "logminer"] = Field(
        default="redo", description="read the redo files, or let the database's LogMiner read them"
    )
    tables: list[TableName] = Field(min_length=1, description="`OWNER.TABLE` or `OWNER.*`, as the dictionary spells it")

    dsn: str = Field(default="", description="an Easy Connect string, a descriptor or a name of tnsnames.ora")
    host: str = ""
    port: int = Field(default=1521, ge=1, le=65535)
    service: str = Field(default="", description="of the root of a container database, not of a PDB")
    user: str = Field(default="", description="a common user (c##…) in a container database")
    password: Secret = Field(default="", description="a reference such as ${env:ORACLE_PASSWORD}")
    tls: TlsConfig = TlsConfig()
    config_directory: Path | None = Field(default=None, description="with tnsnames.ora and sqlnet.ora")
    mode: Literal["thin", "thick"] = Field(default="thin", description="thick: with Oracle's client libraries")
    client_directory: Path | None = Field(default=None, description="directory of the client libraries")

    pdb: str = Field(default="", description="the captured PDB; empty if the database is not a container database")
    threads: list[Annotated[int, Field(ge=1)]] = Field(
        default=[], description="redo threads, if there is no database connection; else they are discovered"
    )
    redo: RedoConfig = RedoConfig()
    dictionary: Literal["sql"] | Path = Field(
        default="sql", description="`sql`: read from the database; or a file that `lowwater` has written"
    )
    zone: Zone = Field(default="UTC", description="time zone of the database's hosts: times in redo have no zone")
    open_at_start: Literal["refuse", "leave_out"] = Field(
        default="refuse", description="transactions that are open at the start of capture and whose first log is gone"
    )
    without_key: Literal["refuse", "row_images"] = Field(
        default="refuse", description="tables without a primary key: refuse, or publish them with no key"
    )
    lob_fetch: Literal["never", "at_commit"] = Field(
        default="never",
        description="LOBs that are not in the log: `unchanged`, or read by SQL as of the commit's SCN",
    )
    copy_tables: bool = Field(default=True, description="copy the rows that are older than the log")
    chunk_rows: int = Field(default=500_000, ge=1, description="target number of rows of a copy's chunk")
    as_text: list[str] = Field(default=[], description="`OWNER.TABLE.COLUMN`: captured as text, whatever its type")
    spill_bytes_max: int = Field(default=MEMORY_BYTES_MAX, ge=0, description="bytes of open transactions in memory")
    spill_directory: Path | None = None
    read_bytes: int = Field(default=4 << 20, ge=1, description="bytes that one poll reads, over all threads")
    look_seconds: float = Field(default=0.25, ge=0, description="interval between queries for the threads")
    logminer: LogMinerConfig = LogMinerConfig()

    @model_validator(mode="after")
    def _it_can_begin(self) -> Self:
        if self.dsn and (self.host or self.service):
            raise ValueError("give `dsn`, or `host` and `service`, not both")
        if bool(self.host) != bool(self.service):
            raise ValueError("`host` and `service` belong together")
        if self.has_database and not self.user and self.mode == "thin":
            raise ValueError("`user` is missing")
        if self.threads and len(set(self.threads)) != len(self.threads):
            raise ValueError("`threads` contains a duplicate")
        if not self.has_database:
            self._check_without_database()
        return self

    def _check_without_database(self) -> None:
        for is_needed, why in (
            (self.capture == "logminer", "capture: logminer needs a database connection"),
            (self.dictionary == "sql", "dictionary: sql needs a database connection"),
            (self.lob_fetch == "at_commit", "lob_fetch: at_commit needs a database connection"),
            (not self.threads, "without a database `threads` must name the redo threads"),
        ):
            if is_needed:
                raise ValueError(f"{why}: give `dsn`, or `host` and `service`")
        if not self.redo.online and not self.redo.archive:
            raise ValueError("`redo.online` or `redo.archive` must name a directory")

    @property
    def has_database(self) -> bool:
        return bool(self.dsn or self.host)

    @property
    def owners(self) -> list[str]:
        return sorted({name.partition(".")[0] for name in self.tables})

    def wants(self, owner: str, table: str) -> bool:
        return is_named(self.tables, owner, table)


def is_named(tables: Sequence[str], owner: str, table: str) -> bool:
    return f"{owner}.{table}" in tables or f"{owner}.*" in tables
