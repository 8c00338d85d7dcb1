"""Creates topics with the required settings, checks them at every start, and reads offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from lowwater.errors import BusError, TopicError
from lowwater.kafka.client import ClientErrors, as_bus_error, client_settings
from lowwater.kafka.consumer import Place
from lowwater.kafka.topics import Topic
from lowwater.runtime.config import KafkaConfig

#: settings for which a higher value than required is accepted
_AT_LEAST = ("max.message.bytes", "min.insync.replicas")


#: timeout of a request while the service runs
_ADMIN_SECONDS = 10.0
#: timeout of a request while waiting for the broker
_ASK_SECONDS = 2.0


def admin_client(kafka: KafkaConfig, errors: ClientErrors) -> AdminClient:
    """A new client. Its errors are passed to `errors` whenever it is polled."""
    settings: Any = {**client_settings(kafka), "error_cb": errors}
    settings.pop("message.max.bytes")
    return AdminClient(settings)


class AskedEnds:
    """A pending request for the end offsets of partitions."""

    def __init__(self, stable: dict[Place, Future[Any]], high: dict[Place, Future[Any]]) -> None:
        self._stable = stable
        self._high = high

    def take(self) -> dict[Place, tuple[int, int]] | None:
        """By partition: the last stable offset and the high watermark. None until all responses have been received.

        Partitions whose request failed are left out.
        """
        answers = [*self._stable.values(), *self._high.values()]
        if not all(answer.done() for answer in answers):
            return None
        return {
            place: (int(stable.result().offset), int(self._high[place].result().offset))
            for place, stable in self._stable.items()
            if stable.exception() is None and self._high[place].exception() is None
        }


class Admin:
    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._errors = ClientErrors()
        self._client = admin_client(kafka, self._errors)

    def wait_for_broker(self, timeout_seconds: float, on_wait: Callable[[str], None] = lambda _why: None) -> None:
        """Waits until the broker answers.

        Raises BusError after the timeout, and BusRefusedError immediately if the broker denies access.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                self._client.list_topics(timeout=_ASK_SECONDS)
                return
            except KafkaException as error:
                # the client delivers its errors as events, one per poll
                while self._client.poll(0):
                    pass
                self._errors.check(f"no access to Kafka at {self._kafka.bootstrap_servers}")
                why = f"no broker at {self._kafka.bootstrap_servers}: {self._errors.text or error.args[0].str()}"
                if time.monotonic() > deadline:
                    raise BusError(
                        why,
                        hint="is it running (`lowwater kafka start`), and are kafka.bootstrap_servers and "
                        "security.protocol of kafka.client right (TLS or not, SASL or not)?",
                    ) from error
                on_wait(why)

    def ensure(self, topics: Iterable[Topic]) -> None:
        """Creates missing topics, then checks all of them."""
        wanted = {topic.name: topic for topic in topics}
        new = [
            NewTopic(
                t.name,
                num_partitions=t.partitions,
                replication_factor=self._kafka.replication,
                config={**t.settings, "min.insync.replicas": str(self._kafka.min_insync_replicas)},
            )
            for t in wanted.values()
        ]
        for name, future in self._client.create_topics(new).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise as_bus_error(error, f"create topic {name}") from error
        self.wait_for_topics(wanted.values())
        self.check(wanted.values())

    def wait_for_topics(self, topics: Iterable[Topic], timeout_seconds: float = 30) -> None:
        """Waits until each topic is known and all its partitions have a leader. Raises TopicError."""
        names = {topic.name for topic in topics}
        deadline = time.monotonic() + timeout_seconds
        while True:
            known = self._known()
            ready = {
                name
                for name in names
                if name in known
                and known[name].partitions
                and all(p.leader >= 0 for p in known[name].partitions.values())
            }
            if ready == names:
                return
            if time.monotonic() > deadline:
                raise TopicError(
                    f"topics without a leader: {', '.join(sorted(names - ready))}", hint="are all brokers up?"
                )
            time.sleep(0.1)

    def _known(self) -> dict[str, Any]:
        try:
            return self._client.list_topics(timeout=10).topics
        except KafkaException as error:
            raise as_bus_error(error, "list the topics") from error

    def check(self, topics: Iterable[Topic]) -> None:
        """Raises TopicError for a topic that is missing or has wrong settings; the hint says how to fix it."""
        known = self._known()
        for topic in topics:
            if topic.name not in known:
                raise TopicError(f"topic {topic.name} is missing", hint="start its writer first, which creates it")
            found = len(known[topic.name].partitions)
            if found != topic.partitions:
                raise TopicError(
                    f"topic {topic.name} has {found} partitions, the config says {topic.partitions}",
                    hint=f"partitions cannot be changed: set partitions to {found}",
                )
            self._check_settings(topic)

    def _check_settings(self, topic: Topic) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        (future,) = self._client.describe_configs([resource]).values()
        try:
            found = {name: entry.value for name, entry in future.result().items()}
        except KafkaException as error:
            raise as_bus_error(error, f"read the settings of {topic.name}") from error
        wanted = {**topic.settings, "min.insync.replicas": str(self._kafka.min_insync_replicas)}
        for name, value in wanted.items():
            is_good = int(found[name]) >= int(value) if name in _AT_LEAST else found[name] == value
            if not is_good:
                raise TopicError(
                    f"topic {topic.name} has {name}={found[name]}, it needs {value}",
                    hint=f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
                    f"--add-config {name}={value}",
                )

    def ask_ends(self, places: Iterable[Place]) -> AskedEnds:
        """Requests the end offsets of partitions. Does not wait for the responses."""
        asked = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            wanted = {TopicPartition(*place): latest for place in places}
            answers = self._client.list_offsets(wanted, isolation_level=level, request_timeout=_ADMIN_SECONDS)
            asked.append({(str(p.topic), int(p.partition)): answer for p, answer in answers.items()})
        return AskedEnds(*asked)

    def first_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """The earliest available offset of each partition."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, p): earliest for p in range(partitions)}
        answers = self._client.list_offsets(wanted, request_timeout=_ADMIN_SECONDS)
        try:
            return {int(p.partition): int(answer.result().offset) for p, answer in answers.items()}
        except KafkaException as error:
            raise as_bus_error(error, f"ask for the beginning of {topic}") from error

    def topic_id(self, topic: str) -> str:
        """The topic id. It changes when a topic is deleted and created again."""
        (future,) = self._client.describe_topics(TopicCollection([topic]), request_timeout=_ADMIN_SECONDS).values()
        try:
            return str(future.result().topic_id)
        except KafkaException as error:
            raise as_bus_error(error, f"describe {topic}") from error

    def delete_records(self, offsets: dict[tuple[str, int], int]) -> None:
        """Deletes the records before these offsets."""
        places = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
        for place, future in self._client.delete_records(places, request_timeout=_ADMIN_SECONDS).items():
            try:
                future.result()
            except KafkaException as error:
                raise as_bus_error(error, f"delete {place.topic}[{place.partition}] before {place.offset}") from error
