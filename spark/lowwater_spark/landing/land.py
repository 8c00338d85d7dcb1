"""The landing of a micro-batch: prepare, write, check, commit by creating the manifest, mirror."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession

from lowwater.errors import FencedError, LandingConflictError, LandingError
from lowwater.kafka import topics
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import CopiedTables, Generation, Landed, Manifest, ManifestKind, StaleTables
from lowwater.lake.schema.columns import lake_table
from lowwater.records.codec import decode_commit
from lowwater.records.ids import SchemaId
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import Commit, Prepared
from lowwater.records.wire import schema_id_of
from lowwater.runtime.config import Settings
from lowwater.runtime.times import now_us
from lowwater.status import tracing
from lowwater_spark import metrics
from lowwater_spark.landing.compiled_tables import CompiledTables
from lowwater_spark.landing.decode import CONTROL, end_of, largest_value, ordered_rows
from lowwater_spark.landing.land_task import LandTask, TaskParams, TaskReport
from lowwater_spark.landing.peek import peek
from lowwater_spark.landing.reports import report_batch, run_tasks, task_tag
from lowwater_spark.landing.task_reports import Stitched, stitch
from lowwater_spark.ledger.ledger import Draft, commit_draft, land_attempt, table_version
from lowwater_spark.ledger.mirror import Mirror
from lowwater_spark.session import kafka_options

_log = structlog.get_logger()

_OF_ANOTHER_LAKE = "its copy landed in another lake: `lowwater source copy` copies it to this lake"
#: a landing with fewer rows is one task: more tasks would only write more files
ROWS_PER_TASK_MIN = 50_000
#: a table version that had no rows in this many landings is no longer decoded
LANDINGS_REMEMBERED = 10
#: up to this value size a batch is limited by its number of rows; above it, Spark measures the batch after each row
VALUE_BYTES_SMALL = 16 << 10
#: large, because each batch has a fixed cost for every table
_BATCH_ROWS = 50_000
_BATCH_BYTES = 64 << 20
_NO_LIMIT = (1 << 31) - 1


@dataclass
class Tail:
    """Records after the last transaction end. They are not stored: a new session reads them again from Kafka."""

    #: offset after the last record that was read
    end: int
    #: the transaction that these records begin
    gsn: int
    #: its decoded rows; empty if they are too many to be retained, then they are read again from Kafka
    held: list[TaskReport]


@dataclass
class _Ran:
    """A micro-batch whose tasks have finished."""

    reports: list[TaskReport]
    result: Stitched
    #: schema id → Avro schema of the decoded table versions
    tables: dict[int, str]


class Landing:
    """The landing of one group, in one process. No other thread may use its chain and its mirror."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        group: str,
        chain: Chain,
        mirror: Mirror,
        schemas: SchemaStore,
        start: int,
    ) -> None:
        config = settings.group(group)
        assert config.lake is not None
        self._spark = spark
        self._lake = config.lake
        self._group = group
        self._topic = topics.transactions(group)
        self._options = kafka_options(settings.kafka, config.land, self._topic)
        self._chain = chain
        self._mirror = mirror
        self._schemas = schemas
        headers = schemas.record_codec().headers
        self._control_ids = {name: int(schema_id_of(headers[name])) for name in CONTROL}
        self._cores = spark.sparkContext.defaultParallelism
        self._attempt = ""
        #: offset at which the next landing begins
        self._start = start
        #: offset after the last record that Spark has delivered
        self.read_to = start
        self._tail: Tail | None = None
        self._expected_rows = 0
        self._value_bytes_max: int | None = None
        self._landings = 0
        #: counts begun and finished steps, so that a long landing shows progress
        self.steps = 0
        #: schema id → number of the last landing with rows of it
        self._seen: dict[int, int] = dict.fromkeys(chain.last_schema_ids, 0)
        self._compiled = CompiledTables(lambda schema_id: len(lake_table(self._avro(schema_id)).columns))
        self._look_at(peek(settings.kafka, self._topic, start), is_again=start in mirror.unfinished)

    @property
    def chain(self) -> Chain:
        return self._chain

    def on_batch(self, batch: DataFrame, expected_rows: int, topic_id: str) -> Manifest | None:
        """Called by Spark. Returns the manifest, or None if the batch contains no end of a transaction."""
        started = time.monotonic()
        self._expected_rows = expected_rows
        records = batch.select("offset", "key", "value")
        tail = self._tail
        frames = [records]
        known: dict[int, Commit] = {}
        if tail is not None and not tail.held:
            commit = self._look_for_end(records, tail)
            if commit is None:
                return None
            known[tail.gsn] = commit
            frames.insert(0, self._again(tail))
        with self._step("prepare"):
            self._prepare(expected_rows)
        with self._step("write"):
            ran = self._run(frames, known, [] if tail is None else tail.held)
        if ran.result.last is None:
            return None
        self._remember_tail(ran.result)
        if ran.result.last_end is None:
            return None
        manifest = self._commit(ran, topic_id)
        self._measure(manifest, ran.reports, time.monotonic() - started)
        return manifest

    def _look_at(self, values: list[bytes], *, is_again: bool) -> None:
        """Takes schema ids and the largest size from the first records, so that the first landing needs no second run.

        If a landing from here failed before (`is_again`), later values may be too large for the batch size that these
        suggest: then the sizes of all records are measured first.
        """
        if values:
            self._value_bytes_max = None if is_again else max(map(len, values))
        controls = set(self._control_ids.values())
        ids = [id_ for value in values if (id_ := int(schema_id_of(value))) not in controls]
        self._compiled.expect(set(self._seen), ids)
        self._seen |= dict.fromkeys(ids, 0)

    # -- reading -----------------------------------------------------------------------------------------

    def _again(self, tail: Tail) -> DataFrame:
        """Reads a tail that is too long to be retained again from Kafka, by its offsets."""
        start, end = (json.dumps({self._topic: {"0": offset}}) for offset in (self._start, tail.end))
        reader = self._spark.read.format("kafka").options(**self._options)
        reader = reader.option("startingOffsets", start).option("endingOffsets", end)
        return reader.option("minPartitions", self._cores).load().select("offset", "key", "value")

    def _look_for_end(self, records: DataFrame, tail: Tail) -> Commit | None:
        """The Commit of a transaction larger than a micro-batch, or None: until then nothing is decoded or written."""
        last, value = end_of(records, self._control_ids[Commit.__name__], tail.gsn)
        if value is None and last is not None:
            self._tail = replace(tail, end=last + 1)
            self.read_to = last + 1
        return None if value is None else decode_commit(value)

    def _remember_tail(self, result: Stitched) -> None:
        last = result.last
        assert last is not None
        self.read_to = last.offset + 1
        self._tail = None if last.is_end else Tail(last.offset + 1, last.gsn, result.held)

    # -- writing -----------------------------------------------------------------------------------------

    def _prepare(self, expected_rows: int) -> None:
        start = self._start
        if not self._attempt:
            self._attempt = land_attempt(start)
            prepared = Prepared(
                ManifestKind.LAND, self._attempt, self._chain.head.n + 1, start, start + expected_rows, now_us()
            )
            self._mirror.prepare(prepared)

    def _run(self, frames: list[DataFrame], known: dict[int, Commit], held: list[TaskReport]) -> _Ran:
        """Runs the tasks, again if they need schemas or commits that were not given. Nearly always one run is enough.

        A long tail is a separate job: a union with it would be another plan, which the JVM would have to compile.
        """
        tables = self._tables()
        known = dict(known)
        if self._value_bytes_max is None:
            self._value_bytes_max = max(map(largest_value, frames))
        while True:
            reports = [*held, *(report for frame in frames for report in self._tasks(frame, tables, known))]
            result = stitch(reports, self._chain.head.gsn, known)
            self._value_bytes_max = max((r.value_bytes_max for r in reports), default=0)
            if result.is_final:
                return _Ran(reports, result, tables)
            tables |= {id_: self._avro(id_) for id_ in result.needs_ids}
            self._seen |= dict.fromkeys(result.needs_ids, self._landings)
            known |= {gsn: self._find_commit(frames, gsn) for gsn in result.needs_commits}

    def _find_commit(self, frames: list[DataFrame], gsn: int) -> Commit:
        for frame in frames:
            _, value = end_of(frame, self._control_ids[Commit.__name__], gsn)
            if value is not None:
                return decode_commit(value)
        raise LandingError(f"the Commit of gsn {gsn} was read before, but is not found now")

    def _tables(self) -> dict[int, str]:
        """Schema id → Avro schema of the table versions with rows in recent landings."""
        recent = [id_ for id_, seen in self._seen.items() if self._landings - seen <= LANDINGS_REMEMBERED]
        return {id_: self._avro(id_) for id_ in recent}

    def _avro(self, schema_id: int) -> str:
        entry = self._schemas.entry(SchemaId(schema_id))
        if not entry.table:
            raise LandingError(
                f"a record of schema {schema_id} ({entry.subject}) on {self._topic}",
                hint="was it written by another version of lowwater? upgrade the readers first",
            )
        return entry.schema

    def _tasks(self, records: DataFrame, tables: dict[int, str], known: dict[int, Commit]) -> list[TaskReport]:
        params = TaskParams(self._lake, self._attempt, self._control_ids, tables, known)

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield report_batch(LandTask(params, task_tag()).run(batches))

        self._set_batch_size(records.sparkSession)
        # no literal that changes between landings: the plan would have to be compiled again for each
        compiled = self._compiled.select(set(tables))
        frame = ordered_rows(records, self._control_ids, {id_: tables[id_] for id_ in compiled})
        wanted = self._expected_rows // max(ROWS_PER_TASK_MIN, 5_000 * len(compiled))
        if wanted < self._cores:
            frame = frame.coalesce(max(1, wanted))
        return run_tasks(frame, task)

    def _set_batch_size(self, session: SparkSession) -> None:
        """Limits batches by rows, and by bytes only if values are large: Spark measures every column after each row."""
        largest = self._value_bytes_max
        assert largest is not None
        rows, limit = _BATCH_ROWS, _BATCH_BYTES
        if largest <= VALUE_BYTES_SMALL:
            rows, limit = min(rows, _BATCH_BYTES // max(1, largest)), _NO_LIMIT
        # a stream uses a copy of the session: settings of the original do not reach it
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(limit))

    def _carried(self, ran: _Ran) -> list[TaskReport]:
        """Writes rows at the end of a task whose Commit was in the next task: few, so the driver writes them."""
        if not ran.result.carried:
            return []
        # those of a tail were decoded in an earlier landing, possibly with other table versions
        tables = ran.tables | {id_: self._avro(id_) for report, _ in ran.result.carried for id_ in report.carried_ids}
        task = LandTask(TaskParams(self._lake, self._attempt, self._control_ids, tables), task_tag())
        for report, commit in ran.result.carried:
            task.write_carried(report.carried, commit)
        task.report.files = task.close()
        return [task.report]

    def _commit(self, ran: _Ran, topic_id: str) -> Manifest:
        reports, result = [*ran.reports, *self._carried(ran)], ran.result
        assert result.last_end is not None
        files = [f for r in reports for f in r.files]
        head = self._chain.head
        self._landings += 1
        self._seen |= dict.fromkeys((f.schema_id for f in files), self._landings)
        rows: Counter[int] = Counter()
        for file in files:
            rows[file.schema_id] += file.rows
        self._compiled.count(rows)
        copied, strangers = self._copied(reports)
        draft = Draft(
            ManifestKind.LAND,
            self._group,
            self._attempt,
            tuple(sorted(files, key=lambda f: (f.table, f.gsn_min))),
            from_offset=self._start,
            landed=Landed(topic=self._topic, topic_id=topic_id, offset=result.last_end.offset + 1),
            gsn=result.last_end.gsn,
            transactions=result.last_end.gsn - head.gsn,
            commit_ts_us=max(r.commit_ts_us for r in reports),
            clock_us=max(r.clock_us for r in reports),
            skipped=tuple(s for r in reports for s in r.skipped),
            copied=copied,
            stale=(*(s for r in reports for s in r.stale), *strangers),
            generations=self._new_generations(reports),
            versions=tuple((id_, table_version(self._avro(id_))) for id_ in {f.schema_id for f in files}),
        )
        with self._step("commit"):
            manifest = self._commit_draft(draft)
        with self._step("mirror"):
            self._mirror.landed(manifest)
        self._attempt = ""
        self._start = manifest.landed.offset
        self._chain.write_checkpoint_if_due()
        return manifest

    def _new_generations(self, reports: list[TaskReport]) -> tuple[Generation, ...]:
        known = {(found.source, found.generation) for found in self._chain.generations}
        first: dict[tuple[str, int], int] = {}
        for report in reports:
            for pair, gsn in report.generations.items():
                first[pair] = min(gsn, first.get(pair, gsn))
        new = sorted((gsn, pair) for pair, gsn in first.items() if pair not in known)
        return tuple(Generation(source=source, generation=number, gsn=gsn) for gsn, (source, number) in new)

    def _copied(self, reports: list[TaskReport]) -> tuple[tuple[CopiedTables, ...], tuple[StaleTables, ...]]:
        """Copies that become readable, and tables that become stale.

        A closed copy is ignored: it is not, or not completely, in this lake, because it landed in another lake or was
        replaced. A copy without any chunk in this lake is of a source that was copied under another group: its tables
        become stale.
        """
        self._chain.refresh()
        found = [copied for report in reports for copied in report.copied]
        for copied in found:
            if copied.copy_id in self._chain.closed_copies:
                _log.warning("ignored a closed copy", copy=copied.copy_id, tables=copied.tables[:10], gsn=copied.gsn)
        found = [copied for copied in found if copied.copy_id not in self._chain.closed_copies]
        here = {copy for copy, _ in self._chain.landed_chunks} if found else set()
        strangers = [copied for copied in found if copied.copy_id not in here]
        for copied in strangers:
            _log.warning(
                "ignored a copy of another lake", copy=copied.copy_id, tables=copied.tables[:10], gsn=copied.gsn
            )
        return tuple(c for c in found if c.copy_id in here), tuple(
            StaleTables(gsn=c.gsn, source=c.source, tables=c.tables, reason=_OF_ANOTHER_LAKE) for c in strangers
        )

    def _commit_draft(self, draft: Draft) -> Manifest:
        """Commits the draft. On a conflict, writing Aborted to the ledger topic shows whether this process is fenced.

        Raises FencedError if it is; otherwise LandingConflictError, caused by the last manifest of a predecessor.
        """
        try:
            return commit_draft(self._chain, draft)
        except LandingConflictError as error:
            try:
                self._mirror.aborted(draft.attempt, self._chain.head.n + 1, error.what)
            except FencedError as fenced:
                raise FencedError(f"{error.what}; {fenced.what}", position=error.position, hint=error.hint) from error
            raise

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        self.steps += 1
        with metrics.STEP_SECONDS.labels(self._group, step).time(), tracing.span(f"land {step}", group=self._group):
            yield
        self.steps += 1

    def _measure(self, manifest: Manifest, reports: list[TaskReport], seconds: float) -> None:
        rows = sum(f.rows for f in manifest.files)
        metrics.LANDINGS.labels(self._group).inc()
        metrics.ROWS.labels(self._group).inc(rows)
        metrics.TRANSACTIONS.labels(self._group).inc(manifest.transactions)
        metrics.FILES.labels(self._group).inc(len(manifest.files))
        metrics.BYTES.labels(self._group).inc(sum(f.bytes for f in manifest.files))
        metrics.GSN.labels(self._group).set(manifest.gsn)
        metrics.COMMIT_TIME.labels(self._group).set(manifest.time_us / 1e6)
        metrics.SECONDS.labels(self._group).observe(seconds)
        metrics.LATENCY.labels(self._group).observe(max(0.0, (now_us() - manifest.time_us) / 1e6))
        _log.info(
            "landed",
            n=manifest.n,
            gsn=manifest.gsn,
            transactions=manifest.transactions,
            rows=rows,
            files=len(manifest.files),
            tasks=len(reports),
            seconds=round(seconds, 3),
        )
