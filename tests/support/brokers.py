"""Brokers that can be fenced: one whose heartbeats can be held back, and three that are one cluster."""

from __future__ import annotations

import base64
import json
import os
import signal
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka.admin import AdminClient

from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.ports import free_port
from tests.failures.proxy import SwallowingProxy
from tests.support.harness import wait_until


class FencedBroker:
    """One broker that reaches its own controller through a proxy: held back, it is fenced; clients stay connected."""

    def __init__(self, new_kafka: Callable[..., EmbeddedKafka]) -> None:
        port, controller, through = free_port(), free_port(), free_port()
        self._proxy = SwallowingProxy(through, controller)
        self.kafka = new_kafka(
            port=port,
            settings={
                "controller.quorum.voters": f"1@127.0.0.1:{through}",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            },
        )
        self.kafka.start()

    def fence(self) -> None:
        self._proxy.stop()

    def unfence(self) -> None:
        self._proxy.go()

    def close(self) -> None:
        self._proxy.close()


class ThreeBrokers:
    """Three nodes, each broker and controller; topics have three replicas, two of which must answer."""

    def __init__(self, directory: Path) -> None:
        cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        ports = [free_port() for _ in range(3)]
        controllers = [free_port() for _ in range(3)]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        self.nodes: list[EmbeddedKafka] = []
        for node, (port, controller) in enumerate(zip(ports, controllers, strict=True), 1):
            home = directory / f"kafka-{node}"
            home.mkdir(parents=True)
            (home / "broker.json").write_text(json.dumps({"cluster_id": cluster_id, "port": port}))
            settings = {
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "default.replication.factor": "3",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                "broker.session.timeout.ms": "3000",
            }
            options = ["-XX:TieredStopAtLevel=1"]
            self.nodes.append(EmbeddedKafka(home, port=port, heap_mb=256, settings=settings, java_options=options))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def start(self) -> None:
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda node: node.start(timeout_seconds=180), self.nodes))
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        wait_until("three brokers", lambda: len(admin.list_topics(timeout=10).brokers) == 3)

    def leader(self, topic: str) -> EmbeddedKafka:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return self.nodes[admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader - 1]

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


def freeze(node: EmbeddedKafka) -> None:
    assert node.pid is not None
    os.kill(node.pid, signal.SIGSTOP)


def thaw(node: EmbeddedKafka) -> None:
    assert node.pid is not None
    os.kill(node.pid, signal.SIGCONT)
