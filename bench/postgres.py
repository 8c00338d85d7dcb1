"""PostgreSQL: stream and copy beside the bare server, commit to lake, and the memory of a large transaction."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from psycopg.conninfo import make_conninfo

from bench.common import Bench, Result, peak_mb, wait_until
from lowwater import topics
from lowwater.bus.consumer import read_to_end
from lowwater.config import Settings
from lowwater.errors import LowwaterError
from lowwater.lake.chain import Chain
from lowwater.lake.local_store import LocalDirectory
from lowwater.lake.manifest import Kind, Manifest
from lowwater.records import Copied, Prepared
from lowwater.schemas import open_store
from lowwater_fleet import services
from lowwater_fleet.ports import free_port
from lowwater_fleet.postgres import EmbeddedPostgres
from lowwater_fleet.services import Service

_SPARK = {"spark.master": "local[2]", "spark.driver.memory": "2g"}
_TABLE = "CREATE TABLE t (id bigint PRIMARY KEY, branch int, owner text, cents bigint, at timestamptz)"
_ROWS = "SELECT n, n %% 16, 'owner number ' || n, 1000000 + n, now() FROM generate_series(%s::bigint, %s::bigint) n"

#: changes a second that are tried, one after the other
_RATES = (10_000, 20_000, 30_000, 45_000, 60_000)

#: reads a slot to the end of the work, and does nothing with it
_DRAIN = """
import sys, time, psycopg
from psycopg import pq
conninfo, slot, publication, wanted = sys.argv[1:]
connection = psycopg.connect(conninfo + " replication=database", autocommit=True, cursor_factory=psycopg.ClientCursor)
pg = connection.pgconn
options = f"proto_version '2', publication_names '{publication}', streaming 'on'"
result = pg.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
assert result.status == pq.ExecStatus.COPY_BOTH, result.error_message
count, started = 0, 0.0
while count < int(wanted):
    size, data = pg.get_copy_data(0)
    if data[0] == 119 and data[25] == 73:
        started = started or time.monotonic()
        count += 1
print(time.monotonic() - started)
connection.pgconn.finish()
"""


class Database:
    """A server and a fleet on it."""

    def __init__(self, bench: Bench, server: EmbeddedPostgres, *, lake: bool = False, **config: Any) -> None:
        self.server = server
        self.name = f"p{uuid.uuid4().hex[:8]}"
        self.execute(f"CREATE DATABASE {self.name}", server.conninfo)
        self.conninfo = make_conninfo(server.conninfo, dbname=self.name)
        self.lake = bench.directory / self.name / "lake"
        group: dict[str, Any] = {"sources": [self.name], "http": {"port": free_port()}}
        if lake:
            group["lake"] = {"uri": str(self.lake), "compact_seconds": -1}
            group["land"] = {"trigger_seconds": 1.0, "spark": _SPARK, "http": {"port": free_port()}}
        settings = {
            "host": "127.0.0.1", "port": server.port, "database": self.name, "user": "postgres", "tables": ["public.*"],
            "spill_directory": str(bench.directory / "spill"), **config,
        }  # fmt: skip
        raw = {
            "sources": {self.name: {"kind": "postgres", "config": settings, "http": {"port": free_port()}}},
            "groups": {self.name: group},
            "state_directory": str(bench.directory / self.name),
        }
        self.settings: Settings
        self.settings, self.path = bench.config(self.name, raw)
        self.logs = bench.directory / "logs"
        #: by `_work`, with ids from 1 on
        self.written = 0

    def execute(self, statement: str, conninfo: str = "") -> None:
        with psycopg.connect(conninfo or self.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())

    def fill(self, first: int, last: int, per_transaction: int) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for start in range(first, last + 1, per_transaction):
                connection.execute(f"INSERT INTO t {_ROWS}", (start, min(last, start + per_transaction - 1)))

    def extractor(self) -> Service:
        return self._start(services.extractor(self.settings, self.path, self.name, self.logs))

    def merger(self) -> Service:
        return self._start(services.merger(self.settings, self.path, self.name, self.logs))

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


@contextmanager
def _server(bench: Bench) -> Iterator[EmbeddedPostgres]:
    settings = {"synchronous_commit": "off", "shared_buffers": "512MB", "max_wal_size": "8GB"}
    server = EmbeddedPostgres(bench.directory / f"postgres-{uuid.uuid4().hex[:6]}", settings=settings)
    server.start()
    try:
        yield server
    finally:
        server.remove()


def stream(bench: Bench) -> None:
    changes = int(1_000_000 * bench.scale)
    with _server(bench) as server:
        database = Database(bench, server, copy_tables=False)
        database.execute(_TABLE)
        extractor = database.extractor()
        database.wait_for_capture()
        extractor.stop()
        publication = f"lowwater_{database.name}"
        database.execute("SELECT pg_create_logical_replication_slot('raw', 'pgoutput')")
        bench.say(f"{changes:,} rows, 1,000 a transaction")
        database.fill(1, changes, 1_000)
        drain = [sys.executable, "-c", _DRAIN, database.conninfo, "raw", publication, str(changes)]
        raw = changes / float(subprocess.run(drain, capture_output=True, text=True, check=True).stdout)
        extractor = database.extractor()
        seen = _watch_changes(extractor, changes)
        assert extractor.process is not None
        peak = peak_mb(extractor.process.pid)
        extractor.stop()
        bench.add(Result("postgres: slot → changes topic", seen, "changes/s", raw, "ratio ≥ 0.5", peak))


def _watch_changes(extractor: Service, wanted: int) -> float:
    """Changes a second, from the first that is seen to the last."""
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        done = (extractor.status() or {}).get("changes", 0)
        if done and first is None:
            first = time.monotonic(), done
        if first is not None and done >= wanted:
            return float(done - first[1]) / (time.monotonic() - first[0])
        time.sleep(0.05)
    raise TimeoutError("the extractor did not come to the end")


def copy(bench: Bench) -> None:
    """Twice: in the first copy Spark starts its workers and compiles, which a table of hours would not notice."""
    rows = int(4_000_000 * bench.scale)
    with _server(bench) as server:
        database = Database(bench, server, lake=True, chunk_rows=max(1, rows // 8))
        database.execute(_TABLE)
        bench.say(f"a table of {rows:,} rows")
        database.fill(1, rows, 500_000)
        database.execute("VACUUM ANALYZE t")
        raw = min(_copy_out(database) for _ in range(2))
        running = [database.lander(), database.extractor(), database.merger()]
        wait_until(lambda: _copied(database), 600, "the first copy")
        cold = _copy_seconds(database)
        ask = [str(Path(sys.executable).with_name("lowwater")), "source", "copy", database.name, "public.t"]
        subprocess.run([*ask, "--config", str(database.path)], capture_output=True, check=True)
        wait_until(lambda: len(_copied(database)) == 2, 600, "the second copy")
        seconds = _copy_seconds(database)
        for service in running:
            service.stop()
        note = f"(the first copy, with a cold Spark: {rows / cold:,.0f})"
        name = "postgres: table → Parquet, two tasks"
        bench.add(Result(name, rows / seconds, "rows/s", rows / raw, "ratio ≥ 0.6", note=note))


def _copied(database: Database) -> list[Copied]:
    """The copies that have become readable."""
    codec = open_store(database.settings).record_codec()
    messages, _ = read_to_end(database.settings.kafka, topics.transactions(database.name))
    values = [m.value() or b"" for m in messages]
    return [codec.decode(v, Copied) for v in values if codec.record_type(v) is Copied]


def _copy_out(database: Database) -> float:
    """Seconds of the bare COPY, thrown away."""
    with psycopg.connect(database.conninfo) as connection, connection.cursor() as cursor:
        started = time.monotonic()
        with cursor.copy("COPY t TO STDOUT (FORMAT binary)") as out:
            for _ in out:
                pass
        return time.monotonic() - started


def _copy_seconds(database: Database) -> float:
    """Of the last copy: from its first attempt to its last manifest."""
    codec = open_store(database.settings).record_codec()
    messages, _ = read_to_end(database.settings.kafka, topics.ledger(database.name))
    values = [m.value() or b"" for m in messages]
    prepared = [codec.decode(v, Prepared) for v in values if codec.record_type(v) is Prepared]
    manifests = [m for m in database.chain().log(1) if m.kind is Kind.COPY and m.files]
    last = [m for m in manifests if m.files[0].copy_id == manifests[-1].files[0].copy_id]
    attempts = {m.attempt for m in last}
    first = min(p.at_us for p in prepared if p.attempt in attempts)
    return (last[-1].at_us - first) / 1e6


def latency(bench: Bench) -> None:
    """Commit to visible in the lake, at two rates."""
    for rate in (2_000, 10_000):
        with _server(bench) as server:
            database = Database(bench, server, lake=True, copy_tables=False)
            database.execute(_TABLE)
            running = [database.lander(), database.extractor(), database.merger()]
            database.wait_for_capture()
            stop = threading.Event()
            worker = threading.Thread(target=_work, args=(database, rate, stop))
            worker.start()
            wait_until(lambda: database.chain().head.n > 15, 180, "the first landings")  # noqa: B023
            first = database.chain().head.n
            time.sleep(max(15, 60 * bench.scale))
            last = database.chain().head.n
            stop.set()
            worker.join()
            waits = sorted(_waits(database, first, last))
            for service in running:
                service.stop()
            for share in (50, 99):
                value = waits[min(len(waits) - 1, len(waits) * share // 100)] * 1000
                name = f"postgres: commit to lake at {rate:,} changes/s, p{share}"
                bench.add(Result(name, value, "ms", note=f"({len(waits)} landings' oldest and newest)"))


def highest_rate(bench: Bench) -> None:
    """The highest of these rates at which commit to lake did not take longer and longer for 60 seconds."""
    seconds = max(15.0, 60 * bench.scale)
    held, note = 0.0, ""
    with _server(bench) as server:
        database = Database(bench, server, lake=True, copy_tables=False)
        database.execute(_TABLE)
        running = [database.lander(), database.extractor(), database.merger()]
        database.wait_for_capture()
        _hold(database, 2_000, 15.0)
        for rate in _RATES:
            bench.say(f"{rate:,} changes a second for {seconds:.0f} s")
            wrote, early, late = _hold(database, rate, seconds)
            note = f"(at {rate:,}: wrote {wrote:,.0f} a second; waits {early:.1f} s, then {late:.1f} s)"
            if late > early + 1.0 or wrote < 0.95 * rate:
                break
            held = wrote
        for service in running:
            service.stop()
    bench.add(Result("postgres: highest rate held to the lake", held, "changes/s", note=note))


def _hold(database: Database, rate: int, seconds: float) -> tuple[float, float, float]:
    """Changes a second that were written; the median wait of the landings in the first and in the last third."""
    first, written = database.chain().head.n, database.written
    stop = threading.Event()
    worker = threading.Thread(target=_work, args=(database, rate, stop, 50))
    started = time.monotonic()
    worker.start()
    time.sleep(seconds)
    stop.set()
    worker.join()
    wrote = (database.written - written) / (time.monotonic() - started)
    wait_until(lambda: database.landed_rows() >= database.written, 300, "all to land")
    waits = [_wait_of(database, manifest) for manifest in database.chain().log(first + 1) if manifest.files]
    third = max(1, len(waits) // 3)
    return wrote, statistics.median(waits[:third]), statistics.median(waits[-third:])


def _wait_of(database: Database, manifest: Manifest) -> float:
    """Seconds from the oldest commit of a landing to its manifest."""
    oldest = min(pq.read_table(database.lake / f.path, columns=["_commit_ts"])["_commit_ts"][0] for f in manifest.files)
    return float(manifest.at_us / 1e6 - oldest.as_py().timestamp())


def _work(database: Database, rate: int, stop: threading.Event, per_transaction: int = 10) -> None:
    at = time.monotonic()
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        while not stop.is_set():
            number = database.written + 1
            connection.execute(f"INSERT INTO t {_ROWS}", (number, number + per_transaction - 1))
            database.written += per_transaction
            at += per_transaction / rate
            time.sleep(max(0.0, at - time.monotonic()))


def _waits(database: Database, first: int, last: int) -> list[float]:
    found: list[float] = []
    for manifest in database.chain().log(first + 1, last):
        for file in manifest.files:
            times = pq.read_table(database.lake / file.path, columns=["_commit_ts"])["_commit_ts"].to_pylist()
            found += [manifest.at_us / 1e6 - t.timestamp() for t in times[::10]]
    return found


def memory(bench: Bench) -> None:
    rows = int(5_000_000 * bench.scale)
    with _server(bench) as server:
        database = Database(bench, server, copy_tables=False)
        database.execute(_TABLE)
        extractor = database.extractor()
        database.wait_for_capture()
        bench.say(f"one transaction of {rows:,} rows")
        database.fill(1, rows, rows)
        wait_until(lambda: (extractor.status() or {}).get("changes", 0) >= rows, 900, "the transaction")
        assert extractor.process is not None
        peak = peak_mb(extractor.process.pid)
        extractor.stop()
        name = f"postgres: extractor's memory, one transaction of {rows / 1e6:g} M rows"
        bench.add(Result(name, peak, "MB", goal="< 400 MB", peak_mb=peak))
