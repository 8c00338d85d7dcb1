"""Notes of compactions and copies, written before their files, from which a sweep decides which files to delete.

An attempt that was killed or paused may have files in the store that no manifest lists. A sweep may delete them only
once the attempt conflicts with the chain and so can never be committed. The note also identifies the manifest that
removed merged files.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, ValidationError

from lowwater.errors import LedgerError, NotThereError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ATTEMPTS, Layer, Manifest, ManifestKind
from lowwater.lake.store.base import Store

_SUFFIX = ".json"


class AttemptNote(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    attempt: str
    #: number of the newest manifest when it was planned
    n: int
    #: paths of the files that it removes
    removed: tuple[str, ...]
    #: table → its live state files at planning time, if the attempt writes a state
    states: dict[str, tuple[str, ...]] = {}
    #: of a copy: (copy, chunk) of the chunks that it lands, all or some of them
    chunks: tuple[tuple[str, int], ...] = ()

    def can_land_in(self, chain: Chain) -> bool:
        """Of a copy: whether any of its chunks can still land."""
        return any(c not in chain.landed_chunks and c[0] not in chain.closed_copies for c in self.chunks)

    def can_land(self, chain: Chain, live: set[str], states: dict[str, set[str]]) -> bool:
        """Whether the attempt can still be committed. `states`: table → its live state files."""
        if self.chunks:
            return self.can_land_in(chain)
        return live.issuperset(self.removed) and all(
            states.get(table, set()) == set(seen) for table, seen in self.states.items()
        )

    def decided_by(self, chain: Chain) -> Manifest | None:
        """The first manifest that is of this attempt, or that it conflicts with."""
        if self.chunks:
            return self._copy_decided_by(chain)
        return next((m for m in chain.log(self.n + 1) if m.attempt == self.attempt or self._conflicts(m)), None)

    def _copy_decided_by(self, chain: Chain) -> Manifest | None:
        """A copy may land only some of its chunks, so it is decided once all of them conflict."""
        left = set(self.chunks)
        for manifest in chain.log(self.n + 1):
            if manifest.kind is ManifestKind.COPY:
                left -= {(file.copy_id, file.chunk) for file in manifest.files}
                left = {chunk for chunk in left if chunk[0] not in manifest.closed_copies}
            if manifest.attempt == self.attempt or not left:
                return manifest
        return None

    def _conflicts(self, manifest: Manifest) -> bool:
        removed = set(manifest.removed)
        if not removed.isdisjoint(self.removed):
            return True
        tables = {file.table for file in manifest.files if file.layer is Layer.STATE}
        return not tables.isdisjoint(self.states) or any(not removed.isdisjoint(seen) for seen in self.states.values())


def note_path(attempt: str) -> str:
    return f"{ATTEMPTS}/{attempt}{_SUFFIX}"


def write_note(store: Store, note: AttemptNote) -> None:
    store.create(note_path(note.attempt), note.model_dump_json().encode())


def read_notes(store: Store) -> Iterator[AttemptNote]:
    for stored in list(store.list(ATTEMPTS)):
        try:
            yield AttemptNote.model_validate_json(store.get(stored.path))
        except NotThereError:  # deleted by another sweep
            continue
        except ValidationError as error:
            raise LedgerError(
                f"{stored.path} cannot be read: {error}",
                position=stored.path,
                hint="was it written by a newer lowwater? no file is swept until it can be read or is deleted",
            ) from error
