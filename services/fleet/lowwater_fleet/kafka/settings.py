"""Settings of the embedded broker: one node, which is broker and controller, without retention limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"  # not "localhost": that may resolve to ::1 first, on which nothing listens
MESSAGE_BYTES_MAX = 17 * 1024 * 1024  # a message of 16 MB and the batch around it


@dataclass(frozen=True)
class Listener:
    """An additional listener of the broker, which advertises `advertised_port` instead of `port`.

    For a proxy that listens on `advertised_port` and forwards to `port`: clients of the proxy also use it for the
    connections that they open after they have read the metadata.
    """

    name: str
    port: int
    advertised_port: int


# The defaults of embedded brokers; `settings` of EmbeddedKafka overrides them.
SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # lowwater creates its topics itself, with the partitions and cleanup policy that they need
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # the default, 50 partitions each, is of no use on one node and slows down the first transaction
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "message.max.bytes": str(MESSAGE_BYTES_MAX),
    "replica.fetch.max.bytes": str(MESSAGE_BYTES_MAX),
    "transaction.max.timeout.ms": "900000",
    "group.initial.rebalance.delay.ms": "0",
    # no retention by age or size: lowwater deletes records that it no longer needs
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    # the default, 128 MB, is a quarter of the heap; 16 MB is enough for 600,000 keys in one pass
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(256 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    # After `kill -9` the controller rejects the new broker until the session of the old one has expired; the
    # broker retries at each heartbeat. With the defaults (9 s, 2 s) a restart takes 12 s, with these values 4 s.
    "broker.session.timeout.ms": "1800",
    "broker.heartbeat.interval.ms": "300",
}

# At `info` a start alone logs a thousand lines. Loggers that explain stalled or fenced clients stay at `info`.
LOG_LEVELS: Mapping[str, str] = {
    "defaultLogLevel": "warn",
    "log.kafka.server.BrokerLifecycleManager": "info",
    "log.kafka.server.KafkaRaftServer": "info",
    "log.kafka.coordinator.transaction": "info",
    # warns about each internal client at every stop
    "log.org.apache.kafka.clients.NetworkClient": "error",
    "showDateTime": "true",
    "dateTimeFormat": "yyyy-MM-dd HH:mm:ss.SSS",
}


def java_log_options() -> list[str]:
    return [f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in LOG_LEVELS.items()]


def server_properties(
    data: Path,
    *,
    port: int,
    controller_port: int,
    listeners: Sequence[Listener] = (),
    settings: Mapping[str, str] | None = None,
) -> str:
    """The text of server.properties."""
    doors = [Listener("PLAINTEXT", port, port), *listeners]
    controller = Listener("CONTROLLER", controller_port, controller_port)
    lines = {
        **SETTINGS,
        "log.dirs": str(data),
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": ",".join(f"{door.name}://{HOST}:{door.port}" for door in [*doors, controller]),
        "advertised.listeners": ",".join(f"{door.name}://{HOST}:{door.advertised_port}" for door in doors),
        "listener.security.protocol.map": ",".join(f"{door.name}:PLAINTEXT" for door in [*doors, controller]),
        **(settings or {}),
    }
    # Java reads this file as Latin-1 with \uXXXX escapes; the escapes of JSON are compatible
    return "".join(f"{name}={json.dumps(value)[1:-1]}\n" for name, value in sorted(lines.items()))
