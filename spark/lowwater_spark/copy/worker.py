"""Runs copies in a separate thread with its own chain and producer, and its Spark tasks in a separate pool.

The chunks topics contain the plan, the chain contains the landed chunks; `session.py` copies the difference.
"""

from __future__ import annotations

import threading
from typing import Any

import structlog
from confluent_kafka import Message
from pyspark.sql import SparkSession

from lowwater.errors import FencedError, LowwaterError
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer, Place, read_to_end
from lowwater.lake.store.base import Store
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Chunk
from lowwater.runtime.config import Settings
from lowwater_spark import metrics
from lowwater_spark.copy.mirror import CopyMirror
from lowwater_spark.copy.progress import Progress
from lowwater_spark.copy.session import CopySession

_log = structlog.get_logger()

#: wait after an error, doubled after each further one up to the maximum
RETRY_SECONDS, RETRY_SECONDS_MAX = 2.0, 60.0
IDLE_SECONDS = 1.0
#: how long a fetch from an idle topic waits; new records are returned at once
_QUIET = {"fetch.wait.max.ms": 1000}


class Copies:
    """The copies of one group. Errors are logged, reported in `status`, and retried."""

    def __init__(self, spark: SparkSession, settings: Settings, group: str, store: Store, codec: RecordCodec) -> None:
        self._spark = spark
        self._settings = settings
        self._group = group
        self._store = store
        self._codec = codec
        self._progress = Progress()
        #: set when another application has fenced this one
        self.fenced: FencedError | None = None
        self._stop = threading.Event()
        # at once: an open transaction of a predecessor would block read_committed readers of the ledger, as the landing
        self._mirror: CopyMirror | None = self._new_mirror()
        self._thread = threading.Thread(target=self._run, name="copies", daemon=True)

    @property
    def status(self) -> dict[str, Any]:
        return self._progress.overview

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for a running job: a later sweep deletes its uncommitted files."""
        self._stop.set()

    def run_once(self) -> None:
        """Copies until no chunk is left that can be copied now."""
        session = self._session()
        try:
            self._read_plans(session)
            while session.turn():
                pass
        finally:
            session.close()

    def _run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "copy")
        seconds = RETRY_SECONDS
        while not self._stop.is_set():
            try:
                self._follow()
            except LowwaterError as error:
                metrics.ERRORS.labels(self._group, type(error).__name__).inc()
                _log.error("copies failed", **error.fields())
                seconds = seconds * 2 if self._progress.fail(error.fields()) else RETRY_SECONDS
                if isinstance(error, FencedError):
                    self.fenced = error
                    return
                self._stop.wait(min(seconds, RETRY_SECONDS_MAX))
            except Exception as error:
                # unexpected: the thread ends, and the status must not show it as idle
                self._progress.fail({"error": type(error).__name__, "what": str(error)})
                raise

    def _follow(self) -> None:
        session = self._session()
        consumer: AssignedConsumer | None = None
        try:
            ends = self._read_plans(session)
            consumer = AssignedConsumer(self._settings.kafka, "lowwater.copies", ends, **_QUIET)
            while not self._stop.is_set():
                is_busy = session.turn()
                session.take(self._chunks(consumer.consume(10_000, 0 if is_busy else IDLE_SECONDS)))
        finally:
            if consumer is not None:
                consumer.close()
            session.close()

    def _new_mirror(self) -> CopyMirror:
        return CopyMirror(self._settings.kafka, self._codec, self._group)

    def _session(self) -> CopySession:
        mirror, self._mirror = self._mirror or self._new_mirror(), None
        return CopySession(self._spark, self._settings, self._group, self._store, mirror, self._progress)

    def _read_plans(self, session: CopySession) -> dict[Place, int]:
        """Reads all chunks topics to their ends, because a plan that replaces another comes after it."""
        ends = {}
        for source in self._settings.group(self._group).sources:
            topic = topics.chunks(source)
            messages, ends[topic, 0] = read_to_end(self._settings.kafka, topic, on_wait=self._on_wait)
            session.take(self._chunks(messages))
        return ends

    def _on_wait(self, what: str) -> None:
        _log.warning("waiting", what=what)

    def _chunks(self, messages: list[Message]) -> list[Chunk]:
        return [self._codec.decode(message.value() or b"", Chunk) for message in messages]
