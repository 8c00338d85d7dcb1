"""Runs maintenance in a separate thread with its own chain, and its Spark tasks in a separate pool."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import structlog
from pyspark.sql import SparkSession

from lowwater.errors import LowwaterError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.store.base import Store
from lowwater.runtime.config import LakeConfig
from lowwater.runtime.times import now_us
from lowwater_spark import metrics
from lowwater_spark.maintenance.maintain import maintain

_log = structlog.get_logger()


class Maintenance:
    """Periodic maintenance. Never blocks a landing; errors are logged, and the work is retried at the next run."""

    def __init__(self, spark: SparkSession, group: str, config: LakeConfig, store: Store) -> None:
        self._spark = spark
        self._group = group
        self._config = config
        self._store = store
        self._stop = threading.Event()
        #: result of the last run, for `/status`
        self.last: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        if self._config.compact_seconds >= 0:
            self._thread.start()

    def stop(self) -> None:
        """Does not wait for a running job: a later sweep deletes its uncommitted files."""
        self._stop.set()

    def _run(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "maintenance")
        while not self._stop.wait(self._config.compact_seconds):
            self._once()

    def _once(self) -> None:
        try:
            chain = Chain.open(self._store)
            done = maintain(self._spark, chain, self._config, now_us())
            chain.write_checkpoint_if_due()
        except LowwaterError as error:
            metrics.ERRORS.labels(self._group, type(error).__name__).inc()
            self.last = {"error": error.fields()}
            _log.error("maintenance failed", **error.fields())
            return
        self.last = {"at_us": now_us(), **asdict(done)}
        if done.manifests or done.swept_files:
            _log.info("maintained", **asdict(done))
