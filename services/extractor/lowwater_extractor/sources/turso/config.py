"""Settings of the source kind `turso`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from lowwater_extractor.modes import ModesConfig, is_wanted
from lowwater_extractor.sources.turso.schema.definitions import NAMESPACE, CellType
from lowwater_extractor.spill import MEMORY_BYTES_MAX


class TursoConfig(ModesConfig):
    path: Path = Field(description="the database file; -wal and -tshm are in the same directory")
    tables: list[str] = Field(min_length=1, description="`main.table` or `main.*`")
    settle_seconds: float = Field(
        default=0.0, ge=0, description="`incremental`: 0, because with one writer at a time nothing commits late"
    )
    cdc_table: str = Field(
        default="turso_cdc", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the table to which the writers capture"
    )
    capture: Literal["full", "after", "before", "id"] = Field(
        default="full", description="capture mode of the writers' connections; `before` and `id` give only keys"
    )
    types: dict[str, CellType] = Field(
        default={}, description="`main.table.column`: published as integer, real, text, blob or any (JSON)"
    )
    without_key: Literal["refuse", "rowid"] = Field(
        default="refuse", description="tables without a primary key: `rowid` uses the rowid, if VACUUM is never run"
    )
    upserts: Literal["refuse", "keep_key"] = Field(
        default="refuse", description="upserts into tables whose key is not the rowid: `keep_key` if none changes a key"
    )
    without_commit: Literal["refuse", "leave_out"] = Field(
        default="refuse", description="transactions whose COMMIT is missing because capture ended before it"
    )
    prune: bool = Field(default=False, description="delete changes from the file once they are durable in Kafka")
    prune_seconds: float = Field(default=10.0, gt=0, description="how often changes are deleted")
    audit_seconds: float = Field(
        default=60.0, ge=0, description="how often rows are counted, to find writes that were not captured; 0: never"
    )
    copy_tables: bool = Field(default=True, description="copy rows that are older than the log")
    chunk_rows: int = Field(default=500_000, ge=1, description="target number of rows of a chunk of a copy")
    look_seconds: float = Field(default=0.01, ge=0, description="how often an idle file is polled")
    busy_seconds: float = Field(default=5.0, gt=0, description="how long to wait for another writer's lock")
    read_bytes: int = Field(default=4 << 20, ge=1, description="about how many bytes one poll reads")
    spill_bytes_max: int = Field(
        default=MEMORY_BYTES_MAX, ge=0, description="bytes of a transaction in memory; the rest is on disk"
    )
    spill_directory: Path | None = None

    @model_validator(mode="after")
    def _fits_the_log(self) -> TursoConfig:
        if outside := [name for name in self.tables if not name.startswith(f"{NAMESPACE}.")]:
            raise ValueError(f"tables: {outside[0]}: a Turso file has one schema, so it is {NAMESPACE}.{outside[0]}")
        if self.has_log and self.keys_only and self.copy_tables:
            raise ValueError(
                f"capture: {self.capture} gives no rows, and a copy needs whole rows: set copy_tables: false, or let "
                "the writers capture `full`"
            )
        return self

    @property
    def keys_only(self) -> bool:
        """Only the key is published: `before` lacks inserted rows, and has a wrong row for upserts."""
        return self.has_log and self.capture in ("id", "before")

    def wants(self, table: str) -> bool:
        return is_wanted(self.tables, table)
