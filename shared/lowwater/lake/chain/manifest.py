"""What one landing says of itself. The chain of manifests is the ledger: readers take files from it only.

`_ledger/<n, 20 digits>.json` is created only if it is absent, and never removed: a number is never free again.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from lowwater.errors import LedgerError

LEDGER = "_ledger"
#: what compactions are about to replace, noted before they write
ATTEMPTS = "_attempts"
FORMAT = 1
_NAME = re.compile(rf"{LEDGER}/(\d{{20}})\.json")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


#: in the place of a table's name: all that there are
ALL_TABLES = "*"


class ManifestKind(StrEnum):
    #: the first manifest of a lake that does not go back to the first transaction
    BEGIN = "begin"
    LAND = "land"
    COPY = "copy"
    COMPACT = "compact"


class Layer(StrEnum):
    """What a file holds."""

    #: changes with their CDC columns
    STREAM = "stream"
    #: rows as they were copied
    COPY = "copy"
    #: the latest row of each key at the file's `gsn_max`; rows are as in `stream`
    STATE = "state"


class Place(_Model):
    """One change: a transaction and the number of the change in it."""

    gsn: int
    seq: int


class Bounds(_Model):
    """Of a column, as JSON has it; None where nothing is known."""

    min: Any
    max: Any


class TangleFacts(_Model):
    """Of a `stream` file: whether a transaction puts a row under a key and later takes one away from there.

    A transaction may go on in another file: what those at the file's two ends do is told apart.
    """

    #: one does, in this file
    inside: bool = False
    #: its first transaction puts a row somewhere, or takes one away
    first_adds: bool = False
    first_takes: bool = False
    #: and its last one
    last_adds: bool = False
    last_takes: bool = False


class File(_Model):
    """One Parquet file, all of one table version."""

    path: str
    #: `source.namespace.table`, the name that readers ask for
    table: str
    layer: Layer = Layer.STREAM
    schema_id: int
    #: columns that make a row's key, by their real names; empty for a table without a key
    key: tuple[str, ...]
    rows: int
    bytes: int
    sha256: str
    #: `_gsn` of the first and the last row; of a state file: what it covers
    gsn_min: int
    gsn_max: int
    #: of the key columns
    bounds: dict[str, Bounds] = {}
    #: where the table was emptied, in this file
    truncates: tuple[Place, ...] = ()
    #: rows that leave out columns which the log did not carry
    unchanged_rows: int = 0
    #: changes of the same key were folded: it answers only at or above this gsn
    folded_to: int = 0
    #: None: not known, as of files that were written before this was noted
    tangles: TangleFacts | None = None
    copy_id: str = ""
    chunk: int = 0
    #: a chunk's positions before and after its read, as `major.minor`
    low: str = ""
    high: str = ""


class TableVersion(_Model):
    """What a reader must know of a table version, so that the lake can be read without Kafka."""

    table: str
    version: int
    key: tuple[str, ...]
    #: the Avro schema of its changes, with the real names and types of the columns
    avro: str


class Landed(_Model):
    """How far the ordered topic has landed: just behind a Commit."""

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
    #: of the source, which `lows` belong to
    generation: int = 0
    #: the least `low` of each table's chunks, as `major.minor`
    lows: dict[str, str] = {}


class Generation(_Model):
    """A source's capture from scratch: its orders mean nothing below this gsn."""

    source: str
    generation: int
    #: of its first transaction
    gsn: int


class StaleTables(_Model):
    """From this gsn on the state of these tables is not known, until a later copy of them is readable."""

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
    #: SHA-256 of the manifest before; empty for the first
    previous: str
    #: in every manifest, whatever its kind: the ledger's place behind it
    landed: Landed
    gsn: int
    #: the highest commit time landed so far: it never falls, but one that lies ahead keeps it there
    commit_ts_us: int
    #: the highest clock of the sources landed so far: it never falls, and is never far ahead of their extractors' own.
    #: Manifests from before have none
    clock_us: int = 0
    #: of a landing: where it began. It holds the transactions behind `from_gsn` up to `gsn`
    from_offset: int | None = None
    from_gsn: int | None = None
    transactions: int = 0
    files: tuple[File, ...] = ()
    #: paths that are no longer live
    removed: tuple[str, ...] = ()
    #: by schema id: versions that no manifest before this one names
    versions: dict[int, TableVersion] = {}
    skipped: tuple[SkippedTransaction, ...] = ()
    copied: tuple[CopiedTables, ...] = ()
    stale: tuple[StaleTables, ...] = ()
    #: those that no manifest before this one names
    generations: tuple[Generation, ...] = ()
    #: copies that are cancelled or replaced: nothing of them lands any more
    closed_copies: tuple[str, ...] = ()
    #: retention: what lies below can no longer be asked for
    history_from: int = 0

    @property
    def time_us(self) -> int:
        """Up to when it holds what was committed. Nothing is committed later than it lands."""
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
            f"manifest {n} says that it is number {manifest.n}, format {manifest.format}",
            position=manifest_path(n),
            hint="it was moved, or written by a newer lowwater",
        )
    return manifest
