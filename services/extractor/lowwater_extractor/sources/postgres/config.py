"""Settings of the source kind `postgres`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lowwater.runtime.secrets import check_reference
from lowwater_extractor.modes import ModesConfig
from lowwater_extractor.spill import MEMORY_BYTES_MAX


class PostgresConfig(ModesConfig):
    host: str = "localhost"
    port: int = Field(default=5432, ge=1, le=65535)
    database: str
    user: str
    password: Annotated[str, AfterValidator(lambda v: check_reference("password", v))] = Field(
        default="", description="a reference such as ${env:POSTGRES_PASSWORD}; empty: libpq's defaults (~/.pgpass, …)"
    )
    #: passed to libpq unchanged: sslmode, sslrootcert, sslcert, sslkey, connect_timeout, …
    options: dict[str, str] = Field(default={})
    tables: list[str] = Field(
        min_length=1, description="`schema.table` or `schema.*`; partitions are captured as part of their table"
    )
    publication: str = Field(default="", description="default: lowwater_<source>")
    slot: str = Field(default="", description="default: lowwater_<source>")
    manage_publication: bool = Field(
        default=True, description="create the publication and keep it in sync with `tables`"
    )
    without_key: Literal["refuse", "insert_only"] = Field(
        default="refuse", description="for tables without a primary key or another replica identity"
    )
    when_locked: Literal["stop", "wait", "take_over"] = Field(
        default="wait", description="what to do when another session reads this source's slot"
    )
    as_text: list[str] = Field(
        default=[], description="`schema.table.column`: captured as the server's text, whatever its type"
    )
    copy_tables: bool = Field(default=True, description="copy the rows that exist when capture starts")
    chunk_rows: int = Field(default=500_000, ge=1, description="target number of rows in a chunk of a copy")
    snapshot_hours_alarm: float = Field(default=12.0, gt=0, description="an older snapshot raises an alarm")
    heartbeat_seconds: float = Field(default=10.0, gt=0, description="how often a heartbeat is written to the log")
    end_check_seconds: float = Field(default=0.25, ge=0, description="how often an idle stream queries the log's end")
    slot_bytes_alarm: int = Field(default=10 << 30, ge=1, description="raise an alarm if the slot retains more log")
    spill_bytes_max: int = Field(
        default=MEMORY_BYTES_MAX, ge=0, description="memory per open transaction; the rest goes to disk"
    )
    spill_directory: Path | None = None
    read_bytes: int = Field(default=4 << 20, ge=1, description="bytes that one poll reads")

    def publication_of(self, source: str) -> str:
        return self.publication or f"lowwater_{source}"

    def slot_of(self, source: str) -> str:
        # slot names allow only lower-case letters, digits and underscores
        return self.slot or f"lowwater_{source}".replace("-", "_")
