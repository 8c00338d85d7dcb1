"""MySQL: stream and copy beside the bare driver."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.cursors import SSCursor

from bench.common import Bench
from bench.fleet import SourceFleet, bare_seconds
from lowwater_devkit.servers.embedded import HOST
from lowwater_devkit.servers.mysql import USER, EmbeddedMysql

_TABLE = (
    "CREATE TABLE t (id bigint PRIMARY KEY, branch int, owner varchar(40), cents bigint, at timestamp(6) NULL)"
    " ENGINE=InnoDB"
)
#: rows of one statement while a table is filled for a copy
_FILL_ROWS = 5_000

#: reads the log packet by packet with the bare driver, and does nothing with its events
_DRAIN = """
import struct, sys, time
import pymysql
from lowwater_extractor.sources.mysql.wire.gtid import GtidSet
host, port, user, gtids, wanted = sys.argv[1:]
connection = pymysql.connect(host=host, port=int(port), user=user)
connection.cursor().execute("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum")
data = GtidSet.parse(gtids).encode()
connection._execute_command(0x1E, struct.pack("<HIIQI", 4, 4242, 0, 4, len(data)) + data)
count, started = 0, 0.0
while count < int(wanted):
    event = connection._read_packet().get_all_data()
    started = started or time.monotonic()
    count += event[5] == 30
print(time.monotonic() - started)
"""


class Database(SourceFleet):
    """A server and a fleet on it."""

    def __init__(self, bench: Bench, server: EmbeddedMysql, *, lake: bool = False, **config: Any) -> None:
        self.server = server
        self.name = f"m{uuid.uuid4().hex[:8]}"
        with self.connect("") as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name}")
        settings = {
            **server.config, "tables": [f"{self.name}.*"], "spill_directory": str(bench.directory / "spill"), **config
        }  # fmt: skip
        super().__init__(bench, self.name, "mysql", settings, lake=lake)

    def connect(self, database: str | None = None) -> Any:
        where = self.name if database is None else database
        return pymysql.connect(host=HOST, port=self.server.port, user=USER, database=where or None, autocommit=True)

    def execute(self, statement: str) -> Any:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def fill(self, rows: int) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for start in range(1, rows + 1, _FILL_ROWS):
                numbers = range(start, min(rows, start + _FILL_ROWS - 1) + 1)
                cursor.execute("INSERT INTO t VALUES " + ",".join(map(_row, numbers)))

    def work(self, rows: int, per_transaction: int) -> None:
        """As an application does it: each row by a statement of its own, many in a transaction."""
        self.execute(
            "CREATE PROCEDURE work(total int, size int) BEGIN DECLARE n int DEFAULT 1; SET autocommit = 0;"
            " WHILE n <= total DO INSERT INTO t VALUES (n, n % 16, CONCAT('owner number ', n), 1000000 + n, NOW(6));"
            " IF n % size = 0 THEN COMMIT; END IF; SET n = n + 1; END WHILE; COMMIT; END"
        )
        self.execute(f"CALL work({rows}, {per_transaction})")


def _row(n: int) -> str:
    return f"({n},{n % 16},'owner number {n}',{1_000_000 + n},'2026-11-16 12:00:00.{n % 1_000_000:06}')"


@contextmanager
def _server(bench: Bench) -> Iterator[EmbeddedMysql]:
    settings = {"innodb-buffer-pool-size": "512M", "max-binlog-size": "1073741824"}
    server = EmbeddedMysql(bench.directory / f"mysql-{uuid.uuid4().hex[:6]}", settings=settings)
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
        ((gtids,),) = database.execute("SELECT @@GLOBAL.gtid_executed")
        bench.say(f"{changes:,} rows, each by its own statement, 1,000 a transaction")
        database.work(changes, 1_000)
        raw = changes / min(bare_seconds(_DRAIN, HOST, str(server.port), USER, gtids, str(changes)) for _ in range(2))
        database.measure_stream(bench, "mysql: log → changes topic", changes, raw)


def copy(bench: Bench) -> None:
    rows = int(2_000_000 * bench.scale)
    with _server(bench) as server:
        database = Database(bench, server, lake=True, chunk_rows=max(1, rows // 8))
        database.execute(_TABLE)
        bench.say(f"a table of {rows:,} rows")
        database.fill(rows)
        database.execute("ANALYZE TABLE t")
        raw = min(_select(database) for _ in range(2))
        database.measure_copy(bench, "mysql: table → Parquet", f"{database.name}.t", rows, rows / raw)


def _select(database: Database) -> float:
    """Seconds of the driver's own SELECT, row by row, thrown away."""
    with database.connect() as connection, connection.cursor(SSCursor) as cursor:
        started = time.monotonic()
        cursor.execute("SELECT * FROM t")
        while cursor.fetchmany(10_000):
            pass
        return time.monotonic() - started
