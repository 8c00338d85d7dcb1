"""Reads the first records of the next landing."""

from __future__ import annotations

from lowwater.kafka.consumer import AssignedConsumer
from lowwater.runtime.config import KafkaConfig

_RECORDS = 1_000
_WAIT_SECONDS = 0.5


def peek(kafka: KafkaConfig, topic: str, start: int) -> list[bytes]:
    """Values from the offset `start` on; empty if none is available within half a second."""
    consumer = AssignedConsumer(kafka, "lowwater.peek", {(topic, 0): start})
    try:
        return [message.value() or b"" for message in consumer.consume(_RECORDS, _WAIT_SECONDS)]
    finally:
        consumer.close()
