"""Topics are created with the settings they need, and checked at every start."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from lowwater.bus.client import as_bus_error, client_settings
from lowwater.config import KafkaConfig
from lowwater.errors import BusError, TopicError
from lowwater.topics import Topic

#: more of these is no harm, less is
_AT_LEAST = ("max.message.bytes", "min.insync.replicas")


class Admin:
    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        settings = client_settings(kafka)
        settings.pop("message.max.bytes")
        self._client = AdminClient(settings)

    def wait_for_broker(self, timeout_seconds: float) -> None:
        """Until the broker answers, or BusError."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                self._client.list_topics(timeout=5)
                return
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise BusError(
                        f"no broker at {self._kafka.bootstrap_servers}: {error.args[0].str()}",
                        hint="start one with `lowwater kafka start`, or mend kafka.bootstrap_servers",
                    ) from error

    def ensure(self, topics: Iterable[Topic]) -> None:
        """Create what is missing, then check all of them."""
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
        """A created topic is not at once known to every broker, nor led by one."""
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
        """A topic with other settings than it needs is an error that says how to mend it."""
        known = self._known()
        for topic in topics:
            if topic.name not in known:
                raise TopicError(f"topic {topic.name} is missing", hint="start its writer first, which creates it")
            found = len(known[topic.name].partitions)
            if found != topic.partitions:
                raise TopicError(
                    f"topic {topic.name} has {found} partitions, the config says {topic.partitions}",
                    hint=f"partitions are frozen once made: set partitions to {found}",
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

    def topic_id(self, topic: str) -> str:
        """The identity of a topic: another one after it was deleted and made again."""
        (future,) = self._client.describe_topics(TopicCollection([topic])).values()
        try:
            return str(future.result().topic_id)
        except KafkaException as error:
            raise as_bus_error(error, f"describe {topic}") from error

    def delete_records(self, offsets: dict[tuple[str, int], int]) -> None:
        """Let go of what lies before these offsets."""
        places = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
        for place, future in self._client.delete_records(places).items():
            try:
                future.result()
            except KafkaException as error:
                raise as_bus_error(error, f"delete {place.topic}[{place.partition}] before {place.offset}") from error
