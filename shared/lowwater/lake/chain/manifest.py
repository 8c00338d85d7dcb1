"""Manifests: each lists the files that one landing, copy or compaction adds and removes.

The chain of manifests is the ledger: readers use only files that it lists. `_ledger/<n, 20 digits>.json` is created
only if it is absent, and never deleted: a number is never used twice.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from lowwater.errors import LedgerError

LEDGER = "_ledger"
#: directory of the plans of compactions, which are written before their files
ATTEMPTS = "_attempts"
FORMAT = 1
_NAME = re.compile(rf"{LEDGER}/(\d{{20}})\.json")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


#: stands for all tables
ALL_TABLES = "*"


class ManifestKind(StrEnum):
    #: the first manifest of a lake that does not begin with the first transaction of its group
    BEGIN = "begin"
    LAND = "land"
    COPY = "copy"
    COMPACT = "compact"


class Layer(StrEnum):
    """The content of a file."""

    #: changes with their CDC columns
    STREAM = "stream"
    #: copied rows, without CDC columns
    COPY = "copy"
    #: the latest row of each key at the file's `gsn_max`; rows are as in `stream`
    STATE = "state"


class Place(_Model):
    """The position of a change: its transaction, and its number in it."""

    gsn: int
    seq: int


class Bounds(_Model):
    """Minimum and maximum of a column, as JSON values; None if unknown."""

    min: Any
    max: Any


class TangleFacts(_Model):
    """Of a `stream` file: whether a transaction adds a row to a key and later removes one from the same key.

    A transaction may continue in another file, so the first and the last transaction of the file have their own facts.
    """

    #: a transaction within this file does
    inside: bool = False
    #: the first transaction adds a row to a key, or removes one
    first_adds: bool = False
    first_takes: bool = False
    #: the same for the last transaction
    last_adds: bool = False
    last_takes: bool = False


class File(_Model):
    """One Parquet file with rows of one table version."""

    path: str
    #: full name: `source.namespace.table`
    table: str
    layer: Layer = Layer.STREAM
    schema_id: int
    #: key columns, by their names in the source; empty for a table without a key
    key: tuple[str, ...]
    rows: int
    bytes: int
    sha256: str
    #: lowest and highest `_gsn` of its rows; of a state file: the range that it covers
    gsn_min: int
    gsn_max: int
    #: of the key columns
    bounds: dict[str, Bounds] = {}
    #: positions of truncates in this file
    truncates: tuple[Place, ...] = ()
    #: number of rows without values for some columns, because the log did not contain them
    unchanged_rows: int = 0
    #: changes of the same key were folded: the file can be used only for reads at or above this gsn
    folded_to: int = 0
    #: None: unknown, because the file was written by a version that did not record it
    tangles: TangleFacts | None = None
    copy_id: str = ""
    chunk: int = 0
    #: source positions before and after the chunk was read, as `major.minor`
    low: str = ""
    high: str = ""


class TableVersion(_Model):
    """The schema of a table version, so that the lake can be read without Kafka."""

    table: str
    version: int
    key: tuple[str, ...]
    #: the Avro schema of its changes, with the columns' names in the source and their types
    avro: str


class Landed(_Model):
    """The position in the ordered topic up to which it has landed: the offset after a Commit."""

    topic: str = ""
    topic_id: str = ""
    offset: int = 0


class SkippedTransaction(_Model):
    gsn: int
    source: str
    thread: int
    txid: str
    reason: str


class CopiedTables(_Model):
    """A copy became readable at this gsn."""

    gsn: int
    source: str
    copy_id: str
    tables: tuple[str, ...]
    #: of the source; `lows` are valid only within it
    generation: int = 0
    #: the lowest `low` of each table's chunks, as `major.minor`
    lows: dict[str, str] = {}


class Generation(_Model):
    """The start of a generation of a source: its orders are not comparable with orders below this gsn."""

    source: str
    generation: int
    #: of its first transaction
    gsn: int


class StaleTables(_Model):
    """From this gsn on the state of these tables is unknown, until a later copy of them is readable."""

    gsn: int
    source: str
    tables: tuple[str, ...]
    reason: str


class Manifest(_Model):
    format: int = FORMAT
    n: int
    kind: ManifestKind
    group: str
    attempt: str
    at_us: int
    #: SHA-256 of the previous manifest; empty for the first
    previous: str
    #: in manifests of every kind: the position of the lake after this manifest
    landed: Landed
    gsn: int
    #: the highest commit time landed so far. It never decreases, so a commit time in the future stays here
    commit_ts_us: int
    #: the highest source clock landed so far. It never decreases, and is never far ahead of the extractors' clocks.
    #: 0 in manifests of older versions
    clock_us: int = 0
    #: of a landing: where it began. It has the transactions with from_gsn < gsn ≤ `gsn`
    from_offset: int | None = None
    from_gsn: int | None = None
    transactions: int = 0
    files: tuple[File, ...] = ()
    #: paths that are no longer live
    removed: tuple[str, ...] = ()
    #: by schema id: versions that are in no earlier manifest
    versions: dict[int, TableVersion] = {}
    skipped: tuple[SkippedTransaction, ...] = ()
    copied: tuple[CopiedTables, ...] = ()
    stale: tuple[StaleTables, ...] = ()
    #: generations that are in no earlier manifest
    generations: tuple[Generation, ...] = ()
    #: copies that are cancelled or replaced: no more of their chunks land
    closed_copies: tuple[str, ...] = ()
    #: retention: versions below this gsn cannot be read any more
    history_from: int = 0

    @property
    def time_us(self) -> int:
        """The time up to which it has the commits of the sources: their clock, or for manifests without it the commit
        time, but at most the time of the landing."""
        return self.clock_us or min(self.commit_ts_us, self.at_us)

    def encode(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True, indent=1).encode() + b"\n"


def manifest_path(n: int) -> str:
    return f"{LEDGER}/{n:020}.json"


def manifest_number(path: str) -> int | None:
    found = _NAME.fullmatch(path)
    return int(found.group(1)) if found else None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def decode_manifest(data: bytes, n: int) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(data)
    except ValueError as error:
        raise LedgerError(
            f"manifest {n} cannot be read: {error}",
            position=manifest_path(n),
            hint="was it written by a newer lowwater, or changed by hand? restore it from the store's versions",
        ) from error
    if manifest.n != n or manifest.format != FORMAT:
        raise LedgerError(
            f"manifest {n} contains number {manifest.n}, format {manifest.format}",
            position=manifest_path(n),
            hint="it was moved, or written by a newer lowwater",
        )
    return manifest
