"""Transactional producers that are replaced as soon as a result is unknown.

librdkafka does not implement KIP-890: a delayed EndTxn request of one transaction can end the next transaction of the
same producer. So a producer is used further only if each EndTxn request is known to have been sent once. After an
abort, a timeout, an unknown result or a retry a new producer is created, whose epoch fences delayed requests.

A client that delivers nothing is replaced, too: after a broker was fenced for a moment, some clients never sent their
queued records again, while a new client worked immediately. An unknown result is then handled as after `kill -9`: the
next session reads the committed state from Kafka (docs/decisions/001, 024).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from lowwater.errors import BusDoubtError, BusFatalError, FencedError, LowwaterError
from lowwater.kafka.client import ClientErrors, as_bus_error, client_settings
from lowwater.runtime.config import KafkaConfig
from lowwater.status.metrics import KAFKA_TRANSACTIONS

#: minimum delay before a request is retried (the client varies it by 20 %): a transaction that ended sooner was ended
#: by a single request
RETRY_BACKOFF_SECONDS = 0.25
_NO_RETRY_SECONDS = RETRY_BACKOFF_SECONDS * 0.7
#: timeout of one init_transactions call, after which `tick` is called
INIT_SECONDS = 5.0
#: timeout of one commit_transaction call, after which `tick` is called
COMMIT_SECONDS = 1.0
#: timeout of sending offsets. If a broker dies meanwhile, the client may wait forever in spite of it
OFFSETS_SECONDS = 10.0
#: interval of the client's statistics, which show after a slow commit whether a request was retried
STATISTICS_SECONDS = 0.2
#: time in which the client reports which fatal error it has met
_FATAL_SECONDS = 1.0
#: the default maximum of a broker; `transaction.timeout.ms` of kafka.client overrides it
TRANSACTION_TIMEOUT_SECONDS = 900
#: time for a client to end its threads; after it the client is abandoned
_CLOSE_SECONDS = 5.0


class _Closed:
    """Replaces the client of a closed producer: every call raises BusFatalError."""

    def __getattr__(self, name: str) -> Any:
        raise BusFatalError(f"{name}: this producer is closed")


class _Counters:
    """Retries and timeouts from the client's statistics. Not part of the producer, as ClientErrors."""

    def __init__(self) -> None:
        self.counters: tuple[int, int] = (0, 0)
        self.at = 0.0

    def on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.counters = (sum(b["txretries"] for b in brokers), sum(b["req_timeouts"] for b in brokers))
        self.at = time.monotonic()


class _Patience:
    """Measures, during one wait, how long the client has delivered nothing."""

    def __init__(self, seconds: float, delivered: int) -> None:
        self._seconds = seconds
        self._delivered = delivered
        self._since = time.monotonic()

    def has_moved(self, delivered: int) -> bool:
        if delivered <= self._delivered:
            return False
        self._delivered, self._since = delivered, time.monotonic()
        return True

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self._since > self._seconds


def transaction_seconds_max(kafka: KafkaConfig) -> float:
    """The maximum duration of a Kafka transaction."""
    own = kafka.client.get("transaction.timeout.ms")
    return TRANSACTION_TIMEOUT_SECONDS if own is None else int(own) / 1000


@contextlib.contextmanager
def _fatal_errors() -> Iterator[None]:
    """Raises the client's own error: if it raises one while it runs a callback, that is the cause of a SystemError."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from error
        raise


class TransactionalProducer:
    """A producer with one transactional id. Every method raises FencedError once another process took over the id."""

    def __init__(
        self,
        kafka: KafkaConfig,
        transactional_id: str,
        tick: Callable[[], None] = lambda: None,
        progressed: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> None:
        """`tick` is called while waiting for Kafka, `progressed` whenever something was delivered or committed."""
        self._tick = tick
        self._progressed = progressed
        self._transactional_id = transactional_id
        self._is_open = False
        self._counters = _Counters()
        self._errors = ClientErrors()
        self._stall_seconds = kafka.stall_seconds
        #: messages that the client has accepted
        self._taken = 0
        self._producer: Any = Producer(
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_SECONDS * 1000,
                "compression.type": kafka.compression,
                # explicit, so that it does not depend on a default; used only for records without a partition
                "partitioner": "consistent",
                "linger.ms": 5,
                "batch.num.messages": 100_000,
                "batch.size": 1 << 20,
                # a queued message needs about 300 bytes of memory in addition to its own size
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 32 * 1024,
                "retry.backoff.ms": int(RETRY_BACKOFF_SECONDS * 1000),
                "statistics.interval.ms": int(STATISTICS_SECONDS * 1000),
                "stats_cb": self._counters.on_statistics,
                "error_cb": self._errors,
                **client_settings(kafka),
                **more,
            }
        )

    def init(self) -> None:
        """Fence every predecessor; returns when its transaction has ended. Waits for a broker that is down.

        If it fails, the producer is closed: a client that nobody closes keeps its threads and its memory, and services
        try again for as long as the broker is down.
        """
        try:
            self._take_over()
        except BaseException:
            self.close()
            raise

    def _take_over(self) -> None:
        until = time.monotonic() + max(4 * INIT_SECONDS, 2 * self._stall_seconds)
        while True:
            try:
                self._call("take over", lambda: self._producer.init_transactions(INIT_SECONDS))
                return
            except BusDoubtError as error:
                cause = error.__cause__
                if not (isinstance(cause, KafkaException) and cause.args[0].retriable()):
                    raise
                self._poll(0)
                self._errors.check("take over")
                self._tick()
                if time.monotonic() > until:
                    raise BusDoubtError(
                        f"take over: no answer for {self._said()}", hint="a new client tries again"
                    ) from error

    def begin(self) -> None:
        self._call("begin a transaction", self._producer.begin_transaction)
        self._is_open = True

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        patience: _Patience | None = None
        while True:
            try:
                self._producer.produce(topic, value=value, key=key, partition=partition)
                self._taken += 1
                return
            except BufferError:
                patience = self._wait(topic, patience)
            except KafkaException as error:
                raise self._refused(error.args[0], topic) from error

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> None:
        """Queues messages, `{"key", "value", "partition"}`, or all to `partition`. Waits while the queue is full."""
        patience: _Patience | None = None
        while messages:
            try:
                queued = self._producer.produce_batch(topic, messages, partition)
            except KafkaException as error:
                raise self._refused(error.args[0], topic) from error
            self._taken += queued
            if queued == len(messages):
                return
            left = [m for m in messages if "_error" in m]
            for message in left:
                refused = message.pop("_error")
                if refused.code() != KafkaError._QUEUE_FULL:
                    raise self._refused(refused, topic)
            messages = left
            patience = self._wait(topic, patience)

    def _refused(self, error: KafkaError, topic: str) -> LowwaterError:
        """The error for a rejected message.

        After a fatal error the client rejects every message with `_FATAL` and reports the cause as an event. It is
        polled for it, because a fenced process must not take over again.
        """
        if error.code() == KafkaError._FATAL:
            self._poll(_FATAL_SECONDS)
        return as_bus_error(error, f"produce to {topic}")

    def _poll(self, seconds: float) -> None:
        self._call("poll the client", lambda: self._producer.poll(seconds))

    @property
    def _delivered(self) -> int:
        """The number of delivered messages. It may be a few too low: the client's queue also contains events."""
        return self._taken - len(self._producer)

    def _wait(self, topic: str, patience: _Patience | None) -> _Patience:
        """Waits a moment for space in the client's queue; returns the `patience` for the next call of the same wait."""
        self._poll(0.01)
        self._tick()
        if patience is None:
            return _Patience(self._stall_seconds, self._delivered)
        self._check(patience, f"produce to {topic}")
        return patience

    def _check(self, patience: _Patience, doing: str) -> None:
        if patience.has_moved(self._delivered):
            self._progressed()
        elif patience.is_over:
            raise self._stalled(doing)

    def _stalled(self, doing: str) -> BusDoubtError:
        self._count("stalled")
        return BusDoubtError(
            f"{doing}: the client delivered nothing for {self._said()}, with {len(self._producer)} messages queued",
            hint="a new client continues from the state in Kafka; nothing is lost",
        )

    def _said(self) -> str:
        met = self._errors.text
        return f"{self._stall_seconds:g} s{f'; last error: {met}' if met else ''}"

    def flush(self) -> None:
        patience = _Patience(self._stall_seconds, self._delivered)
        while self._call("flush", lambda: self._producer.flush(0.5)):
            self._tick()
            self._check(patience, "flush")

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

        # in a thread of its own: a call that never returns is abandoned together with its producer
        threading.Thread(target=send, name="lowwater-offsets", daemon=True).start()
        self._call("mirror offsets", lambda: self._answer(answer))

    def _answer(self, answer: Future[None]) -> None:
        until = time.monotonic() + 2 * OFFSETS_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                return answer.result(0.5)
            self._tick()
        raise BusDoubtError("sending offsets did not return", hint="a new client continues")

    def commit(self) -> None:
        """Commits the transaction; it is durable when this returns. Raises BusDoubtError if the result is unknown."""
        before = (self._counters.counters, self._errors.count)
        started = time.monotonic()
        self._end()
        self._is_open = False
        self._poll(0)
        ended = time.monotonic()
        self._progressed()
        if ended - started < _NO_RETRY_SECONDS and self._errors.count == before[1]:
            self._count("committed")
            return
        while self._counters.at <= ended:
            self._poll(STATISTICS_SECONDS)
            self._tick()
        if (self._counters.counters, self._errors.count) != before:
            self._count("doubted")
            raise BusDoubtError(
                "a transaction was committed, but its EndTxn request may have been sent twice",
                hint="a new session begins, so that a delayed duplicate cannot end the next transaction",
            )
        self._count("committed")

    def _end(self) -> None:
        """Commits in repeated calls: after a timeout the client continues, and the next call waits for the result."""
        patience = _Patience(self._stall_seconds, self._delivered)
        while True:
            try:
                with _fatal_errors():
                    self._producer.commit_transaction(COMMIT_SECONDS)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or not error.args[0].retriable():
                    raise self._failed(error, "commit a transaction") from error
            self._tick()
            if not patience.has_moved(self._delivered) and patience.is_over:
                self._count("stalled")
                raise BusDoubtError(
                    f"commit a transaction: no answer for {self._said()}; the result is unknown",
                    hint="a new session fences this one, and then reads the committed state from Kafka",
                )

    def close(self) -> None:
        """Closes without an abort: the next `init` with this id aborts the open transaction and fences this one."""
        if self._is_open:
            self._is_open = False
            self._count("aborted")
        with contextlib.suppress(KafkaException, BusFatalError):  # a fenced producer raises here again
            self._producer.purge()
            self._producer.poll(0)
        # ends its threads now, even if this object is still referenced: Spark keeps the functions of ended streams
        gone, self._producer = [self._producer], _Closed()
        if not isinstance(gone[0], _Closed):
            # in a thread of its own: a call that never returns is abandoned
            thread = threading.Thread(target=gone.clear, name="lowwater-close", daemon=True)
            thread.start()
            thread.join(_CLOSE_SECONDS)

    def _call(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            with _fatal_errors():
                return call()
        except KafkaException as error:
            raise self._failed(error, doing) from error

    def _failed(self, error: KafkaException, doing: str) -> LowwaterError:
        found = as_bus_error(error, doing)
        if isinstance(found, FencedError):
            self._count("fenced")
        return found

    def _count(self, outcome: str) -> None:
        KAFKA_TRANSACTIONS.labels(self._transactional_id, outcome).inc()
