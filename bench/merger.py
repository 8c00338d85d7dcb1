"""The merger beside a loop that only consumes and produces the same bytes; and its memory."""

from __future__ import annotations

import datetime
import json
import time
import uuid
from pathlib import Path
from typing import Any

from bench.changes import ChangesWriter
from bench.common import Bench, Result, peak_mb, wait_until
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import AssignedConsumer, read_to_end
from lowwater.kafka.producer import TransactionalProducer
from lowwater.kafka.topics import Topic
from lowwater.records.schemas import open_store
from lowwater.records.types import Progress
from lowwater.runtime.config import Settings
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

PARTITIONS = 4


def _settings(bench: Bench) -> tuple[Settings, Path, str, str]:
    name = f"b{uuid.uuid4().hex[:8]}"
    raw: dict[str, Any] = {
        "sources": {name: {"kind": "simulated_rac", "partitions": PARTITIONS}},
        "groups": {name: {"sources": [name], "http": {"port": free_port()}}},
        "state_directory": str(bench.directory / name),
    }
    settings, path = bench.config(name, raw)
    wanted = [*topics.shared_topics(), *topics.source_topics(name, settings.source(name))]
    Admin(settings.kafka).ensure([*wanted, *topics.group_topics(name, settings.group(name))])
    return settings, path, name, name


def _writer(settings: Settings, source: str, threads: int = 1) -> ChangesWriter:
    store = open_store(settings)
    return ChangesWriter(settings, store, store.record_codec(), source, threads)


def _raw_loop(settings: Settings, source: str, records: int) -> float:
    """Records per second of consume (read_committed) and `produce_batch`, transactions of the same size."""
    target = Topic(f"bench.{source}", 1)
    Admin(settings.kafka).ensure([target])
    producer = TransactionalProducer(settings.kafka, f"bench.raw.{source}")
    producer.init()
    offsets = {(topics.changes(source), p): 0 for p in range(PARTITIONS)}
    consumer = AssignedConsumer(settings.kafka, "bench", offsets)
    done = size = 0
    is_begun = False
    started = time.monotonic()
    while done < records:
        messages = consumer.consume(10_000, 0.005)
        done += len(messages)
        if messages and not is_begun:
            producer.begin()
            is_begun = True
        batch = [{"key": m.key(), "value": m.value(), "partition": 0} for m in messages]
        size += sum(len(m.value() or b"") for m in messages)
        producer.produce_batch(target.name, batch)
        if size > 16 << 20 or done >= records:
            producer.commit()
            is_begun, size = False, 0
    seconds = time.monotonic() - started
    consumer.close()
    return records / seconds


def _records(settings: Settings, source: str) -> int:
    """All records of the changes topic, as a reader gets them."""
    return sum(len(read_to_end(settings.kafka, topics.changes(source), p)[0]) for p in range(PARTITIONS))


def _next_gsn(settings: Settings, group: str) -> int:
    codec = open_store(settings).record_codec()
    found, _ = read_to_end(settings.kafka, topics.progress(group))
    return codec.decode(found[-1].value() or b"", Progress).next_gsn if found else 0


def _merger(bench: Bench, settings: Settings, path: Path, group: str) -> Service:
    service = services.merger(settings, path, group, bench.directory / "logs")
    service.start()
    return service


def _status(service: Service, *path: str) -> Any:
    found: Any = service.status()
    for name in path:
        found = (found or {}).get(name)
    return found


def speed(bench: Bench) -> None:
    changes = int(600_000 * bench.scale)
    for per_transaction in (10, 100):
        settings, path, source, group = _settings(bench)
        bench.say(f"writing {changes:,} changes in transactions of {per_transaction}")
        writer = _writer(settings, source)
        writer.mark(1)
        transactions = changes // per_transaction
        writer.write(transactions, per_transaction, (1,))
        records = _records(settings, source)
        ceiling = _raw_loop(settings, source, records)
        service = _merger(bench, settings, path, group)
        wait_until(lambda: (_status(service, "next_gsn") or 0) >= 1, 60, "the merger's session")  # noqa: B023
        started = _session_started(bench, group)
        wait_until(lambda: (_status(service, "next_gsn") or 0) > transactions, 600, "the release")  # noqa: B023
        ended = _released_at(bench, settings, group)
        peak = peak_mb(service.process.pid if service.process else 0)
        service.stop()
        rate = changes / (ended - started)
        name = f"merger, {per_transaction} changes each"
        share = changes / records
        bench.add(Result(name, rate, "changes/s", ceiling * share, goal="ratio ≥ 0.5", peak_mb=peak))


def _session_started(bench: Bench, group: str) -> float:
    """When the merger's session began, by its own log."""
    for line in (bench.directory / "logs" / f"merger-{group}.log").read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "session":
            return datetime.datetime.fromisoformat(entry["timestamp"]).timestamp()
    raise AssertionError("the merger logged no session")


def _released_at(bench: Bench, settings: Settings, group: str) -> float:
    """When the last progress was written, by its Kafka timestamp."""
    found, _ = read_to_end(settings.kafka, topics.progress(group))
    last: dict[int, float] = {}
    codec = open_store(settings).record_codec()
    for message in found:
        gsn = codec.decode(message.value() or b"", Progress).next_gsn
        last.setdefault(gsn, message.timestamp()[1] / 1000)
    return last[max(last)]


def memory(bench: Bench) -> None:
    for changes in (int(2_000_000 * bench.scale), int(4_000_000 * bench.scale)):
        _one_large(bench, changes)
        _stalled(bench, changes)


def _one_large(bench: Bench, changes: int) -> None:
    settings, path, source, group = _settings(bench)
    bench.say(f"one transaction of {changes:,} changes")
    writer = _writer(settings, source)
    writer.mark(1)
    writer.write(1, changes, (1,))
    service = _merger(bench, settings, path, group)
    wait_until(lambda: _next_gsn(settings, group) > 1, 900, "the release")
    peak = peak_mb(service.process.pid if service.process else 0)
    service.stop()
    name = f"merger's memory, one transaction of {changes / 1e6:g} M"
    bench.add(Result(name, peak, "MB", goal="< 512 MB", peak_mb=peak))


def _stalled(bench: Bench, changes: int) -> None:
    settings, path, source, group = _settings(bench)
    bench.say(f"thread 2 stalled while thread 1 commits {changes:,} changes")
    writer = _writer(settings, source, threads=2)
    writer.mark(1, 2)
    transactions = changes // 10
    writer.write(transactions, 10, (1,))
    service = _merger(bench, settings, path, group)
    wait_until(lambda: _status(service, "sources", source, "waiting") == transactions, 900, "all to wait")
    waiting = peak_mb(service.process.pid if service.process else 0)
    writer.mark(1, 2)
    wait_until(lambda: _next_gsn(settings, group) > transactions, 900, "the release")
    peak = peak_mb(service.process.pid if service.process else 0)
    service.stop()
    name = f"merger's memory, a thread stalled for {changes / 1e6:g} M"
    bench.add(Result(name, peak, "MB", goal="< 512 MB", peak_mb=peak, note=f"({waiting:.0f} MB before the release)"))
