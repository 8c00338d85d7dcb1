"""Turso: stream and copy beside the bare SELECT of the same rows."""

from __future__ import annotations

import uuid
from typing import Any

import turso

from bench.common import Bench
from bench.fleet import SourceFleet, bare_seconds
from lowwater.turso import FEATURES, capture

_TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, branch INT, owner TEXT, cents INTEGER, at REAL)"

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


class File(SourceFleet):
    """A database file and a fleet on it."""

    def __init__(self, bench: Bench, *, lake: bool = False, **config: Any) -> None:
        name = f"t{uuid.uuid4().hex[:8]}"
        self.file = bench.directory / f"{name}.db"
        self._connection = turso.connect(str(self.file), isolation_level=None, experimental_features=FEATURES)
        self._connection.execute(_TABLE).fetchall()
        capture(self._connection)
        settings = {
            "path": str(self.file), "tables": ["main.*"], "spill_directory": str(bench.directory / "spill"), **config
        }  # fmt: skip
        super().__init__(bench, name, "turso", settings, lake=lake)

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
    changes = int(500_000 * bench.scale)
    file = File(bench, copy_tables=False)
    extractor = file.extractor()
    file.wait_for_capture()
    extractor.stop()
    bench.say(f"{changes:,} rows, 1,000 a transaction")
    file.fill(1, changes, 1_000)
    raw = changes / min(file.bare("SELECT * FROM turso_cdc ORDER BY change_id") for _ in range(2))
    file.measure_stream(bench, "turso: table of changes → changes topic", changes, raw)


def copy(bench: Bench) -> None:
    rows = int(2_000_000 * bench.scale)
    file = File(bench, lake=True, chunk_rows=max(1, rows // 8))
    bench.say(f"a table of {rows:,} rows")
    file.fill(1, rows, 20_000)
    raw = min(file.bare("SELECT * FROM t") for _ in range(2))
    file.measure_copy(bench, "turso: table → Parquet", "main.t", rows, rows / raw)
