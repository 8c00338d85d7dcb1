"""Whether what lies in topics is read.

A client that hangs knows of nothing new, so its own figures prove nothing: they say that there is no lag. So other
clients ask for a partition from which nothing came for seconds (a source marks every second): its ends first, and if
there is more than was read, one record. Ends alone prove nothing either: Kafka's own markers are never handed over.
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

#: nothing came from a partition for this long: it is looked at
SILENT_SECONDS = 5.0
#: between two looks
LOOK_SECONDS = 2.0

#: end of what readers may see, and of all that there is: between them lies an open Kafka transaction
Ends = tuple[int, int]


class Asked(Protocol):
    """Answers on their way."""

    def take(self) -> dict[Place, Ends] | None:
        """None until all are there; without those that failed."""
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
        #: position and end of which it is known that no record lies between them
        self._empty: dict[Place, Ends] = {}
        self._probes: dict[Place, tuple[int, Future[bool]]] = {}
        self._unread: dict[Place, int] = {}

    def look(self, positions: Mapping[Place, int], paused: Collection[Place]) -> None:
        """`positions`: behind the last record that was read. Never waits."""
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
        """Raises BusDoubtError where the client has not read for too long what is there."""
        now = self._clock()
        for place, position in self._unread.items():
            seconds = now - self._moved[place][1]
            if seconds > self._kafka.stall_seconds:
                raise BusDoubtError(
                    f"read {place[0]}[{place[1]}]: the client has handed over nothing behind {position} for "
                    f"{seconds:.0f} s, and there are records",
                    hint="a new client goes on from progress; nothing is lost",
                )

    @property
    def why(self) -> str:
        """What is there and is not read; "" if nothing is."""
        return ", ".join(f"{t}[{p}] is not read behind {at}" for (t, p), at in sorted(self._unread.items()))

    def hidden(self, topic: str) -> str:
        """The offsets of a topic that an open Kafka transaction hides, of partitions that are silent."""
        found = {p: ends for (t, p), ends in sorted(self._ends.items()) if t == topic and ends[0] < ends[1]}
        return ", ".join(f"{topic}[{p}] {stable} … {high}" for p, (stable, high) in found.items())

    def behind(self, topic: str, positions: Mapping[Place, int]) -> int:
        """Offsets that the silent partitions of a topic are behind, as Kafka says."""
        return sum(max(0, stable - positions[p]) for p, (stable, _) in self._ends.items() if p[0] == topic)

    def _probe(self, positions: Mapping[Place, int], ends: Mapping[Place, Ends]) -> None:
        for place, (stable, _) in ends.items():
            position = positions[place]
            if stable <= position or self._empty.get(place) == (position, stable) or place in self._probes:
                continue
            answer: Future[bool] = Future()
            self._probes[place] = (position, answer)
            arguments = (self._kafka, place, position, stable, answer)
            # not on this thread: the loop reads the other partitions meanwhile
            threading.Thread(target=_look_for_record, args=arguments, name="lowwater-probe", daemon=True).start()

    def _take_probes(self) -> None:
        for place, (position, answer) in list(self._probes.items()):
            if not answer.done():
                continue
            del self._probes[place]
            if self._moved[place][0] != position or answer.exception() is not None:
                continue  # it was read meanwhile, or Kafka did not answer: that is found elsewhere
            if answer.result():
                self._unread[place] = position
            elif place in self._ends:
                self._empty[place] = (position, self._ends[place][0])


def _look_for_record(kafka: KafkaConfig, place: Place, start: int, end: int, answer: Future[bool]) -> None:
    try:
        answer.set_result(has_record(kafka, place, start, end))
    except Exception as error:  # noqa: BLE001  whatever it is: who waits for the answer is told
        answer.set_exception(error)
