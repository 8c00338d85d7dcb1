"""The chain of manifests, folded: what is live, and how far it goes. Opening does not grow with history."""

from __future__ import annotations

from dataclasses import dataclass

from lowwater.errors import LakeDamagedError, NotThereError
from lowwater.lake.manifest import (
    CopiedTables,
    File,
    Landed,
    Manifest,
    TableVersion,
    decode_manifest,
    digest,
    manifest_path,
)
from lowwater.lake.store import Store


@dataclass(frozen=True, slots=True)
class Head:
    """The last manifest's place; n is 0 before the first."""

    n: int = 0
    digest: str = ""
    landed: Landed = Landed()
    gsn: int = 0
    commit_ts_us: int = 0
    history_from: int = 0


class Chain:
    """One reader's view. `refresh` moves it on; nothing else does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.head = Head()
        self.versions: dict[int, TableVersion] = {}
        self.copied: list[CopiedTables] = []
        self.closed_copies: set[str] = set()
        self._files: dict[str, dict[str, File]] = {}

    @classmethod
    def open(cls, store: Store) -> Chain:
        chain = cls(store)
        chain.refresh()
        return chain

    def refresh(self) -> list[Manifest]:
        """Folds in what came since; those manifests."""
        found: list[Manifest] = []
        while True:
            n = self.head.n + 1
            try:
                data = self.store.get(manifest_path(n))
            except NotThereError:
                return found
            manifest = decode_manifest(data, n)
            self._fold(manifest, data)
            found.append(manifest)

    def _fold(self, manifest: Manifest, data: bytes) -> None:
        if manifest.previous != self.head.digest:
            raise LakeDamagedError(
                f"manifest {manifest.n} does not follow manifest {manifest.n - 1}: it names another one's hash",
                position=manifest_path(manifest.n),
                hint="a manifest was changed or put back by hand: restore it; `lowwater lake verify` lists all damage",
            )
        for path in manifest.removed:
            for files in self._files.values():
                files.pop(path, None)
        for file in manifest.files:
            self._files.setdefault(file.table, {})[file.path] = file
        self.versions.update(manifest.versions)
        self.copied.extend(manifest.copied)
        self.closed_copies.update(manifest.closed_copies)
        self.head = Head(
            manifest.n,
            digest(data),
            manifest.landed,
            manifest.gsn,
            manifest.commit_ts_us,
            max(self.head.history_from, manifest.history_from),
        )

    def tables(self) -> list[str]:
        return sorted(self._files)

    def files(self, table: str, gsn_from: int = 0, gsn_to: int | None = None) -> list[File]:
        """Live files of a table that may hold changes with gsn_from < gsn ≤ gsn_to, in the order they were landed."""
        to = self.head.gsn if gsn_to is None else gsn_to
        return [f for f in self._files.get(table, {}).values() if f.gsn_max > gsn_from and f.gsn_min <= to]

    def is_live(self, file: File) -> bool:
        return file.path in self._files.get(file.table, {})
