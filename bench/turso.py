"""Turso: stream and copy beside the bare SELECT of the same rows."""

from __future__ import annotations

import uuid
from typing import Any

import turso

from bench.common import Bench, Result
from bench.fleet import SourceFleet, bare_seconds
from lowwater.turso import FEATURES, capture

_TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, branch INT, owner TEXT, cents INTEGER, at REAL)"

_LOG = "SELECT * FROM turso_cdc ORDER BY change_id"

#: reads all that a statement gives, and does nothing with it
_SELECT = """
import sys, time, turso
connection = turso.connect(sys.argv[1], isolation_level=None, experimental_features=sys.argv[3])
connection.execute("SELECT 1").fetchall()
started = time.monotonic()
cursor = connection.execute(sys.argv[2])
while cursor.fetchmany(500):
    pass
print(time.monotonic() - started)
"""

#: the same, and each record goes to Kafka as it is: what the engine and the client give together, whatever is between
_SEND = """
import sys, time, turso
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
file, statement, features, servers = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers})
admin.create_topics([NewTopic("bare", 1, 1)])["bare"].result()
producer = Producer({"bootstrap.servers": servers, "transactional.id": "bare", "compression.type": "lz4",
                     "batch.size": 1 << 20, "batch.num.messages": 100_000})
producer.init_transactions()

def send(messages):
    while producer.produce_batch("bare", messages, 0) < len(messages):
        messages = [message for message in messages if message.pop("_error", None) is not None]
        producer.poll(0.01)

connection = turso.connect(file, isolation_level=None, experimental_features=features)
connection.execute("SELECT 1").fetchall()
started = time.monotonic()
cursor = connection.execute(statement)
count, batch = 0, []
producer.begin_transaction()
while rows := cursor.fetchmany(500):
    batch += [{"key": b"bare", "value": row[7]} for row in rows]
    count += len(rows)
    if count % 5_000 == 0:
        send(batch)
        batch = []
    if count % 200_000 == 0:
        producer.commit_transaction()
        producer.begin_transaction()
send(batch)
producer.commit_transaction()
print(time.monotonic() - started)
"""


class File(SourceFleet):
    """A database file and a fleet on it."""

    def __init__(self, bench: Bench, *, lake: bool = False, **config: Any) -> None:
        name = f"t{uuid.uuid4().hex[:8]}"
        self.file = bench.directory / f"{name}.db"
        self._connection = turso.connect(str(self.file), isolation_level=None, experimental_features=FEATURES)
        self._connection.execute(_TABLE).fetchall()
        capture(self._connection)
        self._config = {
            "path": str(self.file), "tables": ["main.*"], "spill_directory": str(bench.directory / "spill"), **config
        }  # fmt: skip
        super().__init__(bench, name, "turso", self._config, lake=lake)

    def beside(self, bench: Bench) -> SourceFleet:
        """Another source that reads the same file."""
        return SourceFleet(bench, f"{self.name}-beside", "turso", self._config, lake=False)

    def fill(self, first: int, last: int, per_transaction: int) -> None:
        for start in range(first, last + 1, per_transaction):
            end = min(last, start + per_transaction - 1)
            rows = [(n, n % 16, f"owner number {n}", 1_000_000 + n, n / 7) for n in range(start, end + 1)]
            self._connection.execute("BEGIN").fetchall()
            self._connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
            self._connection.execute("COMMIT").fetchall()

    def bare(self, statement: str) -> float:
        """Seconds of a SELECT, thrown away."""
        return bare_seconds(_SELECT, str(self.file), statement, FEATURES)


def stream(bench: Bench) -> None:
    """Twice, each beside a bare reader, and the better one of both: the machine is not the same for a minute."""
    changes = int(2_000_000 * bench.scale)
    file = File(bench, copy_tables=False)
    sources = [file, file.beside(bench)]
    for source in sources:
        extractor = source.extractor()
        source.wait_for_capture()
        extractor.stop()
    bench.say(f"{changes:,} rows, 1,000 a transaction")
    file.fill(1, changes, 1_000)
    sent = changes / bare_seconds(_SEND, str(file.file), _LOG, FEATURES, bench.bootstrap_servers)
    rounds = [(changes / file.bare(_LOG), *source.stream(changes)) for source in sources]
    raw, found, peak = (max(column) for column in zip(*rounds, strict=True))
    bench.add(Result("turso: table of changes → changes topic", found, "changes/s", raw, "ratio ≥ 0.5", peak))
    name = "turso: the same, beside its rows handed to `produce_batch` as they are"
    bench.add(Result(name, found, "changes/s", sent))


def copy(bench: Bench) -> None:
    rows = int(5_000_000 * bench.scale)
    file = File(bench, lake=True, chunk_rows=max(1, rows // 8))
    bench.say(f"a table of {rows:,} rows")
    file.fill(1, rows, 20_000)
    raw = min(file.bare("SELECT * FROM t") for _ in range(2))
    file.measure_copy(bench, "turso: table → Parquet", "main.t", rows, rows / raw)
