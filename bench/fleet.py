"""A fleet of one source of some kind, and what the benchmarks ask of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.common import Bench, Result, peak_mb, wait_until
from lowwater.errors import LowwaterError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ManifestKind
from lowwater.lake.store.local import LocalDirectory
from lowwater.records.schemas import open_store
from lowwater.records.types import Copied, Prepared
from lowwater.runtime.config import Settings
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

_SPARK = {"spark.master": "local[2]", "spark.driver.memory": "2g"}


class SourceFleet:
    """One source, one group over it, with or without a lake."""

    def __init__(self, bench: Bench, name: str, kind: str, config: dict[str, Any], *, lake: bool) -> None:
        self.name = name
        self.lake = bench.directory / name / "lake"
        group: dict[str, Any] = {"sources": [name], "http": {"port": free_port()}}
        if lake:
            group["lake"] = {"uri": str(self.lake), "compact_seconds": -1}
            group["land"] = {"trigger_seconds": 1.0, "spark": _SPARK, "http": {"port": free_port()}}
        raw = {
            "sources": {name: {"kind": kind, "config": config, "http": {"port": free_port()}}},
            "groups": {name: group},
            "state_directory": str(bench.directory / name),
        }
        self.settings: Settings
        self.settings, self.path = bench.config(name, raw)
        self.logs = bench.directory / "logs"

    def extractor(self) -> Service:
        return self._start(services.extractor(self.settings, self.path, self.name, self.logs))

    def merger(self) -> Service:
        service = self._start(services.merger(self.settings, self.path, self.name, self.logs))
        # who reads what it publishes finds the topic there
        Admin(self.settings.kafka).wait_for_topics(topics.group_topics(self.name, self.settings.group(self.name)), 60)
        return service

    def lander(self) -> Service:
        return self._start(services.lander(self.settings, self.path, self.name, self.logs))

    def _start(self, service: Service) -> Service:
        service.start()
        return service

    def wait_for_capture(self) -> None:
        def has_position() -> bool:
            try:
                return bool(read_to_end(self.settings.kafka, topics.positions(self.name))[0])
            except LowwaterError:
                return False

        wait_until(has_position, 60, "the first position")

    def chain(self) -> Chain:
        return Chain.open(LocalDirectory(self.lake))

    def landed_rows(self) -> int:
        return sum(file.rows for manifest in self.chain().log(1) for file in manifest.files)

    def ask_for_copy(self, table: str) -> None:
        ask = [str(Path(sys.executable).with_name("lowwater")), "source", "copy", self.name, table]
        subprocess.run([*ask, "--config", str(self.path)], capture_output=True, check=True)

    def stream(self, changes: int) -> tuple[float, float]:
        """Changes a second, and the extractor's memory."""
        extractor = self.extractor()
        seen = watch_changes(extractor, changes)
        assert extractor.process is not None
        peak = peak_mb(extractor.process.pid)
        extractor.stop()
        return seen, peak

    def measure_stream(self, bench: Bench, what: str, changes: int, raw: float) -> None:
        seen, peak = self.stream(changes)
        bench.add(Result(what, seen, "changes/s", raw, "ratio ≥ 0.5", peak))

    def measure_copy(self, bench: Bench, what: str, table: str, rows: int, raw: float) -> None:
        """Twice: in the first copy Spark starts its workers and compiles, which a table of hours would not notice."""
        running = [self.lander(), self.extractor(), self.merger()]
        # the ledger has the times: looking for the end more often would only be in the way
        wait_until(lambda: copied(self), 600, "the first copy", every_seconds=3)
        cold = copy_seconds(self)
        self.ask_for_copy(table)
        wait_until(lambda: len(copied(self)) == 2, 600, "the second copy", every_seconds=3)
        seconds = copy_seconds(self)
        for service in running:
            service.stop()
        note = f"(the first copy, with a cold Spark: {rows / cold:,.0f})"
        bench.add(Result(f"{what}, two tasks", rows / seconds, "rows/s", raw, "ratio ≥ 0.6", note=note))


def bare_seconds(program: str, *arguments: str) -> float:
    """What a bare reader, a process of its own as the extractor is, says that it took."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def watch_changes(extractor: Service, wanted: int) -> float:
    """Changes a second, from the first status that is seen to the last one before the end.

    A service shows its status twice a second, as it is at that moment. Only the last one, with all that was wanted, may
    be shown half a second after it came true.
    """
    seen: list[tuple[float, int]] = []
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        done = (extractor.status() or {}).get("changes", 0)
        if done and (not seen or done > seen[-1][1]):
            seen.append((time.monotonic(), done))
        if done >= wanted:
            # of a run that was too short for that, all
            last = seen[-2] if len(seen) > 3 else seen[-1]
            return (last[1] - seen[0][1]) / max(last[0] - seen[0][0], 0.001)
        time.sleep(0.05)
    raise TimeoutError("the extractor did not come to the end")


def copied(database: SourceFleet) -> list[Copied]:
    """The copies that have become readable."""
    codec = open_store(database.settings).record_codec()
    messages, _ = read_to_end(database.settings.kafka, topics.transactions(database.name))
    values = [m.value() or b"" for m in messages]
    return [codec.decode(v, Copied) for v in values if codec.record_type(v) is Copied]


def copy_seconds(database: SourceFleet) -> float:
    """Of the last copy: from its first attempt to its last manifest."""
    codec = open_store(database.settings).record_codec()
    messages, _ = read_to_end(database.settings.kafka, topics.ledger(database.name))
    values = [m.value() or b"" for m in messages]
    prepared = [codec.decode(v, Prepared) for v in values if codec.record_type(v) is Prepared]
    manifests = [m for m in database.chain().log(1) if m.kind is ManifestKind.COPY and m.files]
    last = [m for m in manifests if m.files[0].copy_id == manifests[-1].files[0].copy_id]
    attempts = {m.attempt for m in last}
    first = min(p.at_us for p in prepared if p.attempt in attempts)
    return (last[-1].at_us - first) / 1e6
