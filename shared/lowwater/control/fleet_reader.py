"""Follows the control topic and the status topic for one process: desired and actual state."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Message

from lowwater.control.fold import ControlFold
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer, read_to_end
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Control, Status
from lowwater.runtime.config import KafkaConfig
from lowwater.status.reporter import Statuses, recent_offset

#: number of outcomes that are retained for their writers
_OUTCOMES_MAX = 1_000


class FleetReader:
    """Polled by one thread. The constructor reads the control topic to its end."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, on_wait: Callable[[str], None] | None = None) -> None:
        self._codec = codec
        self.fold = ControlFold()
        self.statuses = Statuses()
        #: offset in the control topic → whether that command was accepted
        self.outcomes: dict[int, bool] = {}
        messages, end = read_to_end(kafka, topics.CONTROL, on_wait=on_wait)
        for message in messages:
            self.fold.apply(codec.decode(message.value() or b"", Control))
        self._read: list[Message] = []
        offsets = {(topics.CONTROL, 0): end, (topics.STATUS, 0): recent_offset(kafka)}
        self._consumer = AssignedConsumer(kafka, "lowwater.follow", offsets)

    def poll(self, timeout_seconds: float = 0.0) -> bool:
        """Applies new records; returns whether there was a command of an operator."""
        self.wait(timeout_seconds)
        return self.take()

    def wait(self, timeout_seconds: float) -> None:
        """Wait for records to `take`. Does not change `fold`, `statuses` or `outcomes`: other threads may read them."""
        # waits for the first record only: with a higher count the client would wait until it has all of them
        self._read += self._consumer.consume(1, timeout_seconds) + self._consumer.consume(1000, 0)

    def take(self) -> bool:
        has_word = False
        messages, self._read = self._read, []
        for message in messages:
            value = message.value() or b""
            if message.topic() == topics.CONTROL:
                self.outcomes[message.offset() or 0] = self.fold.apply(self._codec.decode(value, Control))
                has_word = True
            elif self._codec.record_type(value) is Status:
                # a Status of another version of lowwater is ignored; its services are shown as unreachable
                self.statuses.apply(self._codec.decode(value, Status))
        for offset in list(self.outcomes)[:-_OUTCOMES_MAX]:
            del self.outcomes[offset]
        return has_word

    def close(self) -> None:
        self._consumer.close()
