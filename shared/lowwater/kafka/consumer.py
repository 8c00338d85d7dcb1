"""Consumers with manual assignment, read_committed, and an error instead of a silent offset reset."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from lowwater.errors import BusDoubtError
from lowwater.kafka.client import as_bus_error, client_settings
from lowwater.runtime.config import MEBIBYTE, KafkaConfig

Place = tuple[str, int]


def consumer_settings(kafka: KafkaConfig, group_id: str, **more: Any) -> dict[str, Any]:
    return {
        "group.id": group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # positions are stored by lowwater: an offset that no longer exists is an error, never a reset
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        # librdkafka's default of 64 MB for each partition would be most of our memory
        "queued.max.messages.kbytes": 8 * 1024,
        "queued.min.messages": 50_000,
        # a full queue is emptied within milliseconds; by default the client would fetch again after a second
        "fetch.queue.backoff.ms": 2,
        # the limit is of compressed bytes, and changes compress by a factor of 20 and more: the client decompresses a
        # whole response at once
        "fetch.message.max.bytes": MEBIBYTE // 4,
        "fetch.max.bytes": 18 * MEBIBYTE,
        "fetch.wait.max.ms": 100,
        **client_settings(kafka),
        **more,
    }


class AssignedConsumer:
    """Reads the given partitions from the given offsets."""

    def __init__(self, kafka: KafkaConfig, group_id: str, offsets: Mapping[Place, int], **more: Any) -> None:
        self._consumer = Consumer(consumer_settings(kafka, group_id, **more))
        self._paused: set[Place] = set()
        #: the offset after the last returned record
        self.positions: dict[Place, int] = dict(offsets)
        self._consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in offsets.items()])

    def consume(self, count: int, timeout_seconds: float) -> list[Message]:
        messages = self._consumer.consume(count, timeout_seconds)
        good = [m for m in messages if m.error() is None]
        if len(good) != len(messages):
            self._raise(messages)
        left = len(self.positions)
        seen: set[Place] = set()
        for message in reversed(good):
            place = (message.topic() or "", message.partition() or 0)
            if place not in seen:
                seen.add(place)
                self.positions[place] = (message.offset() or 0) + 1
                left -= 1
                if not left:
                    break
        return good

    def _raise(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None and (error.fatal() or not error.retriable()) and error.code() not in _PASSING:
                place = (message.topic() or "", message.partition() or 0)
                raise as_bus_error(error, f"read {place[0]}[{place[1]}] at {self.positions.get(place)}")

    def seek(self, offsets: Mapping[Place, int]) -> None:
        for (topic, partition), offset in offsets.items():
            try:
                self._consumer.seek(TopicPartition(topic, partition, offset))
            except KafkaException as error:
                raise as_bus_error(error, f"seek {topic}[{partition}] to {offset}") from error
            self.positions[(topic, partition)] = offset

    def pause(self, places: set[Place]) -> None:
        """Pauses exactly these partitions, and resumes all others."""
        start = [TopicPartition(t, p) for t, p in places - self._paused]
        stop = [TopicPartition(t, p) for t, p in self._paused - places]
        if start:
            self._consumer.pause(start)
        if stop:
            self._consumer.resume(stop)
        self._paused = set(places)

    def unread(self) -> dict[Place, int]:
        """The lag of each partition in offsets, by the cached high watermarks; no request is sent.

        Partitions without a known high watermark are left out.
        """
        found = {}
        for (topic, partition), position in self.positions.items():
            _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
            if int(high) >= 0:
                found[topic, partition] = max(0, int(high) - position)
        return found

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


#: the client recovers from these errors itself
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MAX_POLL_EXCEEDED,
    # of a topic that was just created
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}


def _unanswered(kafka: KafkaConfig, doing: str) -> BusDoubtError:
    return BusDoubtError(f"{doing}: no answer for {2 * kafka.stall_seconds:g} s", hint="a new client tries again")


#: for state topics, which are small and read to their end
STATE_SETTINGS = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}


def read_to_end(
    kafka: KafkaConfig,
    topic: str,
    partition: int = 0,
    start: int | None = None,
    on_wait: Callable[[str], None] | None = None,
    tick: Callable[[], None] | None = None,
    count_max: int | None = None,
) -> tuple[list[Message], int]:
    """All committed records of a state topic up to its end, and the offset after them.

    The end is the high watermark. If the last stable offset is below it, a Kafka transaction is open whose result is
    unknown: this waits until it has ended, and calls `on_wait` with its offsets. `tick` is called while waiting. With
    `count_max` it returns after that many records. Raises BusDoubtError if the broker does not answer.
    """
    low, high = topic_ends(kafka, topic, partition, tick=tick)
    # an offset instead of OFFSET_BEGINNING, which takes the client half a second to resolve
    start = low if start is None else max(start, low)
    if high <= start:
        return [], high
    settings = consumer_settings(kafka, "lowwater.state", **STATE_SETTINGS)
    consumer = Consumer(settings)
    found: list[Message] = []
    until = time.monotonic() + 2 * kafka.stall_seconds
    is_answered = False
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            if not is_answered and time.monotonic() > until:
                raise _unanswered(kafka, f"read {topic}[{partition}]")
            for message in consumer.consume(10_000, 0.01):
                # from here on it waits without a limit for an open transaction
                is_answered = True
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    end = message.offset() or 0
                    if end >= high:
                        return found, end
                    if on_wait is not None:
                        on_wait(f"{topic}[{partition}]: an open Kafka transaction holds {end} … {high}")
                elif error.code() not in _PASSING:
                    raise as_bus_error(error, f"read {topic}[{partition}]")
            if count_max is not None and len(found) >= count_max:
                return found[:count_max], (found[count_max - 1].offset() or 0) + 1
            if tick is not None:
                tick()
    finally:
        consumer.close()


#: time for the first record of a partition, including the client's connection to its broker
_RECORD_SECONDS = 10.0


def has_record(kafka: KafkaConfig, place: Place, start: int, end: int) -> bool:
    """Whether there is a committed record between `start` and `end`. Raises BusError if the broker does not answer."""
    consumer = Consumer(consumer_settings(kafka, "lowwater.probe", **STATE_SETTINGS))
    try:
        consumer.assign([TopicPartition(*place, start)])
        until = time.monotonic() + _RECORD_SECONDS
        while time.monotonic() < until:
            for message in consumer.consume(1, 0.2):
                error = message.error()
                if error is None:
                    return True
                if error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) >= end:
                        return False
                elif error.code() not in _PASSING:
                    raise as_bus_error(error, f"read {place[0]}[{place[1]}]")
        raise BusDoubtError(f"read {place[0]}[{place[1]}]: no answer")
    finally:
        consumer.close()


def topic_ends(
    kafka: KafkaConfig,
    topic: str,
    partition: int,
    isolation_level: str = "read_uncommitted",
    tick: Callable[[], None] | None = None,
) -> tuple[int, int]:
    """The earliest available offset and the end of a partition.

    Waits for a broker that is down, calling `tick`, for twice `stall_seconds`; then raises BusDoubtError, so that the
    caller continues with a new client.
    """
    until = time.monotonic() + 2 * kafka.stall_seconds
    consumer = Consumer(consumer_settings(kafka, "lowwater.state", **{"isolation.level": isolation_level}))
    try:
        while True:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
                return int(low), int(high)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING:
                    raise as_bus_error(error, f"ask for the end of {topic}[{partition}]") from error
                if time.monotonic() > until:
                    raise _unanswered(kafka, f"ask for the end of {topic}[{partition}]") from error
                if tick is not None:
                    tick()
    finally:
        consumer.close()
