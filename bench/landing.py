"""Landing beside a bare Spark job from Kafka to Parquet on the same topic; its latency; its memory."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import psutil
import pyarrow.parquet as pq

from bench.common import Bench, Result, peak_mb, wait_until
from bench.ordered import BOTH_ROWS, MIX, OrderedWriter
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import manifest_path
from lowwater.lake.store.local import LocalDirectory
from lowwater.records.schemas import open_store
from lowwater.runtime.config import Settings
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

SPARK = {"spark.master": "local[2]", "spark.driver.memory": "2g"}


class Group:
    """An ordered topic, and a lake of its own."""

    def __init__(self, bench: Bench, tables: int, trigger_seconds: float = 0.1, mix: str = MIX) -> None:
        self.name = f"l{uuid.uuid4().hex[:8]}"
        self.lake = bench.directory / self.name / "lake"
        land = {"trigger_seconds": trigger_seconds, "spark": SPARK}
        lake = {"uri": str(self.lake), "compact_seconds": -1}
        raw: dict[str, Any] = {
            "sources": {self.name: {"kind": "simulated_rac"}},
            "groups": {
                self.name: {"sources": [self.name], "lake": lake, "land": {**land, "http": {"port": free_port()}}}
            },
            "state_directory": str(bench.directory / self.name),
        }
        self.settings: Settings
        self.settings, self.path = bench.config(self.name, raw)
        wanted = [*topics.shared_topics(), *topics.group_topics(self.name, self.settings.group(self.name))]
        Admin(self.settings.kafka).ensure([*wanted, *topics.lake_topics(self.name)])
        store = open_store(self.settings)
        self.writer = OrderedWriter(self.settings, store, store.record_codec(), self.name, self.name, tables, mix)
        self._logs = bench.directory / "logs"

    def start(self) -> Service:
        service = services.lander(self.settings, self.path, self.name, self._logs)
        service.start()
        return service

    def chain(self) -> Chain:
        return Chain.open(LocalDirectory(self.lake))

    def landings(self) -> list[dict[str, Any]]:
        """What the service logged of each."""
        lines = (self._logs / f"spark-{self.name}.log").read_text().splitlines()
        return [json.loads(line) for line in lines if '"event": "landed"' in line]

    def written_at(self, n: int) -> float:
        return (self.lake / manifest_path(n)).stat().st_mtime


_BARE = """
import sys, time, json
from lowwater.runtime.config import KafkaConfig, LandConfig
from lowwater_spark.session import kafka_options, spark_session
topic, servers, out, settings, parts, avro = sys.argv[1:]
from pyspark.sql.avro.functions import from_avro
land = LandConfig(spark=json.loads(settings))
spark = spark_session("bare", land)
options = kafka_options(KafkaConfig(bootstrap_servers=servers), land, topic)
for _ in range(3):
    started = time.monotonic()
    frame = spark.read.format("kafka").options(**options).option("minPartitions", parts).load()
    if avro:
        changes = frame.where("length(value) > 60").selectExpr("offset", "substring(value, 6) AS body")
        frame = changes.select("offset", from_avro("body", avro, {"mode": "PERMISSIVE"}).alias("change"))
        frame = frame.selectExpr("offset", "change.op", "change.before", "change.after.*")
    frame.write.mode("overwrite").option("compression", "zstd").parquet(out)
    print("seconds", time.monotonic() - started, flush=True)
"""


def _bare(bench: Bench, group: Group, parts: int, avro: str = "") -> float:
    """Seconds of the bare job over the whole topic, once warm: the quickest of the last runs.

    The ordered topic has one partition, so by itself the job is one task; `parts` splits it over the cores. With `avro`
    it also decodes the rows: what Spark alone needs for that, with nothing checked and no order kept.
    """
    out = bench.directory / group.name / "bare"
    arguments = [
        topics.transactions(group.name),
        bench.bootstrap_servers,
        str(out),
        json.dumps(SPARK),
        str(parts),
        avro,
    ]
    done = subprocess.run([sys.executable, "-c", _BARE, *arguments], capture_output=True, text=True, check=True)
    seconds = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds")]
    shutil.rmtree(out)
    return min(seconds[1:])


def speed(bench: Bench) -> None:
    changes = int(14_000_000 * bench.scale)
    cases = (
        (1, MIX, "", "ratio ≥ 0.6"),
        (20, MIX, "", "ratio ≥ 0.4"),
        (1, BOTH_ROWS, ", updates with both rows", "ratio ≥ 0.6"),
    )
    for tables, mix, about, goal in cases:
        group = Group(bench, tables, mix=mix)
        bench.say(f"writing {changes:,} changes of {tables} table(s), 10 a transaction{about}")
        group.writer.write(changes // 10, 10)
        # the ceiling has both cores, as the landing has; one task is what the job is without a word about it
        alone, bare = (changes / _bare(bench, group, parts) for parts in (1, 2))
        service = group.start()
        wait_until(lambda: group.chain().head.gsn == changes // 10, 900, "the landing")  # noqa: B023
        peak = _peak(service)
        service.stop()
        # steady: without the first landing, in which the JVM compiles, and the last, which may be small
        landings = group.landings()
        skip = 1
        steady = landings[skip:-1] or landings[skip:]
        seconds = group.written_at(steady[-1]["n"]) - group.written_at(landings[skip - 1]["n"])
        rate = sum(entry["rows"] for entry in steady) / seconds
        note = f"({len(landings)} landings; {rate / alone:.2f} of the bare job as one task: {alone:,.0f}"
        if tables == 1:
            decoding = changes / _bare(bench, group, 2, group.writer.avro)
            note += f"; {rate / decoding:.2f} of it on both cores and decoding rows: {decoding:,.0f}"
        note += ")"
        bench.add(Result(f"landing, {tables} table(s){about}", rate, "rows/s", bare, goal, peak["all"], note))


def _peak(service: Service) -> dict[str, float]:
    assert service.process is not None
    driver, jvm, workers = peak_mb(service.process.pid), 0.0, 0.0
    for child in psutil.Process(service.process.pid).children(recursive=True):
        # Spark's workers come and go
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, FileNotFoundError, ProcessLookupError):
            peak = peak_mb(child.pid)
            if "java" in child.name():
                jvm = max(jvm, peak)
            else:
                workers += peak
    return {"driver": driver, "jvm": jvm, "all": driver + jvm + workers}


def many_tables(bench: Bench) -> None:
    """500 tables in the catalogue, 10 of them changed: beside a catalogue of 10."""
    found = {}
    for tables in (10, 500):
        group = Group(bench, tables)
        if tables > 10:
            group.writer.write(1, tables)
        group.writer.tables_used = 10
        service = group.start()
        for _ in range(25):
            group.writer.write(100, 50)
            wait_until(lambda: group.chain().head.gsn == group.writer.gsn, 300, "the landing")  # noqa: B023
        service.stop()
        found[tables] = statistics.median(entry["seconds"] for entry in group.landings()[12:])
    name = "a landing of 10 tables' changes, 500 in the catalogue"
    bench.add(Result(name, found[500] * 1000, "ms", found[10] * 1000, note="(ceiling: 10 in the catalogue)"))


def latency(bench: Bench) -> None:
    group = Group(bench, 2, trigger_seconds=1.0)
    service = group.start()
    seconds = max(10, int(30 * bench.scale))
    stop = threading.Event()

    def work() -> None:
        """500 transactions of 10 changes each second, twenty to a Kafka transaction."""
        at = time.monotonic()
        while not stop.is_set():
            group.writer.write(20, 10)
            at += 0.04
            time.sleep(max(0.0, at - time.monotonic()))

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: group.chain().head.n > 10, 120, "the first landings")
    first = group.chain().head.n
    time.sleep(seconds)
    last = group.chain().head.n
    stop.set()
    thread.join()
    service.stop()
    waits = sorted(_waits(group, first, last))
    for share in (50, 99):
        value = waits[min(len(waits) - 1, len(waits) * share // 100)] * 1000
        bench.add(
            Result(f"commit to visible in the lake, p{share}", value, "ms", note=f"({len(waits):,} transactions)")
        )


def _waits(group: Group, first: int, last: int) -> list[float]:
    found: list[float] = []
    for manifest in group.chain().log(first + 1, last):
        visible = group.written_at(manifest.n)
        seen: set[int] = set()
        for file in manifest.files:
            rows = pq.read_table(group.lake / file.path, columns=["_gsn", "_commit_ts"])
            for gsn, at in zip(rows["_gsn"].to_pylist(), rows["_commit_ts"].to_pylist(), strict=True):
                if gsn not in seen:
                    seen.add(gsn)
                    found.append(visible - at.timestamp())
    return found


def floor(bench: Bench) -> None:
    """The shortest a landing takes: one transaction of two changes, with nothing else to do."""
    group = Group(bench, 2)
    service = group.start()
    for number in range(40):
        group.writer.write(1, 2)
        wait_until(lambda: group.chain().head.gsn > number, 120, "a landing")  # noqa: B023
    service.stop()
    seconds = [entry["seconds"] for entry in group.landings()[15:]]
    bench.add(Result("the floor: a landing of two changes", statistics.median(seconds) * 1000, "ms"))


def memory(bench: Bench) -> None:
    changes = int(2_000_000 * bench.scale)
    group = Group(bench, 1)
    bench.say(f"one transaction of {changes:,} changes")
    group.writer.write(1, changes)
    service = group.start()
    wait_until(lambda: group.chain().head.gsn == 1, 900, "the landing")
    peak = _peak(service)
    service.stop()
    name = f"driver's memory, one transaction of {changes / 1e6:g} M"
    note = f"(Python; the JVM, heap 2 GB: {peak['jvm']:.0f} MB, all processes {peak['all']:.0f} MB)"
    bench.add(Result(name, peak["driver"], "MB", peak_mb=peak["all"], note=note))
