"""Merges small files, and writes folded states for fast reads, while landings continue.

A compaction is an attempt like a landing: it writes a note of the files that it removes, writes files under its own
name, and commits them with one manifest. If its inputs were removed meanwhile, it is discarded without an error.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from lowwater.errors import LakeError, LandingConflictError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer, Manifest, ManifestKind
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.store.base import Store, open_lake_store
from lowwater.runtime.config import LakeConfig
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater_spark.landing.reports import report_batch, run_tasks, task_tag
from lowwater_spark.ledger.attempts import AttemptNote, write_note
from lowwater_spark.ledger.ledger import Draft, commit_draft, compact_attempt
from lowwater_spark.maintenance.merge_policy import plan_merges
from lowwater_spark.maintenance.merge_task import Item, ItemReport, run_item
from lowwater_spark.maintenance.state_policy import STATE_POLICY, StatePolicy, state_item
from lowwater_spark.maintenance.state_task import StateItem
from lowwater_spark.maintenance.tombstone_floor import forget_to, gsn_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()

#: limits of one attempt: a larger one conflicts more often
JOBS_MAX = 100
BYTES_MAX = 8 << 30


@dataclass(frozen=True)
class Job:
    """One item, and the files that it replaces."""

    table: str
    item: Item
    removed: tuple[File, ...]
    #: the table's live state files at planning time, if the item writes a state
    states_seen: frozenset[str] | None = None
    history_from: int = 0


@dataclass(frozen=True)
class Compacted:
    """Files and bytes that were removed and written."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    #: numbers of the manifests
    manifests: tuple[int, ...] = ()

    def plus(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.manifests + other.manifests,
        )


def compact(
    spark: SparkSession | None,
    chain: Chain,
    config: LakeConfig,
    tables: Iterable[str] | None = None,
    fold: bool = False,
    *,
    at_us: int | None = None,
    policy: StatePolicy = STATE_POLICY,
) -> Compacted:
    """Compacts all tables, or `tables`, once. `fold`: below `history_from` only the last change of a key is retained.

    Without Spark it runs in this process. No other thread may use the chain.
    """
    chain.refresh()
    wanted = chain.tables() if tables is None else list(tables)
    grace_gsn = gsn_before(chain, (now_us() if at_us is None else at_us) - int(config.grace_hours * 3600e6))

    def jobs() -> Iterator[Job]:
        for table in wanted:
            for item in plan_merges(chain, table, config.file_bytes, chain.head.history_from if fold else 0):
                yield Job(table, item, item.files)
            job = _state_job(chain, table, grace_gsn, policy)
            if job is not None:
                yield job

    return carry_out(spark, chain, config, list(jobs()))


def _state_job(chain: Chain, table: str, grace_gsn: int, policy: StatePolicy) -> Job | None:
    item = plan_state(chain, table, chain.head.gsn, grace_gsn, policy)
    if item is None:
        return None
    states = all_files(chain, table, Layer.STATE)
    # changes that retention has folded into a state exist only there: it stays until the next retention
    kept = max((f.gsn_max for f in states if f.gsn_max <= chain.head.history_from), default=-1)
    removed = tuple(file for file in states if file.gsn_max != kept)
    return Job(table, item, removed, frozenset(file.path for file in states))


def plan_state(
    chain: Chain, table: str, gsn: int, grace_gsn: int, policy: StatePolicy, force: bool = False
) -> StateItem | None:
    """The item that writes the table's state at `gsn`; None if the policy does not require it or folding fails."""
    try:
        item = state_item(chain, table, gsn, policy, force=force)
    except LakeError as error:
        _log.warning("table cannot be folded", table=table, gsn=gsn, why=str(error))
        return None
    return None if item is None else replace(item, forget_to=forget_to(chain, table, gsn, grace_gsn))


def carry_out(spark: SparkSession | None, chain: Chain, config: LakeConfig, jobs: Sequence[Job]) -> Compacted:
    """Runs all jobs, in attempts of bounded size. The jobs must be planned on the current chain."""
    total, seen_n = Compacted(), chain.head.n
    for round_ in _rounds(jobs):
        manifest, done = _attempt(spark, chain, config, seen_n, round_)
        if manifest is not None:
            before = [file for job in done for file in job.removed]
            total = total.plus(
                Compacted(
                    len(before),
                    len(manifest.files),
                    sum(file.bytes for file in before),
                    sum(file.bytes for file in manifest.files),
                    (manifest.n,),
                )
            )
    return total


def _rounds(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    found: list[Job] = []
    size = 0
    for job in jobs:
        weight = sum(file.bytes for file in job.item.files)
        if found and (len(found) == JOBS_MAX or size + weight > BYTES_MAX):
            yield found
            found, size = [], 0
        found.append(job)
        size += weight
    if found:
        yield found


def _attempt(
    spark: SparkSession | None, chain: Chain, config: LakeConfig, seen_n: int, jobs: list[Job]
) -> tuple[Manifest | None, list[Job]]:
    """Runs one attempt; returns its manifest and the finished jobs, or None if it conflicted."""
    attempt = compact_attempt(seen_n)
    removed = tuple(file.path for job in jobs for file in job.removed)
    states = {job.table: tuple(sorted(job.states_seen)) for job in jobs if job.states_seen is not None}
    write_note(chain.store, AttemptNote(attempt=attempt, n=seen_n, removed=removed, states=states))
    fail_point("compact.attempt_noted")
    reports = _run(spark, chain.store, config, attempt, [job.item for job in jobs])
    for report in reports:
        if report.wrong:
            _log.warning("files cannot be merged", table=jobs[report.number].table, why=report.wrong)
    done = [jobs[report.number] for report in reports if not report.wrong]
    draft = Draft(
        ManifestKind.COMPACT,
        chain.manifest(chain.head.n).group,
        attempt,
        tuple(file for report in reports if not report.wrong for file in report.files),
        removed=tuple(file for job in done for file in job.removed),
        history_from=max((job.history_from for job in done), default=0),
        states_seen=tuple((job.table, job.states_seen) for job in done if job.states_seen is not None),
    )
    if not done:
        return None, []
    try:
        manifest = commit_draft(chain, draft, points="compact")
    except LandingConflictError as error:
        _log.info("another compaction was first", attempt=attempt, why=error.what)
        return None, []
    chain.write_checkpoint_if_due()
    _log.info("compacted", n=manifest.n, removed=len(manifest.removed), files=len(manifest.files))
    return manifest, done


def _run(
    spark: SparkSession | None, store: Store, config: LakeConfig, attempt: str, items: Sequence[Item]
) -> list[ItemReport]:
    if spark is None:
        return [run_item(store, attempt, f"{n}", config.file_bytes, n, item) for n, item in enumerate(items)]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = open_lake_store(config)
        for batch in batches:
            for data in batch.column("item").to_pylist():
                number, item = pickle.loads(data)
                report = run_item(own, attempt, f"{number}-{task_tag()}", config.file_bytes, number, item)
                yield report_batch(report)

    # the largest first, so that the last task to finish is a small one
    largest = sorted(enumerate(items), key=lambda found: -sum(f.bytes for f in found[1].files))
    rows = [(bytearray(pickle.dumps(found)),) for found in largest]
    frame = spark.createDataFrame(rows, "item binary").repartition(min(len(rows), 4 * _cores(spark)))
    return sorted(run_tasks(frame, task), key=lambda report: report.number)


def _cores(spark: SparkSession) -> int:
    return int(spark.sparkContext.defaultParallelism)
