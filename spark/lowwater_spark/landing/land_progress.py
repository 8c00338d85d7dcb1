"""Whether the landing gets on: there is something to land, and it lands.

Between two landings what lies in the ordered topic is read within seconds. Inside one, tasks end and steps are done; a
large one may take minutes, but nothing of it takes a minute without a sign.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lowwater.kafka.consumer import Place
from lowwater.kafka.read_check import SILENT_SECONDS, Asked, ReadWatch
from lowwater.runtime.config import KafkaConfig

#: without a sign inside a landing
BATCH_SECONDS_MAX = 60.0
#: a session in which nothing was there to land for this long has got over what it met
SETTLED_SECONDS = 15.0


class LandProgress:
    """Of one session. The stream's thread begins and ends batches, the service's own one looks."""

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
        """Why nothing lands that should; "" while all is well. `steps`: of landings, begun or ended."""
        self._reading.look({self._place: read_to}, ())
        self._is_behind = bool(self._reading.why)
        if not self._is_in_batch:
            return self._reading.why
        now = self._clock()
        sign = (steps, self._tasks_done())
        if sign != self._sign:
            self._sign, self._signed_at = sign, now
        seconds = now - self._signed_at
        return f"a landing has given no sign for {seconds:.0f} s" if seconds > BATCH_SECONDS_MAX else ""

    @property
    def is_settled(self) -> bool:
        """Nothing is left to land, and that has been so for a while."""
        is_old = self._clock() - self._began_at > SETTLED_SECONDS
        return is_old and not self._is_in_batch and not self._is_behind

    def _tasks_done(self) -> int:
        tracker = self._spark.sparkContext.statusTracker()
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except (Py4JError, OSError):
            return 0  # a JVM that is gone is found by the loop itself
        return sum(1 + stage.numCompletedTasks for stage in stages if stage is not None)
