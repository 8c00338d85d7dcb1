"""Verifies a whole lake, and reports all damage instead of only the first."""

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
#: fields of a checkpoint that are compared otherwise, or say nothing of the manifests
_NOT_FOLDED = {"format", "empty_tables", "parts"}
_REMAKE = f"it can be created again: delete {HINT}, and the next landings write a new one"

#: what is verified, how many are done, and how many there are
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Damage:
    what: str
    path: str
    #: the damaged manifest, or the one that added the file
    manifest: int | None
    hint: str
    #: a file that is in no manifest: it uses space and does no harm
    rubbish: bool = False


def verify(store: Store, *, deep: bool = True, progress: Progress | None = None) -> Iterator[Damage]:
    """Verifies manifests, checkpoints and live files: their existence and size, with `deep` also their hash."""
    return _Verify(store, deep, progress or (lambda what, done, of: None)).run()


class _Verify:
    def __init__(self, store: Store, deep: bool, progress: Progress) -> None:
        self._store = store
        self._deep = deep
        self._progress = progress
        self._fold = Fold(Checkpoint())
        self._sizes: dict[str, int] = {}
        #: every path that a manifest adds, and the manifest
        self._named: dict[str, int] = {}
        #: a manifest is missing or cannot be read: its content is unknown
        self._holes = False
        #: the previous manifest is missing or cannot be read
        self._after_hole = False

    def run(self) -> Iterator[Damage]:
        # Manifests are listed first, because files are written before their manifest. Later commits are not verified.
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
                yield Damage(f"a checkpoint of manifest {named.n}, which does not exist", named.path, named.n, _REMAKE)
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
        # continue as if it followed the previous one: later manifests are verified independently
        self._fold.add(manifest.model_copy(update={"previous": self._fold.head.digest}), data)
        self._after_hole = False
        yield from (Damage(what, path, n, hint) for what, hint in found)

    def _place(self, manifest: Manifest) -> Iterator[tuple[str, str]]:
        """Checks that the manifest follows the previous one."""
        n, before = manifest.n, self._fold.head
        if self._after_hole:
            return
        if manifest.previous != before.digest:
            yield (
                f"manifest {n} does not follow manifest {n - 1}: it has the hash of another one",
                f"manifest {n - 1} or {n} was changed or replaced manually: {_RESTORE}",
            )
        hint = "a landing is missing, or was landed twice: stop landing; compare with the ordered topic"
        if manifest.commit_ts_us < before.commit_ts_us:
            yield f"manifest {n}: the highest commit time decreases", hint
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
        """Checks the files that the manifest adds and removes."""
        n = manifest.n
        hint = f"manifest {n} was changed manually, or a writer has a bug: keep a copy and report it"
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
        """Compares a checkpoint with the folded manifests up to its number."""
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
        for name in sorted(Checkpoint.model_fields.keys() - _NOT_FOLDED):
            if getattr(checkpoint, name) != getattr(wanted, name):
                yield Damage(f"the checkpoint and the manifests differ in {name}", named.path, named.n, _REMAKE)
        live = {entry.file.path: entry for entry in self._live()}
        if len(entries) != len(live) or any(live.get(entry.file.path) != entry for entry in entries):
            yield Damage("the checkpoint and the manifests differ in files", named.path, named.n, _REMAKE)
        tables = {*checkpoint.empty_tables, *(table for part in checkpoint.parts for table in part.tables)}
        if tables != self._fold.tables:
            yield Damage("the checkpoint and the manifests differ in tables", named.path, named.n, _REMAKE)

    def _live(self) -> Iterator[Entry]:
        for files in self._fold.tail.values():
            yield from files.values()

    def _files(self) -> Iterator[Damage]:
        live = list(self._live())
        for done, (n, _, file) in enumerate(live, 1):
            what = self._file(file)
            if what is not None:
                hint = f"{_RESTORE}; else the table can be copied again, but the history in this file is lost"
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
        return None if sha256.hexdigest() == file.sha256 else "has different content: its hash is wrong"

    def _rubbish(self) -> Iterator[Damage]:
        hint = "it is deleted after `grace_hours`; a writer may still be writing it"
        if self._holes:
            hint = "do not delete it: it may be in a manifest that cannot be read"
        for path in self._sizes:
            ours = (
                path.startswith((f"{DIRECTORY}/", f"{ATTEMPTS}/")) or path == HINT or manifest_number(path) is not None
            )
            if not ours and path not in self._named:
                yield Damage(f"{path} is in no manifest", path, None, hint, rubbish=True)
