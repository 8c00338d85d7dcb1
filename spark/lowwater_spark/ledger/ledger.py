"""Two-phase commit: files are written under an attempt's name, then one manifest, created only if absent, lists them.

Whether an attempt can be committed is decided by pure functions of the attempt and the chain. After a create that
fails with "exists", "conflict" or no answer, the manifest is read back: the attempt in it shows which process wrote it.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

import structlog

from lowwater.errors import AlreadyThereError, LandingConflictError, StoreError
from lowwater.lake.chain.chain import Chain, Head
from lowwater.lake.chain.manifest import (
    CopiedTables,
    File,
    Generation,
    Landed,
    Layer,
    Manifest,
    ManifestKind,
    SkippedTransaction,
    StaleTables,
    TableVersion,
    manifest_path,
)
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.schema.columns import lake_table
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us

_log = structlog.get_logger()

#: limit of creates without an answer; the next session then reads the result from the chain
TRIES_MAX = 5


@dataclass(frozen=True)
class Draft:
    """An attempt whose files are written, but that has no manifest number yet."""

    kind: ManifestKind
    group: str
    attempt: str
    files: tuple[File, ...] = ()
    # of a land
    from_offset: int = 0
    landed: Landed = field(default_factory=Landed)
    gsn: int = 0
    transactions: int = 0
    commit_ts_us: int = 0
    clock_us: int = 0
    skipped: tuple[SkippedTransaction, ...] = ()
    copied: tuple[CopiedTables, ...] = ()
    stale: tuple[StaleTables, ...] = ()
    generations: tuple[Generation, ...] = ()
    versions: tuple[tuple[int, TableVersion], ...] = ()
    # of a compact
    removed: tuple[File, ...] = ()
    history_from: int = 0
    #: table → its live state files at planning time, if the attempt writes a state
    states_seen: tuple[tuple[str, frozenset[str]], ...] = ()
    # of a copy
    closed_copies: tuple[str, ...] = ()
    #: chunks of the closed copies that had landed at planning time
    closed_chunks: frozenset[tuple[str, int]] = frozenset()


def land_attempt(from_offset: int) -> str:
    """The name contains the first offset: once a later offset has landed, this attempt can never be committed."""
    return f"land-{from_offset:020}-{uuid.uuid4().hex[:12]}"


def attempt_from_offset(attempt: str) -> int | None:
    kind, _, rest = attempt.partition("-")
    return int(rest.partition("-")[0]) if kind == "land" else None


def compact_attempt(seen_n: int) -> str:
    """The name contains the newest manifest at planning time: conflicting manifests have higher numbers."""
    return f"compact-{seen_n:020}-{uuid.uuid4().hex[:12]}"


def copy_attempt(seen_n: int) -> str:
    """As `compact_attempt`, for a copy."""
    return f"copy-{seen_n:020}-{uuid.uuid4().hex[:12]}"


def table_version(avro: str) -> TableVersion:
    """The manifest entry of a table version that no earlier manifest has."""
    table = lake_table(avro)
    return TableVersion(table=table.name, version=table.version, key=table.key, avro=table.avro)


def state_paths(chain: Chain, table: str) -> frozenset[str]:
    return frozenset(file.path for file in all_files(chain, table, Layer.STATE))


def conflict(draft: Draft, chain: Chain) -> str | None:
    """The reason why this draft can never be committed after this chain; None if it can."""
    if draft.kind is ManifestKind.BEGIN and chain.head.n:
        return "the lake has begun already"
    if draft.kind is ManifestKind.LAND:
        if chain.head.landed.topic and chain.head.landed.offset != draft.from_offset:
            return f"offsets {draft.from_offset} … have landed, up to {chain.head.landed.offset}"
        if chain.head.gsn + draft.transactions != draft.gsn:
            return f"gsn {chain.head.gsn} has landed, this one ends {draft.transactions} later at {draft.gsn}"
    if draft.kind is ManifestKind.COMPACT:
        for file in draft.removed:
            if not chain.is_live(file):
                return f"{file.path} is no longer live: another compaction has merged it"
        for table, seen in draft.states_seen:
            if state_paths(chain, table) != seen:
                return f"another compaction has folded {table}"
    if draft.kind is ManifestKind.COPY:
        for file in draft.files:
            if file.copy_id in chain.closed_copies:
                return f"copy {file.copy_id} is closed"
            if (file.copy_id, file.chunk) in chain.landed_chunks:
                return f"chunk {file.chunk} of copy {file.copy_id} has landed"
        for copy in draft.closed_copies:
            if copy in chain.closed_copies:
                return f"copy {copy} is closed"
        landed = {chunk for chunk in chain.landed_chunks if chunk[0] in draft.closed_copies}
        if landed != draft.closed_chunks:
            return "more chunks of the copies that it closes have landed"
    return None


def manifest_behind(draft: Draft, head: Head, known_versions: set[int], at_us: int) -> Manifest:
    """The draft as the manifest after `head`; number, landed and gsn are computed for every try."""
    is_land = draft.kind is ManifestKind.LAND
    return Manifest(
        n=head.n + 1,
        kind=draft.kind,
        group=draft.group,
        attempt=draft.attempt,
        at_us=at_us,
        previous=head.digest,
        landed=draft.landed if is_land or draft.kind is ManifestKind.BEGIN else head.landed,
        gsn=draft.gsn if is_land or draft.kind is ManifestKind.BEGIN else head.gsn,
        commit_ts_us=max(head.commit_ts_us, draft.commit_ts_us),
        clock_us=max(head.time_us, draft.clock_us),
        from_offset=draft.from_offset if is_land else None,
        from_gsn=head.gsn if is_land else None,
        transactions=draft.transactions,
        files=draft.files,
        removed=tuple(file.path for file in draft.removed),
        versions={id_: version for id_, version in draft.versions if id_ not in known_versions},
        skipped=draft.skipped,
        copied=draft.copied,
        stale=draft.stale,
        generations=draft.generations,
        closed_copies=draft.closed_copies,
        history_from=draft.history_from,
    )


def commit_draft(chain: Chain, draft: Draft, points: str = "land") -> Manifest:
    """Creates the manifest: durable, and visible for all tables at once, when this returns.

    Raises LandingConflictError if the draft can never be committed. `points`: prefix of the fail points.
    """
    tries = 0
    while True:
        for manifest in chain.refresh():
            if manifest.attempt == draft.attempt:
                return manifest
        why = conflict(draft, chain)
        if why is not None:
            raise LandingConflictError(
                f"{draft.kind} {draft.attempt} cannot land: {why}",
                position=manifest_path(chain.head.n),
                hint="another process lands in this lake; this one exits. Run one landing application per group",
            )
        manifest = manifest_behind(draft, chain.head, set(chain.versions), now_us())
        fail_point(f"{points}.files_written")
        try:
            chain.store.create(manifest_path(manifest.n), manifest.encode())
        except AlreadyThereError:
            _log.info("number taken", n=manifest.n, attempt=draft.attempt)
        except StoreError as error:
            # it may have been created: the next iteration reads it back
            tries += 1
            _log.warning("no answer to a create", n=manifest.n, attempt=draft.attempt, why=str(error))
            if tries >= TRIES_MAX:
                raise
            time.sleep(0.2 * tries)
        fail_point(f"{points}.manifest_created")
