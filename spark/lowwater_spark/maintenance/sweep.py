"""Deletes unused files: those that a compaction has replaced, and those of attempts that can no longer be committed.

Files are deleted only after the grace period, because a reader of an older version may still use them. Age alone is not
enough: a paused process may still commit its files until a manifest in the chain conflicts with its attempt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import structlog

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Layer, Manifest
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.store.base import Stored
from lowwater.runtime.config import LakeConfig
from lowwater.runtime.failpoints import fail_point
from lowwater_spark.ledger.attempts import AttemptNote, note_path, read_notes
from lowwater_spark.ledger.ledger import attempt_from_offset

_log = structlog.get_logger()

_ATTEMPT = re.compile(r"/((?:land|compact|copy)-\d{20}-[0-9a-f]{12})-[^/]*\.parquet$")


@dataclass
class Swept:
    files: int = 0
    bytes: int = 0


@dataclass
class _Known:
    """The content of the chain, read after the store was listed."""

    chain: Chain
    #: the grace period of manifests up to this time has ended
    until_us: int
    live: set[str] = field(default_factory=set)
    #: files whose removal is older than the grace period
    removed: set[str] = field(default_factory=set)
    #: attempt → its own manifest, or one that it conflicts with; None if there is none older than the grace period
    decided: dict[str, Manifest | None] = field(default_factory=dict)

    def is_superfluous(self, path: str) -> bool:
        if path in self.live:
            return False
        if path in self.removed:
            return True
        attempt = attempt_of(path)
        if attempt is None:
            return False
        if attempt not in self.decided:
            self.decided[attempt] = self._landing_behind(attempt)
        manifest = self.decided[attempt]
        if manifest is None:
            return False
        # a file in the attempt's own manifest was live: only its removal counts
        return manifest.attempt != attempt or all(file.path != path for file in manifest.files)

    def is_old(self, manifest: Manifest | None) -> bool:
        return manifest is not None and manifest.at_us <= self.until_us

    def _landing_behind(self, attempt: str) -> Manifest | None:
        """The landing of the offset at which this attempt began: after it, the attempt can no longer be committed."""
        offset, head = attempt_from_offset(attempt), self.chain.head
        if offset is None or head.landed.offset <= offset:
            return None
        found = self.chain.manifest(self.chain.first_where(lambda manifest: manifest.landed.offset > offset))
        return found if self.is_old(found) else None


def attempt_of(path: str) -> str | None:
    found = _ATTEMPT.search(path)
    return found.group(1) if found else None


def sweep(chain: Chain, config: LakeConfig, at_us: int) -> Swept:
    # the store is listed before the chain is read: files committed in between are then in the chain
    listed = {stored.path: stored for layer in Layer for stored in chain.store.list(layer)}
    notes = list(read_notes(chain.store))
    chain.refresh()
    known = _Known(chain, at_us - int(config.grace_hours * 3600e6))
    states = _look_at_live(known)
    for note in notes:
        _decide(note, known, states)
    superfluous = [stored for path, stored in sorted(listed.items()) if known.is_superfluous(path)]
    swept = _delete(chain, superfluous)
    for stored in superfluous:
        del listed[stored.path]
    for note in notes:
        if _is_done(note, known, listed):
            chain.store.delete(note_path(note.attempt))
    if swept.files:
        _log.info("swept", files=swept.files, bytes=swept.bytes)
    return swept


def _look_at_live(known: _Known) -> dict[str, set[str]]:
    """Collects the live files; returns table → its live state files."""
    states: dict[str, set[str]] = {}
    for table in known.chain.tables():
        files = all_files(known.chain, table, *Layer)
        known.live.update(file.path for file in files)
        states[table] = {file.path for file in files if file.layer is Layer.STATE}
    return states


def _decide(note: AttemptNote, known: _Known, states: dict[str, set[str]]) -> None:
    manifest = None if note.can_land(known.chain, known.live, states) else note.decided_by(known.chain)
    if manifest is None or not known.is_old(manifest):
        known.decided[note.attempt] = None
        return
    known.decided[note.attempt] = manifest
    if manifest.attempt == note.attempt:
        known.removed.update(manifest.removed)


def _delete(chain: Chain, superfluous: list[Stored]) -> Swept:
    swept = Swept()
    for stored in superfluous:
        chain.store.delete(stored.path)
        swept.files += 1
        swept.bytes += stored.bytes
        fail_point("sweep.some_deleted")
    return swept


def _is_done(note: AttemptNote, known: _Known, listed: dict[str, Stored]) -> bool:
    """True if no file is left that needs the note."""
    manifest = known.decided.get(note.attempt)
    if manifest is None:
        return False
    if manifest.attempt == note.attempt and not listed.keys().isdisjoint(manifest.removed):
        return False
    return all(path in known.live for path in listed if attempt_of(path) == note.attempt)
