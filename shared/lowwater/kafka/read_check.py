"""Detects consumers that do not return records although there are some.

A client that hangs receives no new offsets, so its own statistics show no lag. Separate clients therefore check each
partition from which nothing was received for some seconds (a source publishes marks every second): first its end
offsets, and if they are higher than the position, whether there is a record. End offsets alone are not sufficient,
because they include Kafka's transaction markers, which a consumer never returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Protocol

from lowwater.errors import BusDoubtError
from lowwater.kafka.consumer import Place, has_record
from lowwater.runtime.config import KafkaConfig

#: a partition from which nothing was received for this long is checked
SILENT_SECONDS = 5.0
#: time between two checks
LOOK_SECONDS = 2.0

#: last stable offset and high watermark: if they differ, there is an open Kafka transaction between them
Ends = tuple[int, int]


class Asked(Protocol):
    """A pending request for end offsets."""

    def take(self) -> dict[Place, Ends] | None:
        """None until all responses have been received. Partitions whose request failed are left out."""
        ...


class ReadWatch:
    def __init__(
        self,
        kafka: KafkaConfig,
        ask: Callable[[Collection[Place]], Asked],
        clock: Callable[[], float] = time.monotonic,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._kafka = kafka
        self._silent_seconds = silent_seconds
        self._ask = ask
        self._clock = clock
        self._moved: dict[Place, tuple[int, float]] = {}
        self._looked_at = 0.0
        self._asked: Asked | None = None
        self._ends: dict[Place, Ends] = {}
        #: position and end between which there is no record
        self._empty: dict[Place, Ends] = {}
        self._probes: dict[Place, tuple[int, Future[bool]]] = {}
        self._unread: dict[Place, int] = {}

    def look(self, positions: Mapping[Place, int], paused: Collection[Place]) -> None:
        """Starts checks that are due and evaluates responses; never waits. `positions`: offsets of the next records."""
        now = self._clock()
        for place, position in positions.items():
            known = self._moved.get(place)
            if known is None or known[0] != position or place in paused:
                self._moved[place] = (position, now)
                self._unread.pop(place, None)
                self._ends.pop(place, None)
        silent = [p for p, (_, at) in self._moved.items() if now - at > self._silent_seconds and p in positions]
        if self._asked is not None:
            answer = self._asked.take()
            if answer is not None:
                self._asked = None
                self._ends |= {place: ends for place, ends in answer.items() if place in silent}
                self._probe(positions, answer)
        elif silent and now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            self._asked = self._ask(silent)
        self._take_probes()

    def check(self) -> None:
        """Raises BusDoubtError if the client has not returned available records for `stall_seconds`."""
        now = self._clock()
        for place, position in self._unread.items():
            seconds = now - self._moved[place][1]
            if seconds > self._kafka.stall_seconds:
                raise BusDoubtError(
                    f"read {place[0]}[{place[1]}]: the client has returned nothing from offset {position} on for "
                    f"{seconds:.0f} s, although there are records",
                    hint="a new client continues from the last progress; nothing is lost",
                )

    @property
    def why(self) -> str:
        """The partitions with available records that are not read; "" if there are none."""
        return ", ".join(f"{t}[{p}] is not read from {at} on" for (t, p), at in sorted(self._unread.items()))

    def hidden(self, topic: str) -> str:
        """The offsets that an open Kafka transaction holds back, in the silent partitions of a topic."""
        found = {p: ends for (t, p), ends in sorted(self._ends.items()) if t == topic and ends[0] < ends[1]}
        return ", ".join(f"{topic}[{p}] {stable} … {high}" for p, (stable, high) in found.items())

    def behind(self, topic: str, positions: Mapping[Place, int]) -> int:
        """The lag of the silent partitions of a topic, in offsets."""
        return sum(max(0, stable - positions[p]) for p, (stable, _) in self._ends.items() if p[0] == topic)

    def _probe(self, positions: Mapping[Place, int], ends: Mapping[Place, Ends]) -> None:
        for place, (stable, _) in ends.items():
            position = positions[place]
            if stable <= position or self._empty.get(place) == (position, stable) or place in self._probes:
                continue
            answer: Future[bool] = Future()
            self._probes[place] = (position, answer)
            arguments = (self._kafka, place, position, stable, answer)
            # in a thread of its own: the loop continues to read the other partitions
            threading.Thread(target=_look_for_record, args=arguments, name="lowwater-probe", daemon=True).start()

    def _take_probes(self) -> None:
        for place, (position, answer) in list(self._probes.items()):
            if not answer.done():
                continue
            del self._probes[place]
            if self._moved[place][0] != position or answer.exception() is not None:
                continue  # it was read meanwhile, or Kafka did not answer, which other checks report
            if answer.result():
                self._unread[place] = position
            elif place in self._ends:
                self._empty[place] = (position, self._ends[place][0])


def _look_for_record(kafka: KafkaConfig, place: Place, start: int, end: int, answer: Future[bool]) -> None:
    try:
        answer.set_result(has_record(kafka, place, start, end))
    except Exception as error:  # noqa: BLE001  any error is passed to the future
        answer.set_exception(error)
