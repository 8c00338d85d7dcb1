"""Copies chunks to files of the lake: several per attempt, each by one task, committed by one manifest.

A chunk whose snapshot is gone waits for the plan that replaces it; other chunks continue. A replaced copy is closed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lowwater.errors import LandingConflictError, LowwaterError, SnapshotGoneError, SourceLostError, SparkError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer, Manifest, ManifestKind
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.store.base import Store
from lowwater.records.ids import SchemaId
from lowwater.records.schemas import SchemaStore, open_store
from lowwater.records.types import Chunk
from lowwater.runtime.config import Settings
from lowwater.runtime.failpoints import fail_point
from lowwater_spark import metrics
from lowwater_spark.copy.mirror import CopyMirror
from lowwater_spark.copy.plan import CopyPlan, CopyPlans
from lowwater_spark.copy.progress import Progress
from lowwater_spark.copy.task import ChunkReport, CopyParams, copy_task
from lowwater_spark.landing.reports import run_tasks
from lowwater_spark.ledger.attempts import AttemptNote, write_note
from lowwater_spark.ledger.ledger import Draft, commit_draft, copy_attempt, table_version

_log = structlog.get_logger()

#: chunks of one attempt per core: more chunks mean fewer manifests; fewer chunks mean more idle cores
CHUNKS_PER_CORE = 4
#: wait before a retry: a source that does not answer, a snapshot that is gone, any other error
LOST_SECONDS, GONE_SECONDS, ERROR_SECONDS = 5.0, 60.0, 30.0


class CopySession:
    """One session, from the fencing of a predecessor to the first error. Chain and mirror are not shared."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        group: str,
        store: Store,
        mirror: CopyMirror,
        progress: Progress,
    ) -> None:
        config = settings.group(group)
        assert config.lake is not None
        self._spark = spark
        self._settings = settings
        self._group = group
        self._lake = config.lake
        self._sources = {name: settings.source(name) for name in config.sources}
        self._mirror = mirror
        self._progress = progress
        self._plans = CopyPlans()
        # opened with the first chunk; the landing's store is not thread-safe
        self._schemas: SchemaStore | None = None
        self._chunks_max = CHUNKS_PER_CORE * int(spark.sparkContext.defaultParallelism)
        try:
            self._chain = Chain.open(store)
            repaired = mirror.repair(self._chain)
        except LowwaterError:
            mirror.close()
            raise
        _log.info("copies", n=self._chain.head.n, repaired=repaired)

    def close(self) -> None:
        self._mirror.close()

    def take(self, chunks: Iterable[Chunk]) -> None:
        self._plans.add(chunks)

    def turn(self) -> bool:
        """Closes copies or copies some chunks; False if there is nothing to do now."""
        if self._plans.is_settled:
            self._show()
            return False
        self._chain.refresh()
        self._plans.settle(self._chain)
        closings = self._plans.closings(self._chain)
        chunks = list(islice(self._plans.pending(self._progress.held()), self._chunks_max))
        if closings:
            self._close(closings)
        elif chunks:
            self._copy(chunks)
        self._plans.settle(self._chain)
        self._show()
        return bool(closings or chunks)

    # -- one attempt -------------------------------------------------------------------------------------

    def _copy(self, chunks: Sequence[Chunk]) -> None:
        started = time.monotonic()
        self._begin(chunks)
        attempt, n = copy_attempt(self._chain.head.n), self._chain.head.n
        known = tuple((chunk.copy, chunk.chunk) for chunk in chunks)
        write_note(self._chain.store, AttemptNote(attempt=attempt, n=n, removed=(), chunks=known))
        self._mirror.prepare(attempt, n + 1)
        avro = {chunk.schema_id: self._avro(chunk.schema_id) for chunk in chunks}
        params = CopyParams(self._lake, attempt, tuple(chunks), avro, self._sources)
        try:
            reports = self._run(params)
        except SparkError as error:
            self._mirror.aborted(attempt, n + 1, error.what)
            raise
        done = [report for report in reports if report.error is None]
        if done:
            files = tuple(file for report in done for file in report.files)
            versions = tuple((id_, table_version(avro[id_])) for id_ in sorted({file.schema_id for file in files}))
            manifest = self._commit(Draft(ManifestKind.COPY, self._group, attempt, files, versions=versions))
            if manifest is not None:
                self._measure(manifest, chunks, done, time.monotonic() - started)
        else:
            self._mirror.aborted(attempt, n + 1, f"none of its {len(chunks)} chunks could be read")
        for report in reports:
            if report.error is not None:
                self._failed(chunks[report.number], report.error)

    def _run(self, params: CopyParams) -> list[ChunkReport]:
        count = len(params.chunks)
        frame = self._spark.range(0, count, 1, count)
        try:
            return sorted(run_tasks(frame, partial(copy_task, params)), key=lambda report: report.number)
        except (PySparkException, Py4JError, OSError) as error:
            raise SparkError(
                f"a job that copies chunks failed: {str(error)[:1000]}", hint="it is retried; see the log"
            ) from error

    def _commit(self, draft: Draft) -> Manifest | None:
        """The manifest, or None if another attempt was first: the next turn reads what has landed."""
        try:
            manifest = commit_draft(self._chain, draft, points="copy")
        except LandingConflictError as error:
            _log.info("another copy was first", attempt=draft.attempt, why=error.what)
            # raises FencedError if that was another application
            self._mirror.aborted(draft.attempt, self._chain.head.n + 1, error.what)
            return None
        self._mirror.landed(self._chain)
        fail_point("copy.mirrored")
        self._chain.write_checkpoint_if_due()
        return manifest

    def _close(self, plans: Sequence[CopyPlan]) -> None:
        """Closes copies: no chunk of them can land afterwards. Their landed files, never readable, are removed."""
        attempt, n = copy_attempt(self._chain.head.n), self._chain.head.n
        copies = {plan.copy for plan in plans}
        files = tuple(file for plan in plans for file in self._files(plan))
        if files:
            # a sweep finds the removed files by this note
            write_note(self._chain.store, AttemptNote(attempt=attempt, n=n, removed=tuple(f.path for f in files)))
        self._mirror.prepare(attempt, n + 1)
        draft = Draft(
            ManifestKind.COPY,
            self._group,
            attempt,
            removed=files,
            closed_copies=tuple(sorted(copies)),
            closed_chunks=frozenset(chunk for chunk in self._chain.landed_chunks if chunk[0] in copies),
        )
        if self._commit(draft) is not None:
            for plan in plans:
                _log.info("copy closed", table=plan.lake_table, copy=plan.copy, chunks=plan.chunks, landed=plan.done)

    def _files(self, plan: CopyPlan) -> list[File]:
        return [file for file in all_files(self._chain, plan.lake_table, Layer.COPY) if file.copy_id == plan.copy]

    def _avro(self, schema_id: int) -> str:
        if self._schemas is None:
            self._schemas = open_store(self._settings)
        return self._schemas.entry(SchemaId(schema_id)).schema

    # -- status ------------------------------------------------------------------------------------------

    def _begin(self, chunks: Sequence[Chunk]) -> None:
        copies = {chunk.copy for chunk in chunks}
        for plan in self._plans.active():
            if plan.copy in copies and not self._progress.knows(plan.copy):
                self._progress.begin(plan.copy, sum(file.rows for file in self._files(plan)) if plan.done else 0)
                _log.info("copy begins", table=plan.lake_table, copy=plan.copy, chunks=plan.chunks, landed=plan.done)

    def _measure(
        self, manifest: Manifest, chunks: Sequence[Chunk], done: Sequence[ChunkReport], seconds: float
    ) -> None:
        for report in done:
            chunk = chunks[report.number]
            self._progress.add(chunk.copy, report.rows)
            metrics.COPY_CHUNKS.labels(self._group, chunk.source).inc()
            metrics.COPY_ROWS.labels(self._group, chunk.source).inc(report.rows)
            metrics.COPY_BYTES.labels(self._group, chunk.source).inc(sum(file.bytes for file in report.files))
        rows = sum(report.rows for report in done)
        _log.info(
            "copied",
            n=manifest.n,
            tables=len({chunks[report.number].table for report in done}),
            chunks=len(done),
            rows=rows,
            files=len(manifest.files),
            rows_per_second=round(rows / max(seconds, 0.001)),
            seconds=round(seconds, 3),
        )

    def _failed(self, chunk: Chunk, error: LowwaterError) -> None:
        metrics.COPY_FAILED.labels(self._group, chunk.source, type(error).__name__).inc()
        about = {"table": f"{chunk.source}.{chunk.table}", "copy": chunk.copy, "chunk": chunk.chunk, "why": str(error)}
        if isinstance(error, SnapshotGoneError):
            if self._progress.hold(chunk.copy, f"for a new plan: {error.what}", GONE_SECONDS, needs_plan=True):
                _log.warning("a copy waits for a new plan", **about)
        elif isinstance(error, SourceLostError):
            if self._progress.hold(chunk.source, f"for the database: {error.what}", LOST_SECONDS):
                _log.warning("copies wait for the database", **about)
        elif self._progress.hold(chunk.copy, str(error), ERROR_SECONDS):
            _log.error("a chunk cannot be copied", **about)

    def _show(self) -> None:
        shown = self._progress.show(self._plans.active())
        metrics.COPY_PENDING.labels(self._group).set(shown["chunks_left"])
        metrics.COPY_ROWS_LEFT.labels(self._group).set(shown["rows_left"])
        metrics.COPY_WAITING.labels(self._group).set(shown["waiting_for_a_plan"])
