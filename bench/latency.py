"""From a commit in the source to its release, at a steady rate."""

from __future__ import annotations

import time
import uuid
from typing import Any

from bench.common import Bench, Result, wait_until
from bench.extractor import last_position
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer
from lowwater.records.schemas import open_store
from lowwater.runtime import config
from lowwater_devkit.demo.bank import simulated_cluster
from lowwater_devkit.simulated_rac.workload import TRANSFERS
from lowwater_devkit.verify.history import Decoder
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port

RATE = 1000


def run(bench: Bench) -> None:
    name = f"b{uuid.uuid4().hex[:8]}"
    directory = bench.directory / name
    raw: dict[str, Any] = {
        "sources": {
            name: {"kind": "simulated_rac", "config": {"directory": str(directory)}, "http": {"port": free_port()}}
        },
        "groups": {name: {"sources": [name], "http": {"port": free_port()}}},
        "state_directory": str(directory / "state"),
    }
    settings, path = bench.config(name, raw)
    logs = bench.directory / "logs"
    seconds = max(5, int(30 * bench.scale))
    bench.say(f"{RATE} transactions per second for {seconds} s, two threads")
    # one session: the commit follows its transfer at once
    options = ["--threads", "2", "--sessions", "1", "--rate", str(RATE), "--transactions", str(RATE * (seconds + 60))]
    cluster = simulated_cluster(directory, logs, *options)
    started = [cluster, services.extractor(settings, path, name, logs), services.merger(settings, path, name, logs)]
    cluster.start()
    wait_until(lambda: (directory / "control.json").exists(), 30, "the cluster")
    for service in started[1:]:
        service.start()
    wait_until(lambda: last_position(settings, name) is not None, 60, "the first position")
    wait_until(lambda: (started[2].status() or {}).get("next_gsn", 0) > 1, 60, "the first release")
    latencies = _measure(settings, name, seconds)
    for service in started:
        service.stop()
    latencies.sort()
    for share in (0.5, 0.99):
        at = latencies[int(len(latencies) * share)]
        bench.add(
            Result(f"commit to release, p{share * 100:g}", at * 1000, "ms", note=f"({len(latencies):,} transactions)")
        )


def _measure(settings: config.Settings, group: str, seconds: float) -> list[float]:
    """Seconds from a transfer's own time to its arrival at a consumer of the ordered topic.

    Not from the commit's: redo has that in whole seconds.
    """
    store = open_store(settings)
    decode, control = Decoder(store), set(store.record_codec().headers.values())
    consumer = AssignedConsumer(settings.kafka, "bench", {(topics.transactions(group), 0): 0})
    found: list[float] = []
    warm = time.monotonic() + 3
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        messages = consumer.consume(1000, 0.002)
        now = time.time()
        if time.monotonic() > warm:
            values = [m.value() or b"" for m in messages]
            changes = [decode(value) for value in values if value[:5] not in control]
            found += [now - after[-1] / 1e6 for _, table, _, after in changes if table == TRANSFERS.full_name]
    consumer.close()
    return found
