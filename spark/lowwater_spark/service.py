"""The landing application: a session fences its predecessor, reads the manifests, and starts a Spark stream.

The stream starts at the offset in the last manifest. Spark's checkpoint is not used for recovery: every session begins
with an empty one, so the checkpoint directory may be deleted at any time.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lowwater.errors import (
    BusDoubtError,
    ConfigError,
    DataGoneError,
    LandingConflictError,
    LowwaterError,
    SparkError,
    StoreError,
    TopicError,
)
from lowwater.kafka import topics
from lowwater.kafka.client import as_bus_error
from lowwater.kafka.consumer import consumer_settings
from lowwater.kafka.topics import Topic
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Manifest
from lowwater.lake.read.stale import stale_now
from lowwater.lake.store.base import open_lake_store
from lowwater.runtime.config import Settings
from lowwater.runtime.service import SessionService, http_of
from lowwater_spark import metrics
from lowwater_spark.copy.worker import Copies
from lowwater_spark.landing.land import Landing
from lowwater_spark.landing.land_progress import LandProgress
from lowwater_spark.landing.new_lake import Beginning
from lowwater_spark.ledger.mirror import Mirror
from lowwater_spark.maintenance.background import Maintenance
from lowwater_spark.session import kafka_options, spark_session

#: wait before the next session after a failure of Spark
RETRY_SECONDS = 2.0
#: wait before the next session after a failure of the lake's store
STORE_SECONDS = 5.0
_STORE_ERROR = re.compile(r"lowwater\.errors\.StoreError: (.*)")


class LandService(SessionService):
    """The landing application of one group."""

    kind = "group"
    service = "spark"

    def __init__(self, settings: Settings, group: str, http_port: int | None = None, once: bool = False) -> None:
        self.group = group
        self._once = once
        self.config = settings.group(group)
        if self.config.lake is None:
            raise ConfigError(
                f"group {group} has no lake", hint=f"set groups.{group}.lake.uri to a directory or s3://bucket/prefix"
            )
        super().__init__(settings, group, http_of(self.config.land.http, http_port), metrics.ERRORS)
        self._lake_store = open_lake_store(self.config.lake)
        self._topic = topics.transactions(group)
        self._spark: SparkSession
        self._maintenance: Maintenance | None = None
        self._copies: Copies
        self._error: LowwaterError | None = None
        self._last: dict[str, Any] = {}
        self._rate: list[tuple[float, int]] = []
        self._shown: dict[str, Any] = {}
        self._progress: LandProgress

    def _topics(self) -> list[Topic]:
        wanted = [*topics.shared_topics(), *topics.group_topics(self.group, self.config)]
        sources = [(name, self._settings.source(name)) for name in self.config.sources]
        of_sources = [topic for name, config in sources for topic in topics.source_topics(name, config)]
        chunks = {topics.chunks(name) for name, _ in sources}
        return [*wanted, *topics.lake_topics(self.group), *(topic for topic in of_sources if topic.name in chunks)]

    def _watched(self, wanted: list[Topic]) -> list[str]:
        """All topics but the progress topic, which only the merger uses."""
        return [topic.name for topic in wanted if topic.name != topics.progress(self.group)]

    def run(self) -> int:
        try:
            return super().run()
        finally:
            if self._maintenance is not None:
                self._maintenance.stop()
                self._copies.stop()

    def _prepare(self) -> None:
        super()._prepare()
        self._spark = spark_session(f"lowwater-land-{self.group}", self.config.land)
        # pyspark installs its own SIGINT handler
        signal.signal(signal.SIGINT, self._on_stop)
        # before any chunk of a copy can land
        self._beginning = Beginning(self.kafka, self._codec, self.group, self.config.sources)
        self._beginning.begin(Chain.open(self._lake_store), self._admin.topic_id(self._topic))
        self._copies = Copies(self._spark, self._settings, self.group, self._lake_store, self._codec)
        if not self._once:
            assert self.config.lake is not None
            self._copies.start()
            self._maintenance = Maintenance(self._spark, self.group, self.config.lake, self._lake_store)
            self._maintenance.start()

    # -- a session ---------------------------------------------------------------------------------------

    def _run_session(self) -> bool:
        metrics.SESSIONS.labels(self.group).inc()
        self._error = None
        mirror = Mirror(self.kafka, self._codec, self.group, self.health.tick)
        ends = _Ends(self._settings, self._topic)
        checkpoint = self._checkpoint()
        query: StreamingQuery | None = None
        try:
            if self._once:
                self._copies.run_once()
            chain = Chain.open(self._lake_store)
            topic_id = self._check_topic(chain)
            repaired = mirror.repair(chain)
            self._control.poll()
            self._beginning.ask_for_copies(chain, self._control.fold)
            start = chain.head.landed.offset if chain.head.landed.topic else ends.first()
            self._log.info("session", n=chain.head.n, gsn=chain.head.gsn, offset=start, repaired=repaired)
            landing = Landing(self._spark, self._settings, self.group, chain, mirror, self._store, start)

            def on_batch(batch: DataFrame, _batch_id: int) -> None:
                try:
                    self._on_batch(landing, batch, ends, topic_id)
                except LowwaterError as error:
                    self._error = error
                    raise

            self._progress = LandProgress(
                self._spark, self.kafka, self._admin.ask_ends, self._topic, self.config.land.trigger_seconds
            )
            query = self._start(start, checkpoint, on_batch)
            self.health.ready()
            return self._watch(query, ends, landing)
        finally:
            if query is not None and self._is_jvm_there():
                query.stop()
            ends.close()
            mirror.close()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _checkpoint(self) -> Path:
        """A new checkpoint directory for this session; those of earlier sessions are deleted first."""
        base = Path(self.config.land.checkpoint_directory or self._settings.state_directory / "checkpoints")
        # a configured directory may contain files of others
        own = base.absolute() / f"lowwater-land-{self.group}"
        shutil.rmtree(own, ignore_errors=True)
        return own / uuid.uuid4().hex

    def _check_topic(self, chain: Chain) -> str:
        topic_id = self._admin.topic_id(self._topic)
        landed = chain.head.landed
        if landed.topic and (landed.topic, landed.topic_id) != (self._topic, topic_id):
            raise TopicError(
                f"the lake was landed from {landed.topic} ({landed.topic_id}), this is {self._topic} ({topic_id})",
                hint="the ordered topic was deleted and created again, so the offsets in the lake are not valid for "
                "it: give the group another lake.uri, or restore the topic",
            )
        return topic_id

    def _start(self, start: int, checkpoint: Path, on_batch: Any) -> StreamingQuery:
        land = self.config.land
        reader = self._spark.readStream.format("kafka").options(**kafka_options(self.kafka, land, self._topic))
        stream = (
            reader.option("startingOffsets", json.dumps({self._topic: {"0": start}}))
            .option("maxOffsetsPerTrigger", land.records_max)
            .option("minPartitions", self._spark.sparkContext.defaultParallelism)
            .load()
        )
        writer = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint))
        if self._once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(land.trigger_seconds * 1000)} milliseconds").start()

    def _on_batch(self, landing: Landing, batch: DataFrame, ends: _Ends, topic_id: str) -> None:
        self.health.tick()
        self._progress.begin_batch()
        try:
            behind = ends.last() - landing.read_to
            manifest = landing.on_batch(batch, min(behind, self.config.land.records_max), topic_id)
        finally:
            self._progress.end_batch()
        if manifest is not None:
            self.health.recovered()
            self._show(manifest, ends)
            metrics.STALE.labels(self.group).set(len(stale_now(landing.chain)))

    def _watch(self, query: StreamingQuery, ends: _Ends, landing: Landing) -> bool:
        """Monitors the stream. Returns False when the service is to stop; raises the error that ended the stream."""
        self._show(None, ends, landing.chain)
        metrics.STALE.labels(self.group).set(len(stale_now(landing.chain)))
        while not self._is_stopping:
            try:
                if query.awaitTermination(1):
                    break
            except StreamingQueryException as error:
                raise self._named(error) from error
            except (Py4JError, OSError) as error:
                raise SparkError(f"Spark's JVM has exited: {error}", hint="this process exits; restart it") from error
            if not query.status["isTriggerActive"]:
                self.health.tick()
            self.look_at_kafka()
            self._note_progress(landing)
            self._show_beside()
            self._control.poll()
            if self.is_restarted or self._control.fold.get(self.kind, self.group).control.wanted.is_at_rest:
                break
            if self._copies.fenced is not None:
                raise self._copies.fenced  # an idle landing does not write to Kafka and is not fenced itself
        return False

    def _note_progress(self, landing: Landing) -> None:
        """Reports to `health` whether available records land. Failed copies are retried automatically, and reported."""
        why = self._progress.look(landing.read_to, landing.steps)
        if why:
            self.health.trouble(why)
        else:
            self.progressed()
        if self._progress.is_settled:
            self.health.recovered()
        copies = self._copies.status
        if copies.get("state") == "failed":
            self.health.not_ready(f"copies: {copies['error'].get('what')}")
        else:
            self.health.ready()

    def _named(self, error: StreamingQueryException) -> LowwaterError:
        """The error that ended the stream, as an error class of lowwater."""
        found = self._error
        if found is not None:
            return found
        text = str(error)
        refused = _STORE_ERROR.findall(text)
        if refused:
            # raised by a task, in another process
            return StoreError(refused[-1].strip()[:1000], hint="is the lake full or read-only? the landing is retried")
        if "OffsetOutOfRange" in text or "failOnDataLoss" in text or "Some data may have been lost" in text:
            return DataGoneError(
                f"records of {self._topic} that have not landed are gone", hint="see docs/operations.md, data gone"
            )
        if "org.apache.kafka.common.errors" in text:
            return BusDoubtError(f"Spark's Kafka client: {text[:500]}", hint="restarted from the last manifest")
        return SparkError(f"Spark: {text[:2000]}", hint="the landing is retried; the log has the full error")

    def _can_go_on(self, error: LowwaterError) -> bool:
        """True if a new session may continue, as after a lost executor. Raises `error` if the JVM has exited."""
        if isinstance(error, LandingConflictError):
            return True  # caused by the last manifest of a predecessor: the next session reads the chain again
        if isinstance(error, StoreError):
            self._rest(STORE_SECONDS)
            return True
        if not isinstance(error, SparkError):
            return super()._can_go_on(error)
        if not self._is_jvm_there():
            raise error
        self._rest(RETRY_SECONDS)
        return True

    def _is_jvm_there(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def _show(self, manifest: Manifest | None, ends: _Ends, chain: Chain | None = None) -> None:
        if manifest is not None:
            self._last = {
                "n": manifest.n,
                "gsn": manifest.gsn,
                "offset": manifest.landed.offset,
                "rows": sum(f.rows for f in manifest.files),
                "files": len(manifest.files),
                "commit_ts_us": manifest.time_us,
            }
            self._rate = [*self._rate[-9:], (time.monotonic(), self._last["rows"])]
        elif chain is not None:
            metrics.GSN.labels(self.group).set(chain.head.gsn)
            metrics.COMMIT_TIME.labels(self.group).set(chain.head.time_us / 1e6)
            self._last = {"n": chain.head.n, "gsn": chain.head.gsn, "offset": chain.head.landed.offset}
        behind = max(0, ends.last() - self._last["offset"])
        metrics.BEHIND.labels(self.group).set(behind)
        seconds = self._rate[-1][0] - self._rate[0][0] if len(self._rate) > 1 else 0.0
        rate = sum(rows for _, rows in self._rate[1:]) / seconds if seconds else 0.0
        figures = {"behind_records": behind, "rows_per_second": round(rate)}
        about = {"group": self.group, "state": "running", "lake": self._lake_store.uri}
        self._shown = {**about, **self._last, **figures}
        self._show_beside()

    def _show_beside(self) -> None:
        """Updates the status with maintenance and copies, also while nothing lands."""
        maintained = self._maintenance.last if self._maintenance is not None else {}
        self.health.show({**self._shown, "maintenance": maintained, "copies": self._copies.status})


class _Ends:
    """First and end offset of the ordered topic for a read_committed consumer."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._place = TopicPartition(topic, 0)
        self._consumer = Consumer(consumer_settings(settings.kafka, "lowwater.state"))

    def _ask(self) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(self._place, timeout=10)
        except KafkaException as error:
            raise as_bus_error(error, f"ask for the end of {self._place.topic}") from error
        return int(low), int(high)

    def first(self) -> int:
        return self._ask()[0]

    def last(self) -> int:
        return self._ask()[1]

    def close(self) -> None:
        self._consumer.close()
