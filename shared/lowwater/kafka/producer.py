"""Transactional producers that are thrown away at the first doubt.

The client has no KIP-890: the end of one transaction that was delayed on its way can hit the next one of the
same producer. So a producer is used on only while every end is known to have been sent once: after an abort,
a time-out, an unknown result or a retry there is a new one, whose epoch fences whatever is still on its way.

Nor is a client trusted that delivers nothing: after a broker was fenced for a moment, some never sent again what they
held, and a new client went on at once. A result that is not known then is the same as after `kill -9`: the next session
reads from Kafka what counts (docs/decisions/001, 024).
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

from lowwater.errors import BusDoubtError, BusFatalError, FencedError, LowwaterError
from lowwater.kafka.client import ClientErrors, as_bus_error, client_settings
from lowwater.runtime.config import KafkaConfig
from lowwater.status.metrics import KAFKA_TRANSACTIONS

#: a request is sent again after no less than this (the client varies it by a fifth), so a transaction that
#: ended sooner was ended by one request
RETRY_BACKOFF_SECONDS = 0.25
_NO_RETRY_SECONDS = RETRY_BACKOFF_SECONDS * 0.7
#: of one attempt to take over: after each the `tick` may say that it is enough
INIT_SECONDS = 5.0
#: of one wait for the end of a transaction, after which the `tick` is called
COMMIT_SECONDS = 1.0
#: a broker that dies while offsets are sent can leave the client waiting for ever, whatever time it was given
OFFSETS_SECONDS = 10.0
#: after a slower end, the client's own counters tell; they come this often
STATISTICS_SECONDS = 0.2
#: until the client has said which fatal error it has met
_FATAL_SECONDS = 1.0
#: the broker's default maximum; `transaction.timeout.ms` of kafka.client is another one
TRANSACTION_TIMEOUT_SECONDS = 900
#: for a client to end its threads; one that does not is left alone
_CLOSE_SECONDS = 5.0


class _Closed:
    """In the place of a client that is gone."""

    def __getattr__(self, name: str) -> Any:
        raise BusFatalError(f"{name}: this producer is closed")


class _Counters:
    """What the client counts of itself. Apart from its owner, as ClientErrors."""

    def __init__(self) -> None:
        self.counters: tuple[int, int] = (0, 0)
        self.at = 0.0

    def on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.counters = (sum(b["txretries"] for b in brokers), sum(b["req_timeouts"] for b in brokers))
        self.at = time.monotonic()


class _Patience:
    """Of one wait: how long a client may deliver nothing."""

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
    """How long a Kafka transaction may be open."""
    own = kafka.client.get("transaction.timeout.ms")
    return TRANSACTION_TIMEOUT_SECONDS if own is None else int(own) / 1000


class TransactionalProducer:
    """One transactional id, one owner. Every method raises FencedError once another took over."""

    def __init__(
        self,
        kafka: KafkaConfig,
        transactional_id: str,
        tick: Callable[[], None] = lambda: None,
        progressed: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> None:
        """`tick` is called while Kafka is waited for, `progressed` whenever something was delivered or committed."""
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
                "stats_cb": self._counters.on_statistics,
                "error_cb": self._errors,
                **client_settings(kafka),
                **more,
            }
        )

    def init(self) -> None:
        """Fence every predecessor; returns once its transaction is ended. A broker that is away is waited for."""
        until = time.monotonic() + max(4 * INIT_SECONDS, 2 * self._stall_seconds)
        while True:
            try:
                self._call("take over", lambda: self._producer.init_transactions(INIT_SECONDS))
                return
            except BusDoubtError as error:
                cause = error.__cause__
                if not (isinstance(cause, KafkaException) and cause.args[0].retriable()):
                    raise
                self._producer.poll(0)
                self._errors.check("take over")
                self._tick()
                if time.monotonic() > until:
                    raise BusDoubtError(
                        f"take over: no answer for {self._said()}", hint="asked again by a new client"
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
        """Messages are `{"key", "value", "partition"}`, or all go to `partition`; a full queue is waited for."""
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
        """Behind a fatal error every message is refused, for that alone: which one it was the client tells by itself.
        Who was fenced must not take over again."""
        if error.code() == KafkaError._FATAL:
            self._poll(_FATAL_SECONDS)
        return as_bus_error(error, f"produce to {topic}")

    def _poll(self, seconds: float) -> None:
        self._call("hear from the broker", lambda: self._producer.poll(seconds))

    @property
    def _delivered(self) -> int:
        """Messages that are no longer with the client. Its queue also holds what it wants to tell: a few more."""
        return self._taken - len(self._producer)

    def _wait(self, topic: str, patience: _Patience | None) -> _Patience:
        """For room in the client's queue; gives back what the next wait for the same room is called with."""
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
            f"{doing}: the client delivered nothing for {self._said()}, with {len(self._producer)} messages in it",
            hint="a new client goes on from what Kafka holds; nothing is lost",
        )

    def _said(self) -> str:
        met = self._errors.text
        return f"{self._stall_seconds:g} s{f', and says: {met}' if met else ''}"

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

        # not on this thread: one that never comes back is left behind, together with its producer
        threading.Thread(target=send, name="lowwater-offsets", daemon=True).start()
        self._call("mirror offsets", lambda: self._answer(answer))

    def _answer(self, answer: Future[None]) -> None:
        until = time.monotonic() + 2 * OFFSETS_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                return answer.result(0.5)
            self._tick()
        raise BusDoubtError("the client did not come back from sending offsets", hint="a new client goes on")

    def commit(self) -> None:
        """Durable when it returns. Where there is no answer, whether it counts is not known, as after a crash."""
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
                "a transaction was committed, but its end may have been sent twice",
                hint="a new session begins, so that a late copy of it cannot end the next one",
            )
        self._count("committed")

    def _end(self) -> None:
        """The client goes on with an end while nobody waits for it: asked again, it only waits on."""
        patience = _Patience(self._stall_seconds, self._delivered)
        while True:
            try:
                self._producer.commit_transaction(COMMIT_SECONDS)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or not error.args[0].retriable():
                    raise self._failed(error, "commit a transaction") from error
            self._tick()
            if not patience.has_moved(self._delivered) and patience.is_over:
                self._count("stalled")
                raise BusDoubtError(
                    f"commit a transaction: no answer for {self._said()}; whether it counts is not known",
                    hint="a new session fences this one, and then reads from Kafka what counts",
                )

    def close(self) -> None:
        """Without an abort: the next `init` under this id ends what is open, and fences this one."""
        if self._is_open:
            self._is_open = False
            self._count("aborted")
        with contextlib.suppress(KafkaException, BusFatalError):  # a fenced producer says so here once more
            self._producer.purge()
            self._producer.poll(0)
        # its threads end now, whoever still knows of us: a stream that Spark has ended keeps what it called
        gone, self._producer = [self._producer], _Closed()
        if not isinstance(gone[0], _Closed):
            # not on this thread: one that never comes back is left behind
            thread = threading.Thread(target=gone.clear, name="lowwater-close", daemon=True)
            thread.start()
            thread.join(_CLOSE_SECONDS)

    def _call(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
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
