"""The modes in which a source is read. Every kind has these settings, and they mean the same everywhere.

`cdc`: the rows that are there are copied, then the log is followed. `incremental`: rows by cursor columns, now and
then. `full_refresh`: whole tables, once and whenever it is asked for. See docs/modes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lowwater.errors import StartRefusedError

Mode = Literal["cdc", "incremental", "full_refresh"]

#: settings of the mode `incremental` alone
_INCREMENTAL = ("cursors", "poll_seconds", "settle_seconds")
#: how the resume of a mode without a log begins; those of a log are its kind's own
_RESUMES: tuple[tuple[bytes, Mode], ...] = ((b'{"count"', "incremental"), (b'{"refresh"', "full_refresh"))


class CursorConfig(BaseModel):
    """By what a table is read in the mode `incremental`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    primary: str = Field(min_length=1, description="rises with every insert and update: updated_at, say")
    secondary: str = Field(default="", description="tells rows apart whose primary is equal: id, say")
    key: list[str] = Field(default=[], description="columns that name a row; default: the primary key")
    overlap: float = Field(
        default=0.0, ge=0, description="so far below its bound a sync reads again, for late rows: seconds of a time"
    )

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.primary, self.secondary) if self.secondary else (self.primary,)


class ModesConfig(BaseModel):
    """What the settings of every kind begin with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: list[str] = Field(min_length=1, description="`schema.table` or `schema.*`")
    mode: Mode = Field(
        default="cdc", description="by the log; or, where that is not to be had, by cursor columns or whole tables"
    )
    cursors: Mapping[str, CursorConfig] = Field(default={}, description="`schema.table`: its cursor; for `incremental`")
    poll_seconds: float = Field(default=10.0, gt=0, description="`incremental`: how often there is a look for new rows")
    settle_seconds: float = Field(
        default=60.0, ge=0, description="`incremental`: longer than any transaction that writes to the tables takes"
    )

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        if self.mode != "incremental":
            if wrong := [name for name in _INCREMENTAL if name in self.model_fields_set]:
                raise ValueError(f"{', '.join(wrong)}: for mode: incremental only; set that, or take it out")
            return self
        if missing := [name for name in self.tables if not name.endswith(".*") and name not in self.cursors]:
            raise ValueError(f"no cursor for {missing[0]}: add cursors: {{{missing[0]}: {{primary: …}}}}")
        if unknown := [name for name in self.cursors if not is_wanted(self.tables, name)]:
            raise ValueError(f"a cursor for {unknown[0]}, which tables do not name: add it there, or take it out here")
        return self

    @property
    def has_log(self) -> bool:
        return self.mode == "cdc"


def is_wanted(patterns: Sequence[str], table: str) -> bool:
    namespace, _, _ = table.partition(".")
    return table in patterns or f"{namespace}.*" in patterns or "*.*" in patterns


def mode_of(resume: bytes) -> Mode:
    return next((mode for start, mode in _RESUMES if resume.startswith(start)), "cdc")


def refuse_other_mode(wanted: Mode, source: str, resume: bytes) -> None:
    """Orders of two modes do not compare: what comes below the last one is taken for published."""
    if (before := mode_of(resume)) != wanted:
        raise StartRefusedError(
            f"the source was captured in the mode {before}, and is now to be in {wanted}",
            source=source,
            hint="a source keeps its mode: give the other one a source of its own, under another name",
        )
