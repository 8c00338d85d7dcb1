"""Checkpoints of the chain: all manifests up to a number, folded, so that opening a lake does not read its history.

    _ledger/_last_checkpoint.json                 the latest checkpoints: a hint, replaced each time
    _ledger/_checkpoints/<n>-<digest>.json.gz     head, table versions, copies, and the list of parts
    _ledger/_checkpoints/part-<digest>.parquet    live files, see checkpoint_parts.py

Checkpoints are optional: if one is missing, old or damaged, it is ignored, and the manifests are read instead. All
objects except the hint are named by a hash of their content, so concurrent or interrupted writers do no harm.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from lowwater.errors import NotThereError
from lowwater.lake.chain.checkpoint_parts import DIRECTORY, Draft, Part, UnusableError, write_part
from lowwater.lake.chain.manifest import (
    LEDGER,
    CopiedTables,
    Generation,
    Landed,
    StaleTables,
    TableVersion,
    digest,
    manifest_path,
)
from lowwater.lake.store.base import Store
from lowwater.runtime.failpoints import fail_point

HINT = f"{LEDGER}/_last_checkpoint.json"
FORMAT = 1
#: number of checkpoints in the hint: if the newest is unusable, the one before it is used
_NAMED_MAX = 2


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Head:
    """The state after the last manifest; n is 0 before the first."""

    n: int = 0
    digest: str = ""
    landed: Landed = field(default_factory=Landed)
    gsn: int = 0
    commit_ts_us: int = 0
    history_from: int = 0
    #: as `Manifest.time_us`; 0 after a checkpoint of an older version, which does not contain it
    time_us: int = field(default=0, compare=False)


class Named(_Model):
    """A reference to a checkpoint, in the hint."""

    n: int
    digest: str

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.n:020}-{self.digest[:32]}.json.gz"


class _Hint(_Model):
    format: int = FORMAT
    #: newest first
    checkpoints: tuple[Named, ...]


class Checkpoint(_Model):
    format: int = FORMAT
    head: Head = Head()
    versions: dict[int, TableVersion] = {}
    copied: tuple[CopiedTables, ...] = ()
    stale: tuple[StaleTables, ...] = ()
    generations: tuple[Generation, ...] = ()
    closed_copies: tuple[str, ...] = ()
    #: by copy: first and last number of each run of chunks
    landed_chunks: dict[str, tuple[tuple[int, int], ...]] = {}
    #: schema ids of the stream files of the last landings
    last_schemas: tuple[tuple[int, ...], ...] = ()
    #: tables that had files, and have none now
    empty_tables: tuple[str, ...] = ()
    #: oldest first
    parts: tuple[Part, ...] = ()


def read_hint(store: Store) -> list[Named]:
    """The checkpoints in the hint, newest first; empty if there is no readable hint."""
    try:
        hint = _Hint.model_validate_json(store.get(HINT))
    except (NotThereError, ValueError):
        return []
    return list(hint.checkpoints) if hint.format == FORMAT else []


def read_checkpoint(store: Store, named: Named) -> Checkpoint:
    """Raises UnusableError, also if the chain is not the one that was folded, for example after it was restored."""
    try:
        data = store.get(named.path)
    except NotThereError as error:
        raise UnusableError("the checkpoint is missing", position=named.path) from error
    if digest(data) != named.digest:
        raise UnusableError("the checkpoint was modified: its hash is wrong", position=named.path)
    try:
        checkpoint = Checkpoint.model_validate_json(gzip.decompress(data))
    except ValueError as error:
        raise UnusableError("the checkpoint is of another version of lowwater", position=named.path) from error
    if checkpoint.format != FORMAT or checkpoint.head.n != named.n:
        raise UnusableError("the checkpoint is of another version of lowwater", position=named.path)
    try:
        last = store.get(manifest_path(named.n))
    except NotThereError as error:
        raise UnusableError(f"manifest {named.n} is missing", position=manifest_path(named.n)) from error
    if digest(last) != checkpoint.head.digest:
        raise UnusableError(f"manifest {named.n} is not the one that was folded", position=named.path)
    return checkpoint


def write_checkpoint(
    store: Store, folded: Checkpoint, tables: set[str], drafts: Iterable[Draft], bad: set[str]
) -> Checkpoint:
    """Writes the parts, the checkpoint and the hint, in this order. `bad`: paths that the hint must not contain."""
    parts = tuple(write_part(store, draft) for draft in drafts)
    fail_point("lake.checkpoint_parts")
    empty = tables.difference(*(part.tables for part in parts))
    checkpoint = folded.model_copy(update={"parts": parts, "empty_tables": tuple(sorted(empty))})
    data = gzip.compress(checkpoint.model_dump_json(exclude_defaults=True).encode(), mtime=0)
    named = Named(n=checkpoint.head.n, digest=digest(data))
    store.put(named.path, data)
    fail_point("lake.checkpoint_written")
    others = [other for other in read_hint(store) if other.n != named.n and other.path not in bad]
    # a checkpoint with a higher number, by another writer, stays the first
    names = sorted([named, *others], key=lambda other: -other.n)[:_NAMED_MAX]
    store.put(HINT, _Hint(checkpoints=tuple(names)).model_dump_json(indent=1).encode() + b"\n")
    return checkpoint


def remove_old_checkpoints(store: Store, before_us: int) -> int:
    """Deletes objects that no checkpoint in the hint needs and that are older than this time; returns their number."""
    needed = {HINT}
    names = read_hint(store)
    for named in names:
        needed.add(named.path)
        try:
            needed.update(part.path for part in read_checkpoint(store, named).parts)
        except UnusableError:
            return 0  # its parts are unknown: delete nothing until it is repaired
    old = [s.path for s in store.list(DIRECTORY) if s.path not in needed and s.modified_us < before_us]
    if not names:
        return 0
    for path in old:
        store.delete(path)
    return len(old)


def to_runs(chunks: Iterable[tuple[str, int]]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Converts chunks to runs: they are numbered consecutively, so that a million chunks are mostly one run."""
    runs: dict[str, list[tuple[int, int]]] = {}
    for copy_id, chunk in sorted(chunks):
        of_copy = runs.setdefault(copy_id, [])
        if of_copy and of_copy[-1][1] == chunk - 1:
            of_copy[-1] = (of_copy[-1][0], chunk)
        else:
            of_copy.append((chunk, chunk))
    return {copy_id: tuple(of_copy) for copy_id, of_copy in runs.items()}


def from_runs(runs: dict[str, tuple[tuple[int, int], ...]]) -> set[tuple[str, int]]:
    return {
        (copy_id, chunk) for copy_id, each in runs.items() for first, last in each for chunk in range(first, last + 1)
    }
