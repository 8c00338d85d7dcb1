"""Settings of the source kind `mysql`."""

from __future__ import annotations

import uuid
import zlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lowwater.runtime.secrets import check_reference
from lowwater_extractor.modes import ModesConfig
from lowwater_extractor.spill import MEMORY_BYTES_MAX

_NAMES = uuid.UUID("6b1f6f0e-9c1d-4d0c-8f63-6c6f77776174")


class TlsConfig(BaseModel):
    """TLS settings, named as in MySQL's clients."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: str = Field(default="", description="file with the trusted certificates")
    cert: str = Field(default="", description="file with the client certificate")
    key: str = Field(default="", description="file with its key")

    @model_validator(mode="after")
    def _fits(self) -> TlsConfig:
        if self.mode.startswith("verify") and not self.ca:
            raise ValueError(f"mode: {self.mode} needs `ca`, the trusted certificates")
        if self.mode in ("disabled", "preferred") and (self.ca or self.cert or self.key):
            raise ValueError(f"ca, cert and key have no effect in mode: {self.mode}; set mode: verify_identity")
        return self


class MysqlConfig(ModesConfig):
    host: str = "localhost"
    port: int = Field(default=3306, ge=1, le=65535)
    user: str
    password: Annotated[str, AfterValidator(lambda v: check_reference("password", v))] = Field(
        default="", description="a reference such as ${env:MYSQL_PASSWORD}"
    )
    tls: TlsConfig = TlsConfig()
    connect_seconds_max: float = Field(default=10.0, gt=0)
    tables: list[str] = Field(min_length=1, description="`database.table` or `database.*`")
    server_id: int = Field(
        default=0,
        ge=0,
        lt=1 << 32,
        description="server id of this replica, unique among all replicas. 0: derived from the source's name",
    )
    position: Literal["auto", "gtid", "file"] = Field(
        default="auto", description="read the log by GTIDs, or by file and offset; auto: GTIDs if the server has them"
    )
    without_key: Literal["refuse", "stream_only"] = Field(
        default="refuse", description="for tables without a primary key, which cannot be copied"
    )
    as_text: list[str] = Field(
        default=[], description="`database.table.column`, a date or a time: captured as the server's text"
    )
    zero_dates: Literal["stop", "null"] = Field(
        default="stop", description="for 0000-00-00 and other invalid dates in columns that are not `as_text`"
    )
    foreign_key_actions: Literal["refuse", "recopy"] = Field(
        default="refuse",
        description="captured tables whose rows InnoDB changes by ON DELETE / ON UPDATE actions, without the log: "
        "refuse them, or copy them again when a parent's rows have changed",
    )
    foreign_key_recopy_seconds: float = Field(
        default=60.0, ge=0, description="`recopy`: a table is not copied again more often than this"
    )
    xa_at_start: Literal["wait", "leave_out"] = Field(
        default="wait", description="for XA transactions that are prepared when capture starts"
    )
    copy_tables: bool = Field(default=True, description="copy the rows that exist when capture starts")
    chunk_rows: int = Field(default=500_000, ge=1, description="target number of rows in a chunk of a copy")
    visible_seconds_max: float = Field(
        default=300.0, gt=0, description="how long a chunk waits until logged transactions are visible"
    )
    heartbeat_seconds: float = Field(default=1.0, ge=0.1, description="how often an idle server sends a heartbeat")
    silence_seconds_max: float = Field(default=60.0, gt=0, description="reconnect after this long without data")
    end_check_seconds: float = Field(default=0.25, ge=0, description="how often an idle stream queries the log's end")
    spill_bytes_max: int = Field(
        default=MEMORY_BYTES_MAX, ge=0, description="memory per transaction; the rest goes to disk"
    )
    spill_directory: Path | None = None
    read_bytes: int = Field(default=4 << 20, ge=1, description="bytes that one poll reads")

    def server_id_of(self, source: str) -> int:
        # far above the small ids that are usually assigned to servers
        return self.server_id or 1 << 31 | zlib.crc32(source.encode()) >> 1

    def replica_uuid_of(self, source: str) -> str:
        """Return a stable UUID: the server disconnects the older of two replicas with the same UUID."""
        return str(uuid.uuid5(_NAMES, f"{source}/{self.server_id_of(source)}"))
