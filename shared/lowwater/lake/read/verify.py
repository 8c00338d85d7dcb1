"""Looks at all of a lake, and says all that is wrong with it: it does not stop at the first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lowwater.errors import LedgerError, NotThereError
from lowwater.lake.chain.checkpoint import HINT, Checkpoint, Named, read_checkpoint, read_hint
from lowwater.lake.chain.checkpoint_parts import DIRECTORY, Entry, PartReader, UnusableError, all_entries
from lowwater.lake.chain.live_files import Fold
from lowwater.lake.chain.manifest import (
    ATTEMPTS,
    LEDGER,
    File,
    Layer,
    Manifest,
    ManifestKind,
    decode_manifest,
    manifest_number,
    manifest_path,
)
from lowwater.lake.store.base import Store, get_all, reads_at_once

_READ_BYTES = 1 << 20
_RESTORE = "restore it from the store's versions or a backup"
_REMAKE = f"it can be made again: remove {HINT}, and the next landings write a new one"

#: what is looked at, how many are done, and of how many
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Damage:
    what: str
    path: str
    #: the manifest that it was found at, or that names the file
    manifest: int | None
    hint: str
    #: a file that no manifest names: it takes place and does no harm
    rubbish: bool = False


def verify(store: Store, *, deep: bool = True, progress: Progress | None = None) -> Iterator[Damage]:
    """Manifests, checkpoints, and every live file. `deep` reads the files for their hash."""
    return _Verify(store, deep, progress or (lambda what, done, of: None)).run()


class _Verify:
    def __init__(self, store: Store, deep: bool, progress: Progress) -> None:
        self._store = store
        self._deep = deep
        self._progress = progress
        self._fold = Fold(Checkpoint())
        self._sizes: dict[str, int] = {}
        #: every path that a manifest names, and the manifest
        self._named: dict[str, int] = {}
        #: a manifest is missing or cannot be read: what it said is not known
        self._holes = False
        #: nothing is known of the manifest before
        self._after_hole = False

    def run(self) -> Iterator[Damage]:
        # The manifests first: their files are there before them. What is committed after this is not looked at.
        numbers = {manifest_number(stored.path) or 0 for stored in self._store.list(LEDGER)}
        last = max(numbers, default=0)
        self._sizes = {stored.path: stored.bytes for stored in self._store.list("")}
        checkpoints = {named.n: named for named in read_hint(self._store)}
        if HINT in self._sizes and not checkpoints:
            yield Damage("the hint to the last checkpoint cannot be read", HINT, None, _REMAKE)
        for n, data in self._manifests(last):
            yield from self._manifest(n, data)
            if n in checkpoints:
                yield from self._checkpoint(checkpoints.pop(n))
        for named in checkpoints.values():
            if not self._is_there(named.n):
                yield Damage(f"a checkpoint of manifest {named.n}, which is not there", named.path, named.n, _REMAKE)
        yield from self._files()
        yield from self._rubbish()

    def _manifests(self, last: int) -> Iterator[tuple[int, bytes | None]]:
        step = reads_at_once(self._store)
        for first in range(1, last + 1, step):
            numbers = range(first, min(first + step, last + 1))
            yield from zip(numbers, get_all(self._store, [manifest_path(n) for n in numbers]), strict=True)
            self._progress("manifests", numbers[-1], last)

    def _is_there(self, n: int) -> bool:
        return get_all(self._store, [manifest_path(n)])[0] is not None

    def _manifest(self, n: int, data: bytes | None) -> Iterator[Damage]:
        path = manifest_path(n)
        if data is None:
            self._holes = self._after_hole = True
            yield Damage(f"manifest {n} is missing", path, n, _RESTORE)
            return
        try:
            manifest = decode_manifest(data, n)
        except LedgerError as error:
            self._holes = self._after_hole = True
            yield Damage(error.what, path, n, error.hint or _RESTORE)
            return
        found = [*self._place(manifest), *self._changes(manifest)]
        # go on as if it followed: what comes behind is looked at by itself
        self._fold.add(manifest.model_copy(update={"previous": self._fold.head.digest}), data)
        self._after_hole = False
        yield from (Damage(what, path, n, hint) for what, hint in found)

    def _place(self, manifest: Manifest) -> Iterator[tuple[str, str]]:
        """Whether it follows the one before."""
        n, before = manifest.n, self._fold.head
        if self._after_hole:
            return
        if manifest.previous != before.digest:
            yield (
                f"manifest {n} does not follow manifest {n - 1}: it names another one's hash",
                f"manifest {n - 1} or {n} was changed or put back by hand: {_RESTORE}",
            )
        hint = "a landing is missing, or landed twice: do not land on; compare with the ordered topic"
        if manifest.commit_ts_us < before.commit_ts_us:
            yield f"manifest {n}: the highest commit time falls", hint
        if manifest.kind is ManifestKind.BEGIN:
            if n != 1:
                yield f"manifest {n}: a lake begins only once", hint
            return
        if manifest.kind is not ManifestKind.LAND:
            if (manifest.landed, manifest.gsn) != (before.landed, before.gsn):
                yield f"manifest {n}: a {manifest.kind} moves offset or gsn", hint
            return
        if manifest.from_gsn != before.gsn or manifest.gsn < before.gsn:
            yield f"manifest {n} lands gsn {manifest.from_gsn} to {manifest.gsn}, the last one was {before.gsn}", hint
        same_topic = (manifest.landed.topic, manifest.landed.topic_id) == (before.landed.topic, before.landed.topic_id)
        if same_topic and manifest.from_offset != before.landed.offset:
            at, to = manifest.from_offset, manifest.landed.offset
            yield f"manifest {n} lands offsets {at} to {to}, the last one ended at {before.landed.offset}", hint

    def _changes(self, manifest: Manifest) -> Iterator[tuple[str, str]]:
        """Whether what it adds and removes can be."""
        n = manifest.n
        hint = f"manifest {n} was changed by hand, or a writer is wrong: keep a copy and report it"
        for path in manifest.removed:
            if not self._holes and (path not in self._named or self._fold.is_removed(path)):
                yield f"manifest {n} removes {path}, which was not live", hint
        known = self._fold.versions.keys() | manifest.versions.keys()
        for file in manifest.files:
            if file.path in self._named:
                yield f"manifest {n} adds {file.path}, which manifest {self._named[file.path]} has added", hint
            self._named[file.path] = n
            if not self._holes and file.schema_id not in known:
                yield f"{file.path} has schema {file.schema_id}, which no manifest describes", hint
            in_range = (manifest.from_gsn or 0) < file.gsn_min <= file.gsn_max <= manifest.gsn
            if manifest.kind is ManifestKind.LAND and file.layer is Layer.STREAM and not in_range:
                yield f"{file.path} holds gsn {file.gsn_min} to {file.gsn_max}, outside of its landing", hint

    def _checkpoint(self, named: Named) -> Iterator[Damage]:
        """Against the manifests, all of them up to its number folded."""
        try:
            checkpoint = read_checkpoint(self._store, named)
            reader = PartReader(self._store)
            entries = [entry for part in checkpoint.parts for entry in all_entries(reader, part)]
        except UnusableError as error:
            yield Damage(error.what, error.position or named.path, named.n, _REMAKE)
            return
        if self._holes:  # there is nothing to compare it with
            return
        wanted = self._fold.checkpoint()
        for name in ("head", "versions", "copied", "closed_copies", "landed_chunks", "last_schemas"):
            if getattr(checkpoint, name) != getattr(wanted, name):
                yield Damage(f"the checkpoint has other {name} than the manifests", named.path, named.n, _REMAKE)
        live = {entry.file.path: entry for entry in self._live()}
        if len(entries) != len(live) or any(live.get(entry.file.path) != entry for entry in entries):
            yield Damage("the checkpoint has other files than the manifests", named.path, named.n, _REMAKE)
        tables = {*checkpoint.empty_tables, *(table for part in checkpoint.parts for table in part.tables)}
        if tables != self._fold.tables:
            yield Damage("the checkpoint has other tables than the manifests", named.path, named.n, _REMAKE)

    def _live(self) -> Iterator[Entry]:
        for files in self._fold.tail.values():
            yield from files.values()

    def _files(self) -> Iterator[Damage]:
        live = list(self._live())
        for done, (n, _, file) in enumerate(live, 1):
            what = self._file(file)
            if what is not None:
                hint = f"{_RESTORE}; else the table can be copied anew, and the history in this file is lost"
                yield Damage(f"{file.path} {what}", file.path, n, hint)
            self._progress("files", done, len(live))

    def _file(self, file: File) -> str | None:
        size = self._sizes.get(file.path)
        if size is None:
            return "is missing"
        if size != file.bytes:
            return f"has {size} bytes, not {file.bytes}"
        if not self._deep:
            return None
        sha256 = hashlib.sha256()
        try:
            with self._store.open(file.path) as content:
                while piece := content.read(_READ_BYTES):
                    sha256.update(piece)
        except NotThereError:
            return "is missing"
        return None if sha256.hexdigest() == file.sha256 else "has other content than was landed"

    def _rubbish(self) -> Iterator[Damage]:
        hint = "it is removed after the grace; a writer may still be at it"
        if self._holes:
            hint = "do not remove it: a manifest that cannot be read may name it"
        for path in self._sizes:
            ours = (
                path.startswith((f"{DIRECTORY}/", f"{ATTEMPTS}/")) or path == HINT or manifest_number(path) is not None
            )
            if not ours and path not in self._named:
                yield Damage(f"{path} is named by no manifest", path, None, hint, rubbish=True)
