"""Request and response models of the API, with examples for its documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lowwater.control.desired_state import SourceSpec
from lowwater.runtime.config import Name

SPEC_EXAMPLE: dict[str, Any] = {
    "kind": "postgres",
    "group": "bank",
    "config": {
        "host": "db.internal",
        "database": "bank",
        "user": "lowwater",
        "password": "${env:BANK_PASSWORD}",
        "tables": ["bank.*"],
    },
}
ERROR_EXAMPLE: dict[str, Any] = {
    "error": "LogGapError",
    "what": "sequence 4711 of thread 2 is missing",
    "source": "rac",
    "thread": 2,
    "position": "17449.1",
    "hint": "restore the archived log, then resume the source",
}

State = Annotated[
    str,
    Field(
        description="starting, running, paused, failed, stopped; `stalled`: work is pending, but there was no progress "
        "for some seconds; `unreachable`: no status from its service for some seconds",
        examples=["running"],
    ),
]
Reason = Annotated[str, Field(max_length=1000, description="why; is recorded", examples=["node 2 was removed"])]
GivenReason = Annotated[Reason, Field(min_length=1)]


class Stalled(BaseModel):
    """Since when there has been no progress, and why."""

    since_us: int
    seconds: float
    why: str = Field(examples=["Kafka at broker:9092 does not answer: Connection refused"])


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Why(Body):
    reason: Reason = ""


class WhyGiven(Body):
    reason: GivenReason


class NewSource(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "bank", "config": SPEC_EXAMPLE}]})

    name: Name
    config: SourceSpec


class Candidate(Body):
    """A source that has not been added yet."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"config": SPEC_EXAMPLE["config"]}]})

    name: Name = "candidate"
    config: dict[str, Any] = Field(description="settings of the kind")


class Accepted(BaseModel):
    """The command was written and read back, and is in effect."""

    name: str = Field(examples=["bank"])
    wanted: Literal["running", "paused", "stopped", "removed"]
    version: int = Field(description="version of its desired state", examples=[3])
    reason: str


class Thread(BaseModel):
    thread: int
    state: str = Field(examples=["open"])
    published: str | None = Field(description="the order of the last commit in Kafka", examples=["17450.4398046534937"])
    mark: str | None = Field(description="no commit at or below this order is still to come", examples=["17449.*"])
    merger_mark: str | None = Field(description="the last mark that the merger has read", examples=["17448.*"])
    is_at_end: bool
    is_held: bool = Field(description="not read now: too far ahead of the other threads")
    lead_bytes: int
    is_excluded: bool
    holds_seconds: float | None = Field(description="how long it has held the watermark; null if it does not")


class SourceStatus(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str = Field(examples=["bank"])
    kind: str = Field(examples=["postgres"])
    group: str | None
    state: State
    wanted: str
    reason: str
    version: int
    error: dict[str, Any] | None = Field(examples=[ERROR_EXAMPLE])
    stalled: Stalled | None = None
    heard_seconds_ago: float | None
    per_second: float = Field(description="transactions published per second")
    transactions: int = Field(description="transactions published in this session")
    changes: int
    waiting: int = Field(description="transactions that wait at the merger")
    watermark: str | None
    copies: dict[str, Any]
    threads: list[Thread] = Field(description="its threads")


class Holder(BaseModel):
    model_config = ConfigDict(extra="allow")

    source: str
    thread: int | None
    seconds: float
    why: str = Field(examples=["the last mark of thread 2 (open) is 15578.*"])


class GroupStatus(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    sources: list[str]
    state: State
    wanted: str
    reason: str
    version: int
    error: dict[str, Any] | None
    stalled: Stalled | None = None
    heard_seconds_ago: float | None
    per_second: float = Field(description="transactions released per second")
    gsn: int = Field(description="gsn of the last transaction released")
    holder: Holder | None = Field(description="the source and thread that hold the watermark, and for how long")
    waiting: int
    waiting_bytes: int
    lag_seconds: float = Field(description="age of the oldest waiting commit")
    watermarks: dict[str, str | None]
    exclusions: list[dict[str, Any]]
    landing: dict[str, Any] | None


class FleetOverview(BaseModel):
    at_us: int
    sources: dict[str, SourceStatus]
    groups: dict[str, GroupStatus]
    runners: dict[str, Any]


class Source(BaseModel):
    name: str
    config: SourceSpec
    status: SourceStatus


class Expanded(BaseModel):
    status: SourceStatus | None = None
    config: SourceSpec | None = None


class ThreadPlace(Body):
    """`resume` and `mark` belong together: both must come from the same GET response."""

    thread: int
    resume: str = Field(description="base64; only the source kind can decode it")
    mark: str = Field(pattern=r"^\d{1,20}\.(\*|\d{1,20})$", examples=["17449.*"])


class Positions(BaseModel):
    source: str
    incarnation: str
    epoch: int
    clock_us: int
    in_progress: dict[str, Any] | None
    threads: list[dict[str, Any]]


class PositionsPatch(Body):
    threads: list[ThreadPlace] = Field(min_length=1)


class PositionsChanged(BaseModel):
    dry_run: bool
    effects: list[str] = Field(
        description="which commits are lost or read again", examples=[["thread 1: read again from 17.*"]]
    )
    done: str | None = None


class Check(BaseModel):
    name: str = Field(examples=["wal_level"])
    is_good: bool
    what: str = Field(examples=["replica"])
    fix: str = Field(default="", examples=["ALTER SYSTEM SET wal_level = logical; and restart the server"])


class Checks(BaseModel):
    is_good: bool
    checks: list[Check]


class Column(BaseModel):
    name: str
    type: str


class Table(BaseModel):
    table: str = Field(examples=["bank.accounts"])
    key: list[str]
    columns: list[Column]
    can_copy: bool = Field(description="whether its rows can be copied from the database while the log is read")


class SourceType(BaseModel):
    kind: str
    is_available: bool
    why: str = Field(default="", description="why it is not available")
    config_schema: dict[str, Any] = Field(default={}, description="JSON Schema of `config`")


class NewCopy(Body):
    table: str = Field(min_length=1, max_length=500, examples=["bank.accounts"])
    reason: Reason = ""


CopyState = Literal["requested", "planned", "copying", "readable", "cancelled"]


class Copy(BaseModel):
    table: str
    state: CopyState
    copy_id: str
    request: str
    chunks: int
    chunks_done: int | None = None
    rows: int | None = None
    rows_per_second: int | None = None
    seconds_left: int | None = None
    waiting: str = ""
    reason: str = ""


class NewSkip(Body):
    source: Name
    thread: int = Field(ge=0, le=1_000_000)
    txid: str = Field(min_length=1, max_length=500, examples=["7.12.3349"])
    reason: GivenReason
    position: str = Field(
        default="", max_length=50, pattern=r"^(\d+\.\d+)?$", examples=["17.3"],
        description="order of its commit, as the error shows it; if empty, the next transaction with this id",
    )  # fmt: skip


class Change(BaseModel):
    seq: int
    op: str = Field(description="c, u, d, r or t, as in Debezium")
    table: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    unchanged: list[str] = []


class TransactionHead(BaseModel):
    gsn: int
    source: str
    thread: int
    txid: str
    order: str
    commit_ts_us: int | None
    changes: int
    skipped: str | None = Field(default=None, description="the operator's reason, if it was skipped")


class Transaction(TransactionHead):
    tables: dict[str, dict[str, int]] = Field(description="number of changes by table and op")
    masked: list[str] = Field(description="columns that are hashed or blanked before they are published")
    rows: list[Change]
    is_cut: bool = Field(description="there are more changes: read them with after_seq")


class Landing(BaseModel):
    n: int
    kind: str = Field(examples=["land"])
    at_us: int
    from_gsn: int | None
    gsn: int
    transactions: int
    rows: int
    bytes: int
    files: int
    tables: list[str]
    skipped: list[dict[str, Any]]
    copied: list[dict[str, Any]]
    stale: list[dict[str, Any]] = Field(description="tables whose state is unknown from a gsn on")


class Landings(BaseModel):
    landings: list[Landing] = Field(description="the newest first")
    next: int | None = Field(description="the value of `before` for the next page")


class LakeStale(BaseModel):
    gsn: int = Field(description="the gsn from which on it is stale")
    reason: str


class LakeTable(BaseModel):
    table: str
    version: int
    versions: list[int]
    rows: int
    files: int
    bytes: int
    gsn: int
    stale: LakeStale | None = Field(description="its state is unknown until a copy of it has landed")


class LakeRows(BaseModel):
    table: str
    gsn: int
    columns: list[str]
    rows: list[dict[str, Any]]
