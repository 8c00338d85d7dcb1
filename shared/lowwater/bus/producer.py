"""Transactional producers that are thrown away at the first doubt.

The client has no KIP-890: the end of one transaction that was delayed on its way can hit the next one of the
same producer. So a producer is used on only while every end is known to have been sent once: after an abort,
a time-out, an unknown result or a retry there is a new one, whose epoch fences whatever is still on its way.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from lowwater.bus.client import as_bus_error, client_settings
from lowwater.config import KafkaConfig
from lowwater.errors import BusDoubtError

#: a request is sent again after no less than this (the client varies it by a fifth), so a transaction that
#: ended sooner was ended by one request
RETRY_BACKOFF_SECONDS = 0.25
_NO_RETRY_SECONDS = RETRY_BACKOFF_SECONDS * 0.7
#: after a slower end, the client's own counters tell; they come this often
STATISTICS_SECONDS = 0.2
#: the broker's default maximum
TRANSACTION_TIMEOUT_SECONDS = 900


class TransactionalProducer:
    """One transactional id, one owner. Every method raises FencedError once another took over."""

    def __init__(
        self, kafka: KafkaConfig, transactional_id: str, tick: Callable[[], None] = lambda: None, **more: Any
    ) -> None:
        self._tick = tick
        self._counters: tuple[int, int] = (0, 0)
        self._counters_at = 0.0
        self._errors = 0
        self._producer = Producer(
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_SECONDS * 1000,
                "compression.type": kafka.compression,
                # set, not left to a default; our own code names partitions, this is for what does not
                "partitioner": "consistent",
                "linger.ms": 5,
                "batch.num.messages": 100_000,
                "batch.size": 1 << 20,
                # a message that waits costs the client some 300 bytes more than its own
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 32 * 1024,
                "retry.backoff.ms": int(RETRY_BACKOFF_SECONDS * 1000),
                "statistics.interval.ms": int(STATISTICS_SECONDS * 1000),
                "stats_cb": self._on_statistics,
                "error_cb": self._on_error,
                **client_settings(kafka),
                **more,
            }
        )

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self._counters = (sum(b["txretries"] for b in brokers), sum(b["req_timeouts"] for b in brokers))
        self._counters_at = time.monotonic()

    def _on_error(self, error: KafkaError) -> None:
        self._errors += 1

    def init(self) -> None:
        """Fence every predecessor; returns once its transaction is ended."""
        self._call("take over", lambda: self._producer.init_transactions(30.0), patient=True)

    def begin(self) -> None:
        self._call("begin a transaction", self._producer.begin_transaction)

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        while True:
            try:
                return self._producer.produce(topic, value=value, key=key, partition=partition)
            except BufferError:
                self._wait()
            except KafkaException as error:
                raise as_bus_error(error, f"produce to {topic}") from error

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> None:
        """Messages are `{"key", "value", "partition"}`, or all go to `partition`; a full queue is waited for."""
        while messages:
            try:
                queued = self._producer.produce_batch(topic, messages, partition)
            except KafkaException as error:
                raise as_bus_error(error, f"produce to {topic}") from error
            if queued == len(messages):
                return
            left = [m for m in messages if "_error" in m]
            for message in left:
                refused = message.pop("_error")
                if refused.code() != KafkaError._QUEUE_FULL:
                    raise as_bus_error(refused, f"produce to {topic}")
            messages = left
            self._wait()

    def _poll(self, seconds: float) -> None:
        self._call("hear from the broker", lambda: self._producer.poll(seconds))

    def _wait(self) -> None:
        self._poll(0.01)
        self._tick()

    def flush(self) -> None:
        while self._call("flush", lambda: self._producer.flush(0.5)):
            self._tick()

    def send_offsets(self, offsets: dict[tuple[str, int], int], group_metadata: Any) -> None:
        places = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
        self._call("mirror offsets", lambda: self._producer.send_offsets_to_transaction(places, group_metadata))

    def commit(self) -> None:
        """Durable when it returns. There is no time-out of ours: giving up would leave the result unknown."""
        before = self._counters
        errors = self._errors
        started = time.monotonic()
        self._call("commit a transaction", self._producer.commit_transaction)
        self._poll(0)
        ended = time.monotonic()
        if ended - started < _NO_RETRY_SECONDS and errors == self._errors:
            return
        while self._counters_at <= ended:
            self._poll(STATISTICS_SECONDS)
            self._tick()
        if self._counters != before or errors != self._errors:
            raise BusDoubtError(
                "a transaction was committed, but its end may have been sent twice",
                hint="started anew, so that a late copy of it cannot end the next one",
            )

    def close(self) -> None:
        """Without an abort: the next `init` under this id ends what is open, and fences this one."""
        with contextlib.suppress(KafkaException):  # a fenced producer says so here once more
            self._producer.purge()
            self._producer.poll(0)

    def _call(self, doing: str, call: Callable[[], Any], patient: bool = False) -> Any:
        while True:
            try:
                return call()
            except KafkaException as error:
                if patient and error.args[0].retriable():
                    self._tick()
                    continue
                raise as_bus_error(error, doing) from error
