"""Checks, with a separate client, that Kafka answers and that the topics are the same as at the start of the service.

A client reports no error for a topic that is deleted while it uses it, but waits for it; nor does a client that hangs.
So this check has its own client and sends a request every two seconds. It never blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from lowwater.errors import TopicError
from lowwater.kafka.admin import admin_client
from lowwater.kafka.client import ClientErrors
from lowwater.runtime.config import KafkaConfig

#: time between two requests
LOOK_SECONDS = 2.0
#: timeout of a request
ANSWER_SECONDS = 5.0
#: without a response for this long, the broker is reported as not answering
SILENT_SECONDS = 3.0
#: a topic must be missing this often in a row: a broker that was just started may not know all topics yet
_MISSING_TIMES = 2


class TopicWatch:
    """Created when the topics exist; `look` is called from the loop of the service, as often as convenient."""

    def __init__(self, kafka: KafkaConfig, topics: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = kafka.bootstrap_servers
        self._topics = sorted(set(topics))
        self._clock = clock
        self._errors = ClientErrors()
        self._client = admin_client(kafka, self._errors)
        self._asked_at = -LOOK_SECONDS
        self._answers: dict[str, Future[Any]] = {}
        self._ids: dict[str, str] = {}
        self._missing: dict[str, int] = {}
        self._trouble = ""

    def look(self) -> None:
        """Sends a request if one is due, and evaluates responses. Raises TopicError for a topic that was deleted, or
        deleted and created again."""
        now = self._clock()
        if self._answers:
            if all(answer.done() for answer in self._answers.values()):
                answers, self._answers = self._answers, {}
                self._take(answers)
        elif now - self._asked_at >= LOOK_SECONDS:
            self._asked_at = now
            while self._client.poll(0):
                pass
            self._answers = self._client.describe_topics(TopicCollection(self._topics), request_timeout=ANSWER_SECONDS)

    @property
    def why(self) -> str:
        """The current problem with Kafka; "" if there is none."""
        is_silent = bool(self._answers) and self._clock() - self._asked_at > SILENT_SECONDS
        if is_silent and not self._trouble:
            return self._unanswered("no answer")
        return self._trouble

    def _unanswered(self, what: str) -> str:
        return f"Kafka at {self._servers} does not answer: {self._errors.text or what}"

    def _take(self, answers: dict[str, Future[Any]]) -> None:
        trouble = ""
        for name, answer in answers.items():
            error = answer.exception()
            if error is None:
                found = answer.result()
                self._missing.pop(name, None)
                self._check_id(name, str(found.topic_id))
                headless = [p.id for p in found.partitions if p.leader is None or p.leader.id < 0]
                if headless:
                    trouble = f"topic {name}[{headless[0]}] has no leader: is a broker down?"
            elif isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._miss(name)
            else:
                what = error.args[0].str() if isinstance(error, KafkaException) else str(error)
                while self._client.poll(0):
                    pass
                trouble = self._unanswered(what)
        self._trouble = trouble

    def _check_id(self, name: str, topic_id: str) -> None:
        if self._ids.setdefault(name, topic_id) != topic_id:
            raise TopicError(
                f"topic {name} was deleted and created again while this service ran: its records are lost",
                hint="see docs/operations/recover.md, a topic was deleted; then restart this service",
            )

    def _miss(self, name: str) -> None:
        self._missing[name] = self._missing.get(name, 0) + 1
        if self._missing[name] >= _MISSING_TIMES:
            raise TopicError(
                f"topic {name} was deleted while this service ran: its records are lost",
                hint="see docs/operations/recover.md, a topic was deleted; a restart of this service creates it again",
            )
