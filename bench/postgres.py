"""PostgreSQL: stream and copy beside the bare server, commit to lake, and the memory of a large transaction."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow.parquet as pq
from psycopg.conninfo import make_conninfo

from bench.common import Bench, Result, peak_mb, wait_until
from bench.fleet import SourceFleet, bare_seconds
from lowwater.lake.chain.manifest import Manifest
from lowwater_devkit.servers.postgres import EmbeddedPostgres

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


class Database(SourceFleet):
    """A server and a fleet on it."""

    def __init__(self, bench: Bench, server: EmbeddedPostgres, *, lake: bool = False, **config: Any) -> None:
        self.server = server
        name = f"p{uuid.uuid4().hex[:8]}"
        settings = {
            "host": "127.0.0.1", "port": server.port, "database": name, "user": "postgres", "tables": ["public.*"],
            "spill_directory": str(bench.directory / "spill"), **config,
        }  # fmt: skip
        super().__init__(bench, name, "postgres", settings, lake=lake)
        self.execute(f"CREATE DATABASE {name}", server.conninfo)
        self.conninfo = make_conninfo(server.conninfo, dbname=name)
        #: by `_work`, with ids from 1 on
        self.written = 0

    def execute(self, statement: str, conninfo: str = "") -> None:
        with psycopg.connect(conninfo or self.conninfo, autocommit=True) as connection:
            connection.execute(statement.encode())

    def fill(self, first: int, last: int, per_transaction: int) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for start in range(first, last + 1, per_transaction):
                connection.execute(f"INSERT INTO t {_ROWS}", (start, min(last, start + per_transaction - 1)))


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
        raw = changes / bare_seconds(_DRAIN, database.conninfo, "raw", publication, str(changes))
        database.measure_stream(bench, "postgres: slot → changes topic", changes, raw)


def copy(bench: Bench) -> None:
    rows = int(4_000_000 * bench.scale)
    with _server(bench) as server:
        database = Database(bench, server, lake=True, chunk_rows=max(1, rows // 8))
        database.execute(_TABLE)
        bench.say(f"a table of {rows:,} rows")
        database.fill(1, rows, 500_000)
        database.execute("VACUUM ANALYZE t")
        raw = min(_copy_out(database) for _ in range(2))
        database.measure_copy(bench, "postgres: table → Parquet", "public.t", rows, rows / raw)


def _copy_out(database: Database) -> float:
    """Seconds of the bare COPY, thrown away."""
    with psycopg.connect(database.conninfo) as connection, connection.cursor() as cursor:
        started = time.monotonic()
        with cursor.copy("COPY t TO STDOUT (FORMAT binary)") as out:
            for _ in out:
                pass
        return time.monotonic() - started


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
    paths = [database.lake / file.path for file in manifest.files]
    oldest = min(pq.read_table(path, columns=["_commit_ts"])["_commit_ts"][0].as_py() for path in paths)
    return float(manifest.at_us / 1e6 - oldest.timestamp())


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
