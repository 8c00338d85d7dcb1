"""The extractor's runtime on the simulated source, beside `produce_batch` of the same bytes."""

from __future__ import annotations

import time
import uuid
from typing import Any

from bench.common import Bench, Result, peak_mb, wait_until
from lowwater.errors import BusError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.kafka.producer import TransactionalProducer
from lowwater.kafka.topics import Topic
from lowwater.records.schemas import open_store
from lowwater.records.types import Position
from lowwater.runtime import config
from lowwater.runtime.config import KafkaConfig, Settings
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

PARTITIONS = 4


def run(bench: Bench) -> None:
    changes = int(600_000 * bench.scale)
    for transfers in (3, 30):
        _run(bench, changes, transfers)


def _run(bench: Bench, changes: int, transfers: int) -> None:
    name = f"b{uuid.uuid4().hex[:8]}"
    cluster = Cluster(bench.directory / name, threads=2, tables=BANK, log_bytes=64 << 20, keep_history=False)
    settings, service = capturing(bench, name)
    service.stop()
    per_transaction = transfers * 3
    bench.say(f"writing redo logs with {changes:,} changes in transactions of {per_transaction}")
    bank = Bank(cluster, BankOptions(transactions=changes // per_transaction, transfers=transfers, accounts=10_000))
    for _ in bank.steps(flush=False):
        pass
    cluster.flush()
    last = cluster.scn
    cluster.heartbeat()
    cluster.close()
    service.start()
    wait_until(lambda: is_published(service, last), 600, "all changes")
    peak = peak_mb(service.process.pid if service.process else 0)
    service.stop()
    started, ended, values = _timing(settings, name)
    ceiling = _raw(settings, name, values)
    published = len(values)
    result = Result(
        f"extractor, {per_transaction} changes each", published / (ended - started), "records/s", ceiling,
        goal="ratio ≥ 0.3", peak_mb=peak,
    )  # fmt: skip
    bench.add(result)


def capturing(bench: Bench, name: str) -> tuple[Settings, Service]:
    """An extractor of the simulated cluster in the bench's directory of this name, which has begun to capture it."""
    raw: dict[str, Any] = {
        "sources": {
            name: {
                "kind": "simulated_rac",
                "partitions": PARTITIONS,
                "config": {"directory": str(bench.directory / name)},
                "http": {"port": free_port()},
            }
        },
    }
    settings, path = bench.config(name, raw)
    service = services.extractor(settings, path, name, bench.directory / "logs")
    service.start()
    wait_until(lambda: last_position(settings, name) is not None, 60, "the first position")
    return settings, service


def last_position(settings: Settings, source: str) -> Position | None:
    try:
        found, _ = read_to_end(settings.kafka, topics.positions(source))
    except BusError:
        return None
    return open_store(settings).record_codec().decode(found[-1].value() or b"", Position) if found else None


def is_published(service: Service, scn: int) -> bool:
    """Asked over HTTP, and not often: looking into Kafka would take the processor from what is measured."""
    threads = (service.status() or {}).get("threads", {}).values()
    return bool(threads) and all(int(t["mark"].split(".")[0]) >= scn for t in threads)


def _timing(settings: Settings, source: str) -> tuple[float, float, list[tuple[int, bytes, bytes]]]:
    """First and last timestamp of what the second session published, and all of its records."""
    values: list[tuple[int, bytes, bytes]] = []
    stamps: list[int] = []
    codec = open_store(settings).record_codec()
    for partition in range(PARTITIONS):
        for message in read_to_end(settings.kafka, topics.changes(source), partition)[0]:
            value = message.value() or b""
            if codec.headers["Mark"] != value[:5]:
                values.append((partition, message.key() or b"", value))
                stamps.append(message.timestamp()[1])
    return min(stamps) / 1000, max(stamps) / 1000, values


def warm_up(bench: Bench) -> None:
    """A broker that has just started compiles itself while it is measured: the first one would pay for all."""
    bench.say("warming the broker up")
    settings = config.Settings(kafka=KafkaConfig(bootstrap_servers=bench.bootstrap_servers))
    values = [(n % PARTITIONS, b"key", n.to_bytes(80, "big")) for n in range(1_000_000)]
    for number in range(3):
        _raw(settings, f"warm-up-{number}", values)


def _raw(settings: Settings, source: str, values: list[tuple[int, bytes, bytes]]) -> float:
    target = Topic(f"bench.{source}", PARTITIONS)
    Admin(settings.kafka).ensure([target])
    producer = TransactionalProducer(settings.kafka, f"bench.raw.{source}")
    producer.init()
    started = time.monotonic()
    for start in range(0, len(values), 200_000):
        producer.begin()
        for at in range(start, min(start + 200_000, len(values)), 5_000):
            slab = values[at : at + 5_000]
            producer.produce_batch(target.name, [{"key": k, "value": v, "partition": p} for p, k, v in slab])
        producer.commit()
    return len(values) / (time.monotonic() - started)
