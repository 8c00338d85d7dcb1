"""Folds manifests, one after the other, to the set of live files and the other state of a lake. No I/O.

It starts at a checkpoint, or before the first manifest. The files that were added since then are the tail.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from lowwater.errors import LakeDamagedError
from lowwater.lake.chain.checkpoint import Checkpoint, Head, from_runs, to_runs
from lowwater.lake.chain.checkpoint_parts import Entry
from lowwater.lake.chain.manifest import (
    CopiedTables,
    Generation,
    Layer,
    Manifest,
    ManifestKind,
    StaleTables,
    TableVersion,
    digest,
    manifest_path,
)

#: number of landings in `last_schemas`
_LANDINGS = 10


class _Removal(NamedTuple):
    #: the manifest that removed the file
    n: int
    #: the manifest that added it; 0 if that is before the tail
    added: int


class Fold:
    def __init__(self, base: Checkpoint) -> None:
        self.base = base
        self.head: Head = base.head
        self.versions: dict[int, TableVersion] = dict(base.versions)
        self.copied: list[CopiedTables] = list(base.copied)
        self.stale: list[StaleTables] = list(base.stale)
        self.generations: list[Generation] = list(base.generations)
        self.closed_copies: set[str] = set(base.closed_copies)
        self.landed_chunks: set[tuple[str, int]] = from_runs(base.landed_chunks)
        self.last_schemas: deque[tuple[int, ...]] = deque(base.last_schemas, _LANDINGS)
        #: all tables that ever had files
        self.tables: set[str] = {*base.empty_tables, *(table for part in base.parts for table in part.tables)}
        #: by table and path
        self.tail: dict[str, dict[str, Entry]] = {}
        #: table by path: a removal contains only the path
        self._tail_table: dict[str, str] = {}
        self._removals: dict[str, _Removal] = {}

    def add(self, manifest: Manifest, data: bytes) -> None:
        """Adds the next manifest; `data` is its content. Raises LakeDamagedError if it does not follow the last one."""
        if manifest.previous != self.head.digest:
            raise LakeDamagedError(
                f"manifest {manifest.n} does not follow manifest {manifest.n - 1}: it has the hash of another one",
                position=manifest_path(manifest.n),
                hint="a manifest was changed or replaced manually: restore it; `lowwater lake verify` lists all damage",
            )
        for path in manifest.removed:
            self._remove(path, manifest.n)
        for i, file in enumerate(manifest.files):
            self._put(Entry(manifest.n, i, file))
        self.versions.update(manifest.versions)
        self.copied.extend(manifest.copied)
        self.stale.extend(manifest.stale)
        self.generations.extend(manifest.generations)
        self._add_chunks(manifest)
        if manifest.kind is ManifestKind.LAND:
            ids = {file.schema_id for file in manifest.files if file.layer is Layer.STREAM}
            self.last_schemas.append(tuple(sorted(ids)))
        self.head = Head(
            manifest.n,
            digest(data),
            manifest.landed,
            manifest.gsn,
            manifest.commit_ts_us,
            max(self.head.history_from, manifest.history_from),
            max(self.head.time_us, manifest.time_us),
        )

    def is_removed(self, path: str) -> bool:
        """Whether it was removed since the base. It may have been added again: check the tail first."""
        return path in self._removals

    def removed_from_base(self) -> set[str]:
        return {path for path, removal in self._removals.items() if removal.added <= self.base.head.n}

    def rebase(self, newer: Checkpoint) -> None:
        """Changes the base to a newer checkpoint of the same chain, and drops from memory what that one contains."""
        n = newer.head.n
        self.base = newer
        entries = [e for files in self.tail.values() for e in files.values() if e.n > n]
        self.tail, self._tail_table = {}, {}
        for entry in entries:
            self._put(entry)
        self._removals = {path: removal for path, removal in self._removals.items() if removal.n > n}

    def checkpoint(self) -> Checkpoint:
        """A checkpoint of the current state, without the lists of files."""
        return Checkpoint(
            head=self.head,
            versions=dict(sorted(self.versions.items())),
            copied=tuple(self.copied),
            stale=tuple(self.stale),
            generations=tuple(self.generations),
            closed_copies=tuple(sorted(self.closed_copies)),
            landed_chunks=to_runs(self.landed_chunks),
            last_schemas=tuple(self.last_schemas),
        )

    def _put(self, entry: Entry) -> None:
        table, path = entry.file.table, entry.file.path
        self.tables.add(table)
        self.tail.setdefault(table, {})[path] = entry
        self._tail_table[path] = table

    def _remove(self, path: str, n: int) -> None:
        table = self._tail_table.pop(path, None)
        added = 0 if table is None else self.tail[table].pop(path).n
        before = self._removals.get(path)
        self._removals[path] = _Removal(n, min(added, before.added) if before else added)

    def _add_chunks(self, manifest: Manifest) -> None:
        if manifest.kind is ManifestKind.COPY:
            self.landed_chunks.update((file.copy_id, file.chunk) for file in manifest.files if file.copy_id)
        if manifest.closed_copies:
            self.closed_copies.update(manifest.closed_copies)
            # no more chunks of a closed copy land: its landed chunks are not needed
            self.landed_chunks = {chunk for chunk in self.landed_chunks if chunk[0] not in self.closed_copies}
