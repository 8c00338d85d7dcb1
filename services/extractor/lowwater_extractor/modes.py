"""The modes in which a source is read. The settings are the same for every source kind.

`cdc`: existing rows are copied, and the log is followed. `incremental`: new rows are read periodically by cursor
columns. `full_refresh`: whole tables are read, at the start and on request. See docs/modes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lowwater.errors import StartRefusedError
from lowwater_extractor.api import Stream
from lowwater_extractor.snapshot.refresh import RefreshStream

Mode = Literal["cdc", "incremental", "full_refresh"]

#: settings that only the mode `incremental` has
_INCREMENTAL = ("cursors", "poll_seconds", "settle_seconds")
#: prefix of the resume in a mode without a log; in the mode `cdc` each kind has its own format
_RESUMES: tuple[tuple[bytes, Mode], ...] = ((b'{"count"', "incremental"), (b'{"refresh"', "full_refresh"))


class CursorConfig(BaseModel):
    """The cursor columns by which a table is read in the mode `incremental`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    primary: str = Field(min_length=1, description="increases with every insert and update, for example updated_at")
    secondary: str = Field(default="", description="orders rows whose primary is equal, for example id")
    key: list[str] = Field(default=[], description="columns that identify a row; default: the primary key")
    overlap: float = Field(
        default=0.0,
        ge=0,
        description="how far below its bound a sync reads again, for rows committed late; of a time: seconds",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.primary, self.secondary) if self.secondary else (self.primary,)


class ModesConfig(BaseModel):
    """The settings that every source kind has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: list[str] = Field(min_length=1, description="`schema.table` or `schema.*`")
    mode: Mode = Field(
        default="cdc", description="read the log; or, where there is none, rows by cursor columns or whole tables"
    )
    cursors: Mapping[str, CursorConfig] = Field(default={}, description="`schema.table`: its cursor; for `incremental`")
    poll_seconds: float = Field(default=10.0, gt=0, description="`incremental`: how often new rows are queried")
    settle_seconds: float = Field(
        default=60.0, ge=0, description="`incremental`: longer than any transaction that writes to the tables"
    )

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        if self.mode != "incremental":
            if wrong := [name for name in _INCREMENTAL if name in self.model_fields_set]:
                raise ValueError(f"{', '.join(wrong)}: for mode: incremental only; set that mode, or remove them")
            return self
        if missing := [name for name in self.tables if not name.endswith(".*") and name not in self.cursors]:
            raise ValueError(f"no cursor for {missing[0]}: add cursors: {{{missing[0]}: {{primary: …}}}}")
        if unknown := [name for name in self.cursors if not is_wanted(self.tables, name)]:
            raise ValueError(f"a cursor for {unknown[0]}, which is not in tables: add it there, or remove the cursor")
        return self

    @property
    def has_log(self) -> bool:
        return self.mode == "cdc"


def is_wanted(patterns: Sequence[str], table: str) -> bool:
    namespace, _, _ = table.partition(".")
    return table in patterns or f"{namespace}.*" in patterns or "*.*" in patterns


def open_mode(
    config: ModesConfig,
    source: str,
    resume: bytes | None,
    cdc: Callable[[bytes | None], Stream],
    incremental: Callable[[bytes | None], Stream],
) -> Stream:
    """Open the stream of the configured mode at `resume`. StartRefusedError: `resume` is of another mode."""
    if resume is not None:
        refuse_other_mode(config.mode, source, resume)
    match config.mode:
        case "cdc":
            return cdc(resume)
        case "incremental":
            return incremental(resume)
        case "full_refresh":
            return RefreshStream(resume)


def mode_of(resume: bytes) -> Mode:
    return next((mode for start, mode in _RESUMES if resume.startswith(start)), "cdc")


def refuse_other_mode(wanted: Mode, source: str, resume: bytes) -> None:
    """Raise StartRefusedError if `resume` is of another mode than `wanted`.

    Orders of two modes are not comparable: transactions below the last order would be skipped as already published.
    """
    if (before := mode_of(resume)) != wanted:
        raise StartRefusedError(
            f"the source was captured in the mode {before}, but the config has the mode {wanted}",
            source=source,
            hint="the mode of a source cannot be changed: add a source with another name for the other mode",
        )
