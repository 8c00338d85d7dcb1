"""What a micro-batch holds behind its last end is not stored anywhere: it is read again from Kafka, by its offsets."""

from __future__ import annotations

import time

import pyarrow as pa

from lowwater.bus.consumer import AssignedConsumer
from lowwater.config import KafkaConfig
from lowwater.errors import DataGoneError

_SCHEMA = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_WAIT_SECONDS = 60.0


class TailReader:
    """For a tail of a few records, which is nearly every one: a consumer that stays open answers in milliseconds."""

    def __init__(self, kafka: KafkaConfig, topic: str) -> None:
        self._kafka = kafka
        self._place = (topic, 0)
        self._consumer: AssignedConsumer | None = None

    def _at(self, start: int) -> AssignedConsumer:
        if self._consumer is None:
            self._consumer = AssignedConsumer(self._kafka, "lowwater.tail", {self._place: start})
        else:
            self._consumer.seek({self._place: start})
        return self._consumer

    def peek(self, start: int) -> list[bytes]:
        """Some values from there, if there are any yet."""
        return [message.value() or b"" for message in self._at(start).consume(1_000, 0.5)]

    def read(self, start: int, last: int) -> pa.Table:
        """The committed records from `start` up to and including the one at `last`."""
        consumer = self._at(start)
        offsets: list[int] = []
        keys: list[bytes] = []
        values: list[bytes] = []
        deadline = time.monotonic() + _WAIT_SECONDS
        while not offsets or offsets[-1] < last:
            for message in consumer.consume(10_000, 0.05):
                offset = message.offset() or 0
                if start <= offset <= last:
                    offsets.append(offset)
                    keys.append(message.key() or b"")
                    values.append(message.value() or b"")
            if time.monotonic() > deadline:
                raise DataGoneError(
                    f"{self._place[0]}: records {start} … {last} were there, and do not come again",
                    hint="was the topic truncated? see docs/operations.md, data gone",
                )
        return pa.Table.from_arrays([pa.array(offsets), pa.array(keys, pa.binary()), pa.array(values, pa.binary())],
                                    schema=_SCHEMA)  # fmt: skip

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
