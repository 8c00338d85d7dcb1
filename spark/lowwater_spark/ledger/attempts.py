"""What a compaction or a copy is about to do, noted before it writes: so that a sweep can prove that it never will.

An attempt that was killed, or paused, may have files in the store which no manifest names. They may be removed once it
conflicts with the chain, and not before. The note also leads to the manifest that removed what was merged.
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
    #: the newest manifest that it knew
    n: int
    #: what it is about to remove
    removed: tuple[str, ...]
    #: by table: the live state files that it knew of, where it writes a state
    states: dict[str, tuple[str, ...]] = {}
    #: of a copy: (copy, chunk) that it is about to land, all of them or some
    chunks: tuple[tuple[str, int], ...] = ()

    def can_land_in(self, chain: Chain) -> bool:
        """Of a copy: whether any of its chunks still may."""
        return any(c not in chain.landed_chunks and c[0] not in chain.closed_copies for c in self.chunks)

    def can_land(self, chain: Chain, live: set[str], states: dict[str, set[str]]) -> bool:
        """`states`: by table, the live state files."""
        if self.chunks:
            return self.can_land_in(chain)
        return live.issuperset(self.removed) and all(
            states.get(table, set()) == set(seen) for table, seen in self.states.items()
        )

    def decided_by(self, chain: Chain) -> Manifest | None:
        """The first manifest that is its own, or that it conflicts with."""
        if self.chunks:
            return self._copy_decided_by(chain)
        return next((m for m in chain.log(self.n + 1) if m.attempt == self.attempt or self._conflicts(m)), None)

    def _copy_decided_by(self, chain: Chain) -> Manifest | None:
        """It may land some of its chunks without the others: so it can no more once all of them conflict."""
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
        except NotThereError:  # another sweep was here
            continue
        except ValidationError as error:
            raise LedgerError(
                f"{stored.path} cannot be read: {error}",
                position=stored.path,
                hint="was it written by a newer lowwater? nothing is swept until it is gone or can be read",
            ) from error
