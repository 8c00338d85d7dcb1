"""The chain of manifests, folded to the live files. The time to open it does not grow with the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from lowwater.errors import LakeDamagedError, LakeError
from lowwater.lake.chain.checkpoint import Checkpoint, Head, read_checkpoint, read_hint, write_checkpoint
from lowwater.lake.chain.checkpoint_parts import (
    PART_ENTRIES_MAX,
    Entry,
    Part,
    PartReader,
    TableSummary,
    UnusableError,
    plan_parts,
)
from lowwater.lake.chain.live_files import Fold
from lowwater.lake.chain.manifest import (
    CopiedTables,
    File,
    Generation,
    Manifest,
    StaleTables,
    TableVersion,
    decode_manifest,
    manifest_path,
)
from lowwater.lake.store.base import Store, get_all, reads_at_once

__all__ = ["CHECKPOINT_EVERY", "Chain", "Head", "TableSummary"]

#: a checkpoint is due after this many manifests
CHECKPOINT_EVERY = 100
#: a reader that only refreshes switches to a newer checkpoint after this many times CHECKPOINT_EVERY manifests
_BEHIND_MAX = 4

T = TypeVar("T")
Overlaps = Callable[[int, int], bool]


class Chain:
    """One reader's view of the chain. Only `refresh` moves it forward.

    Files that were added since a checkpoint are in memory; earlier ones are in the parts of the checkpoint.
    """

    def __init__(
        self, store: Store, *, checkpoint_every: int = CHECKPOINT_EVERY, part_entries_max: int = PART_ENTRIES_MAX
    ) -> None:
        self.store = store
        self._every = checkpoint_every
        self._part_entries_max = part_entries_max
        self._reader = PartReader(store)
        #: paths of checkpoints and parts that turned out unusable
        self._bad: set[str] = set()
        self._fold = Fold(Checkpoint())
        self._looked_at = 0

    @classmethod
    def open(cls, store: Store, *, checkpoint_every: int = CHECKPOINT_EVERY) -> Chain:
        chain = cls(store, checkpoint_every=checkpoint_every)
        chain._fold = Fold(chain._newest_checkpoint())
        chain.refresh()
        # The store is not listed. But the number after the next one is checked: a writer would fill a gap.
        while chain._is_there(chain.head.n + 2):
            if not chain.refresh():
                raise _missing(chain.head.n + 1)
        return chain

    @property
    def head(self) -> Head:
        return self._fold.head

    @property
    def versions(self) -> dict[int, TableVersion]:
        """By schema id."""
        return self._fold.versions

    @property
    def copied(self) -> list[CopiedTables]:
        return self._fold.copied

    @property
    def generations(self) -> list[Generation]:
        return self._fold.generations

    @property
    def stale(self) -> list[StaleTables]:
        return self._fold.stale

    @property
    def closed_copies(self) -> set[str]:
        return self._fold.closed_copies

    @property
    def landed_chunks(self) -> set[tuple[str, int]]:
        """(copy, chunk) of the copies that are not closed."""
        return self._fold.landed_chunks

    @property
    def last_schema_ids(self) -> set[int]:
        """Schema ids of the stream files of the last landings: the next landing probably has the same."""
        return {schema_id for ids in self._fold.last_schemas for schema_id in ids}

    def refresh(self) -> list[Manifest]:
        """Reads and folds new manifests; returns them."""
        found = self._read_on()
        if self.head.n - max(self._fold.base.head.n, self._looked_at) >= _BEHIND_MAX * self._every:
            self._looked_at = self.head.n
            self._take_over_newer()
        return found

    def tables(self) -> list[str]:
        """All tables that ever had files."""
        return sorted(self._fold.tables)

    def files(self, table: str, gsn_from: int = 0, gsn_to: int | None = None) -> list[File]:
        """Live files of a table that may have changes with gsn_from < gsn ≤ gsn_to, in the order of their landings.

        Without `gsn_from`, files without changes are included, such as rows copied before the first change.
        """
        to = self.head.gsn if gsn_to is None else gsn_to
        return [entry.file for entry in self._entries(table, lambda low, high: low <= to and high > (gsn_from or -1))]

    def is_live(self, file: File) -> bool:
        if file.path in self._fold.tail.get(file.table, {}):
            return True
        if self._fold.is_removed(file.path):
            return False
        entries = self._entries(file.table, lambda low, high: low <= file.gsn_min and file.gsn_max <= high)
        return any(entry.file.path == file.path for entry in entries)

    def summary(self, table: str) -> TableSummary:
        """Summary of the live files. Parts are read only if files were removed since the checkpoint."""
        if self._fold.removed_from_base():
            return TableSummary.of(entry.file for entry in self._entries(table, lambda *_: True))
        total = TableSummary.of(entry.file for entry in self._fold.tail.get(table, {}).values())
        for part in self._fold.base.parts:
            total = total.plus(part.tables.get(table, TableSummary()))
        return total

    def manifest(self, n: int) -> Manifest:
        """The manifest with this number. Raises LakeError if it is not in view."""
        if not 1 <= n <= self.head.n:
            raise LakeError(f"there is no manifest {n}", hint=f"the chain goes from 1 to {self.head.n}")
        return next(self.log(n, n))

    def log(self, from_n: int = 1, to_n: int | None = None) -> Iterator[Manifest]:
        """The manifests from_n to to_n, both included; without `to_n` to the end of the view."""
        last = self.head.n if to_n is None else min(to_n, self.head.n)
        step = reads_at_once(self.store)
        for first in range(max(from_n, 1), last + 1, step):
            numbers = range(first, min(first + step, last + 1))
            for n, data in zip(numbers, self._get(numbers), strict=True):
                if data is None:
                    raise _missing(n)
                yield decode_manifest(data, n)

    def first_after(self, time_us: int) -> int | None:
        """The number of the first manifest with a later time than this; None if there is none.

        It uses the clocks of the sources, because a commit time may be in the future and would hide later manifests.
        """
        if 0 < self.head.time_us <= time_us:
            return None
        first = self.first_where(lambda manifest: manifest.time_us > time_us)
        return first if first <= self.head.n else None

    def first_where(self, is_behind: Callable[[Manifest], bool]) -> int:
        """The number of the first manifest for which `is_behind` is true; the head's number + 1 if there is none.

        If it is true for a manifest, it must be true for all later ones.
        """
        low, high = 1, self.head.n + 1
        while low < high:
            middle = (low + high) // 2
            if is_behind(self.manifest(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def write_checkpoint_if_due(self) -> bool:
        """Writes a checkpoint if one is due; returns whether it did. Writers call it after a commit."""
        if self._is_due():
            self._take_over_newer()  # another writer may have written it
        if not self._is_due():
            return False
        self.write_checkpoint()
        return True

    def write_checkpoint(self) -> None:
        """Writes a checkpoint of the current view."""

        def write() -> Checkpoint:
            fold = self._fold
            added = sorted((e for files in fold.tail.values() for e in files.values()), key=lambda e: (e.n, e.i))
            removed = fold.removed_from_base()
            drafts = plan_parts(self._reader, fold.base.parts, removed, added, self._part_entries_max)
            return write_checkpoint(self.store, fold.checkpoint(), fold.tables, drafts, self._bad)

        if self.head.n > self._fold.base.head.n:
            self._fold.rebase(self._trying(write))
            self._bad.clear()  # unusable objects are no longer referenced, or have been written again

    def _is_due(self) -> bool:
        return self.head.n // self._every > self._fold.base.head.n // self._every

    def _take_over_newer(self) -> None:
        newer = self._newest_checkpoint(self.head.n)
        if newer.head.n > self._fold.base.head.n:
            self._fold.rebase(newer)

    def _newest_checkpoint(self, n_max: int | None = None) -> Checkpoint:
        """The newest usable checkpoint, an empty one if there is none; with `n_max`, up to that manifest."""
        for named in read_hint(self.store):
            if named.path in self._bad or (n_max is not None and named.n > n_max):
                continue
            try:
                checkpoint = read_checkpoint(self.store, named)
            except UnusableError:
                self._bad.add(named.path)
                continue
            if self._bad.isdisjoint(part.path for part in checkpoint.parts):
                return checkpoint
            self._bad.add(named.path)
        return Checkpoint()

    def _entries(self, table: str, overlaps: Overlaps) -> list[Entry]:
        """A table's live files for whose (gsn_min, gsn_max) `overlaps` is true."""

        def ask() -> list[Entry]:
            found: list[Entry] = []
            for part in self._parts_of(table, overlaps):
                found += (e for e in self._reader.entries(part, table) if not self._fold.is_removed(e.file.path))
            found += self._fold.tail.get(table, {}).values()
            wanted = [entry for entry in found if overlaps(entry.file.gsn_min, entry.file.gsn_max)]
            return sorted(wanted, key=lambda e: (e.n, e.i))

        return self._trying(ask)

    def _parts_of(self, table: str, overlaps: Overlaps) -> Iterator[Part]:
        for part in self._fold.base.parts:
            about = part.tables.get(table)
            if about is not None and overlaps(about.gsn_min, about.gsn_max):
                yield part

    def _trying(self, ask: Callable[[], T]) -> T:
        """Calls a function that reads parts. If a part is unusable, folds the view again from an older checkpoint and
        repeats the call."""
        while True:
            try:
                return ask()
            except UnusableError as error:
                self._bad.add(error.position or "")
                self._fold_again()

    def _fold_again(self) -> None:
        view = self.head
        self._fold = Fold(self._newest_checkpoint(view.n))
        self._read_on(view.n)
        if self.head != view:
            raise _missing(self.head.n + 1)

    def _read_on(self, to_n: int | None = None) -> list[Manifest]:
        """Reads and folds manifests up to `to_n`, or to the end.

        The number of parallel reads doubles: usually there is either nothing new or a lot.
        """
        found: list[Manifest] = []
        at_once = 1
        while to_n is None or self.head.n < to_n:
            first = self.head.n + 1
            end = first + at_once if to_n is None else min(first + at_once, to_n + 1)
            read = self._get(range(first, end))
            for n, data in enumerate(read, first):
                if data is None:
                    break
                manifest = decode_manifest(data, n)
                self._fold.add(manifest, data)
                found.append(manifest)
            behind = read[self.head.n + 1 - first :]
            if behind and all(data is None for data in behind):
                break
            # all were requested at the same time: the missing one may have been created meanwhile, before the others
            if behind and not self._is_there(self.head.n + 1):
                raise _missing(self.head.n + 1)
            at_once = min(2 * at_once, reads_at_once(self.store))
        return found

    def _get(self, numbers: range) -> list[bytes | None]:
        return get_all(self.store, [manifest_path(n) for n in numbers])

    def _is_there(self, n: int) -> bool:
        return self._get(range(n, n + 1))[0] is not None


def _missing(n: int) -> LakeDamagedError:
    return LakeDamagedError(
        f"manifest {n} is missing",
        position=manifest_path(n),
        hint="manifests are never deleted: restore it from the store's versions or a backup; "
        "`lowwater lake verify` lists all damage",
    )
