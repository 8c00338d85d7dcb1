"""Detects a landing that makes no progress although there are records to land.

Between landings, records of the ordered topic must be read within seconds. Within a landing, which may take minutes,
tasks or steps must finish at least once a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lowwater.kafka.consumer import Place
from lowwater.kafka.read_check import SILENT_SECONDS, Asked, ReadWatch
from lowwater.runtime.config import KafkaConfig

#: the longest time within a landing without a finished task or step
BATCH_SECONDS_MAX = 60.0
#: a session that is this old and has nothing left to land has recovered from earlier errors
SETTLED_SECONDS = 15.0


class LandProgress:
    """Progress of one session. The stream's thread calls `begin_batch` and `end_batch`, the service's thread `look`."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaConfig,
        ask: Callable[[Collection[Place]], Asked],
        topic: str,
        trigger_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._place = (topic, 0)
        self._reading = ReadWatch(kafka, ask, clock, max(SILENT_SECONDS, 3 * trigger_seconds))
        self._clock = clock
        self._began_at = clock()
        self._is_in_batch = False
        self._sign: tuple[int, int] = (0, 0)
        self._signed_at = clock()
        self._is_behind = False

    def begin_batch(self) -> None:
        self._signed_at = self._clock()
        self._is_in_batch = True

    def end_batch(self) -> None:
        self._is_in_batch = False

    def look(self, read_to: int, steps: int) -> str:
        """The reason why available records do not land, or "". `steps`: count of begun and finished steps."""
        self._reading.look({self._place: read_to}, ())
        self._is_behind = bool(self._reading.why)
        if not self._is_in_batch:
            return self._reading.why
        now = self._clock()
        sign = (steps, self._tasks_done())
        if sign != self._sign:
            self._sign, self._signed_at = sign, now
        seconds = now - self._signed_at
        return f"a landing has made no progress for {seconds:.0f} s" if seconds > BATCH_SECONDS_MAX else ""

    @property
    def is_settled(self) -> bool:
        """True if nothing is left to land and the session is older than SETTLED_SECONDS."""
        is_old = self._clock() - self._began_at > SETTLED_SECONDS
        return is_old and not self._is_in_batch and not self._is_behind

    def _tasks_done(self) -> int:
        tracker = self._spark.sparkContext.statusTracker()
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except (Py4JError, OSError):
            return 0  # the service's loop detects a JVM that has exited
        return sum(1 + stage.numCompletedTasks for stage in stages if stage is not None)
