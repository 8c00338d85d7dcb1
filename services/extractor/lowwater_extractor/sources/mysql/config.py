"""Settings of the source kind `mysql`."""

from __future__ import annotations

import uuid
import zlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lowwater.runtime.secrets import check_reference
from lowwater_extractor.modes import ModesConfig

_NAMES = uuid.UUID("6b1f6f0e-9c1d-4d0c-8f63-6c6f77776174")


class TlsConfig(BaseModel):
    """As MySQL's own clients call them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: str = Field(default="", description="file with the certificates that are trusted")
    cert: str = Field(default="", description="file with our own certificate")
    key: str = Field(default="", description="file with its key")

    @model_validator(mode="after")
    def _fits(self) -> TlsConfig:
        if self.mode.startswith("verify") and not self.ca:
            raise ValueError(f"mode: {self.mode} needs `ca`, the certificates that are trusted")
        if self.mode in ("disabled", "preferred") and (self.ca or self.cert or self.key):
            raise ValueError(f"ca, cert and key say nothing in mode: {self.mode}; set mode: verify_identity")
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
        description="ours, as a replica; no other may have it. 0: made of the source's name",
    )
    position: Literal["auto", "gtid", "file"] = Field(
        default="auto", description="by what the log is read on: GTIDs where the server has them, or file and offset"
    )
    without_key: Literal["refuse", "stream_only"] = Field(
        default="refuse", description="what to do about tables without a primary key, which cannot be copied"
    )
    as_text: list[str] = Field(
        default=[], description="`database.table.column`, a date or a time: captured as the server's text"
    )
    zero_dates: Literal["stop", "null"] = Field(
        default="stop", description="what to do about 0000-00-00 and its like in columns that are not `as_text`"
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
        default="wait", description="what to do about XA transactions that are prepared when capture begins"
    )
    copy_tables: bool = Field(default=True, description="copy the rows that are older than the log")
    chunk_rows: int = Field(default=500_000, ge=1, description="what a chunk of a copy aims at")
    visible_seconds_max: float = Field(
        default=300.0, gt=0, description="how long a chunk waits until all that is in the log can be seen"
    )
    heartbeat_seconds: float = Field(default=1.0, ge=0.1, description="an idle server is to say so this often")
    silence_seconds_max: float = Field(default=60.0, gt=0, description="without a word for this long it is lost")
    end_check_seconds: float = Field(default=0.25, ge=0, description="how often an idle server is asked where it is")
    spill_bytes_max: int = Field(default=64 << 20, ge=0, description="of one open transaction in memory")
    spill_directory: Path | None = None
    read_bytes: int = Field(default=4 << 20, ge=1, description="how much one poll reads")

    def server_id_of(self, source: str) -> int:
        # far from the small numbers that people give to servers
        return self.server_id or 1 << 31 | zlib.crc32(source.encode()) >> 1

    def replica_uuid_of(self, source: str) -> str:
        """A server drops the older one of two readers with the same name: the newer one has taken over."""
        return str(uuid.uuid5(_NAMES, f"{source}/{self.server_id_of(source)}"))
