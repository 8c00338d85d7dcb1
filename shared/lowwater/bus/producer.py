"""Transactional producers that are thrown away at the first doubt.

The client has no KIP-890: the end of one transaction that was delayed on its way can hit the next one of the
same producer. So a producer is used on only while every end is known to have been sent once: after an abort,
a time-out, an unknown result or a retry there is a new one, whose epoch fences whatever is still on its way.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from lowwater.bus.client import as_bus_error, client_settings
from lowwater.config import KafkaConfig
from lowwater.errors import BusDoubtError, BusFatalError, FencedError, LowwaterError
from lowwater.metrics import KAFKA_TRANSACTIONS

#: a request is sent again after no less than this (the client varies it by a fifth), so a transaction that
#: ended sooner was ended by one request
RETRY_BACKOFF_SECONDS = 0.25
_NO_RETRY_SECONDS = RETRY_BACKOFF_SECONDS * 0.7
#: of one attempt to take over: after each the `tick` may say that it is enough
INIT_SECONDS = 5.0
#: a broker that dies while offsets are sent can leave the client waiting for ever, whatever time it was given
OFFSETS_SECONDS = 10.0
#: after a slower end, the client's own counters tell; they come this often
STATISTICS_SECONDS = 0.2
#: until the client has said which fatal error it has met
_FATAL_SECONDS = 1.0
#: the broker's default maximum
TRANSACTION_TIMEOUT_SECONDS = 900


class _Closed:
    """In the place of a client that is gone."""

    def __getattr__(self, name: str) -> Any:
        raise BusFatalError(f"{name}: this producer is closed")


class _Heard:
    """What the client tells of itself. Apart from its owner: a client that its own callbacks lead back to would live
    on, with its threads, until the garbage collector comes by."""

    def __init__(self) -> None:
        self.counters: tuple[int, int] = (0, 0)
        self.at = 0.0
        self.errors = 0

    def on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.counters = (sum(b["txretries"] for b in brokers), sum(b["req_timeouts"] for b in brokers))
        self.at = time.monotonic()

    def on_error(self, _error: KafkaError) -> None:
        self.errors += 1


class TransactionalProducer:
    """One transactional id, one owner. Every method raises FencedError once another took over."""

    def __init__(
        self, kafka: KafkaConfig, transactional_id: str, tick: Callable[[], None] = lambda: None, **more: Any
    ) -> None:
        self._tick = tick
        self._transactional_id = transactional_id
        self._is_open = False
        self._heard = _Heard()
        self._producer: Any = Producer(
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
                "stats_cb": self._heard.on_statistics,
                "error_cb": self._heard.on_error,
                **client_settings(kafka),
                **more,
            }
        )

    def init(self) -> None:
        """Fence every predecessor; returns once its transaction is ended. A broker that is away is waited for."""
        self._call("take over", lambda: self._producer.init_transactions(INIT_SECONDS), patient=True)

    def begin(self) -> None:
        self._call("begin a transaction", self._producer.begin_transaction)
        self._is_open = True

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value=value, key=key, partition=partition)
                return
            except BufferError:
                self._wait()
            except KafkaException as error:
                raise self._refused(error.args[0], topic) from error

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> None:
        """Messages are `{"key", "value", "partition"}`, or all go to `partition`; a full queue is waited for."""
        while messages:
            try:
                queued = self._producer.produce_batch(topic, messages, partition)
            except KafkaException as error:
                raise self._refused(error.args[0], topic) from error
            if queued == len(messages):
                return
            left = [m for m in messages if "_error" in m]
            for message in left:
                refused = message.pop("_error")
                if refused.code() != KafkaError._QUEUE_FULL:
                    raise self._refused(refused, topic)
            messages = left
            self._wait()

    def _refused(self, error: KafkaError, topic: str) -> LowwaterError:
        """Behind a fatal error every message is refused, for that alone: which one it was the client tells by itself.
        Who was fenced must not take over again."""
        if error.code() == KafkaError._FATAL:
            self._poll(_FATAL_SECONDS)
        return as_bus_error(error, f"produce to {topic}")

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
        answer: Future[None] = Future()

        def send() -> None:
            try:
                self._producer.send_offsets_to_transaction(places, group_metadata, OFFSETS_SECONDS)
            except KafkaException as error:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        # not on this thread: one that never comes back is left behind, together with its producer
        threading.Thread(target=send, name="lowwater-offsets", daemon=True).start()
        self._call("mirror offsets", lambda: self._answer(answer))

    def _answer(self, answer: Future[None]) -> None:
        until = time.monotonic() + 2 * OFFSETS_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                return answer.result(0.5)
            self._tick()
        raise BusDoubtError("the client did not come back from sending offsets", hint="started anew")

    def commit(self) -> None:
        """Durable when it returns. There is no time-out of ours: giving up would leave the result unknown."""
        heard = self._heard
        before = (heard.counters, heard.errors)
        started = time.monotonic()
        self._call("commit a transaction", self._producer.commit_transaction)
        self._is_open = False
        self._poll(0)
        ended = time.monotonic()
        if ended - started < _NO_RETRY_SECONDS and heard.errors == before[1]:
            self._count("committed")
            return
        while heard.at <= ended:
            self._poll(STATISTICS_SECONDS)
            self._tick()
        if (heard.counters, heard.errors) != before:
            self._count("doubted")
            raise BusDoubtError(
                "a transaction was committed, but its end may have been sent twice",
                hint="started anew, so that a late copy of it cannot end the next one",
            )
        self._count("committed")

    def close(self) -> None:
        """Without an abort: the next `init` under this id ends what is open, and fences this one."""
        if self._is_open:
            self._is_open = False
            self._count("aborted")
        with contextlib.suppress(KafkaException, BusFatalError):  # a fenced producer says so here once more
            self._producer.purge()
            self._producer.poll(0)
        # its threads end now, whoever still knows of us: a stream that Spark has ended keeps what it called
        self._producer = _Closed()

    def _call(self, doing: str, call: Callable[[], Any], patient: bool = False) -> Any:
        while True:
            try:
                return call()
            except KafkaException as error:
                if patient and error.args[0].retriable():
                    self._tick()
                    continue
                found = as_bus_error(error, doing)
                if isinstance(found, FencedError):
                    self._count("fenced")
                raise found from error

    def _count(self, outcome: str) -> None:
        KAFKA_TRANSACTIONS.labels(self._transactional_id, outcome).inc()
