"""The status topic: services publish their status, so that every process with access to Kafka can show the fleet."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from lowwater.kafka import topics
from lowwater.kafka.client import as_bus_error, client_settings
from lowwater.kafka.consumer import consumer_settings
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Status
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.times import now_us

REPORT_SECONDS = 1.0
#: older status is ignored; a busy machine may publish a few seconds late
FRESH_SECONDS = 6.0
#: window of rates
RATE_SECONDS = 6.0

_log = structlog.get_logger()


class Reporter:
    """Publishes the status of a service every second, in a thread of its own. A failed publication is not repeated."""

    def __init__(
        self, kafka: KafkaConfig, codec: RecordCodec, service: str, name: str, shown: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._codec = codec
        self._service = service
        self._name = name
        self._shown = shown
        self._is_heard = True
        self._ended = threading.Event()
        # an old status is of no use: the next one follows within a second
        self._producer = Producer({**client_settings(kafka), "message.timeout.ms": 5000, "linger.ms": 0})
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.say(self._shown())
            if self._ended.wait(REPORT_SECONDS):
                return

    def say(self, shown: Mapping[str, Any]) -> None:
        status = Status(
            self._service, self._name, str(shown.get("state", "starting")), now_us(), json.dumps(shown, default=str)
        )
        key = self._codec.key(f"{self._service}/{self._name}")
        value = self._codec.encode(status)
        try:
            self._producer.produce(topics.STATUS, key=key, value=value, on_delivery=self._delivered)
        except BufferError:
            pass  # Kafka is down: the next status follows
        except KafkaException as error:
            # this thread must not end: a service without status is shown as unreachable
            _log.warning("status", service=self._service, name=self._name, what=error.args[0].str())
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if (error is None) != self._is_heard:
            self._is_heard = error is None
            what = "published again" if error is None else error.str()
            _log.warning("status", service=self._service, name=self._name, what=what)

    def stop(self) -> None:
        """Ends the thread and publishes `stopped`, so that a clean stop is not shown as a crash."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self.say({**self._shown(), "state": "stopped"})
        self._producer.flush(2)


@dataclass(slots=True)
class LastStatus:
    """The last status of one service, with counts of the last seconds for its rate."""

    at_us: int
    state: str
    shown: dict[str, Any]
    #: (at, transactions) of the last seconds
    counts: deque[tuple[int, int]] = field(default_factory=deque)

    def age_seconds(self, now: int) -> float:
        return max(0.0, (now - self.at_us) / 1e6)

    def is_fresh(self, now: int) -> bool:
        return self.age_seconds(now) < FRESH_SECONDS

    @property
    def per_second(self) -> float:
        if len(self.counts) < 2:
            return 0.0
        (at, first), (until, last) = self.counts[0], self.counts[-1]
        # a lower count is from a new process
        return max(0.0, (last - first) * 1e6 / max(1, until - at)) if last >= first else 0.0


#: the field of each service's status whose rate is shown
_COUNTED = {"extractor": "transactions", "merger": "next_gsn", "spark": "gsn"}


class Statuses:
    """The last status of each service, from Status records. Pure."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], LastStatus] = {}

    def apply(self, status: Status) -> None:
        key = (status.service, status.name)
        before = self._heard.get(key)
        if before is not None and before.at_us > status.at_us:
            return
        reported = LastStatus(
            status.at_us, status.state, json.loads(status.shown), before.counts if before else deque()
        )
        count = reported.shown.get(_COUNTED.get(status.service, ""))
        if isinstance(count, int):
            if reported.counts and count < reported.counts[-1][1]:
                reported.counts.clear()
            reported.counts.append((status.at_us, count))
            while len(reported.counts) > 2 and status.at_us - reported.counts[0][0] > RATE_SECONDS * 1e6:
                reported.counts.popleft()
        self._heard[key] = reported

    def get(self, service: str, name: str) -> LastStatus | None:
        return self._heard.get((service, name))

    def of(self, service: str) -> dict[str, LastStatus]:
        return {name: reported for (found, name), reported in self._heard.items() if found == service}


def recent_offset(kafka: KafkaConfig, seconds: float = FRESH_SECONDS) -> int:
    """The offset in the status topic at which its last seconds begin."""
    consumer = Consumer(consumer_settings(kafka, "lowwater.state"))
    try:
        since_ms = now_us() // 1000 - int(seconds * 1000)
        (found,) = consumer.offsets_for_times([TopicPartition(topics.STATUS, 0, since_ms)], timeout=10)
        if found.error is not None:
            raise as_bus_error(found.error, f"look up the time in {topics.STATUS}")
        if found.offset >= 0:
            return int(found.offset)
        return int(consumer.get_watermark_offsets(TopicPartition(topics.STATUS, 0), timeout=10)[1])
    except KafkaException as error:
        raise as_bus_error(error, f"look up the time in {topics.STATUS}") from error
    finally:
        consumer.close()
