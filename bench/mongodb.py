"""MongoDB: stream and copy beside the bare driver."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from bson.int64 import Int64

from bench.common import Bench
from bench.fleet import SourceFleet, bare_seconds
from lowwater_devkit.servers.mongodb import EmbeddedMongo

#: reads a change stream to the end of the work, and does nothing with it
_DRAIN = """
import sys, json, time, pymongo
from bson.timestamp import Timestamp
hosts, name, database, start, wanted = json.loads(sys.argv[1])
client = pymongo.MongoClient(hosts, replicaSet=name)
count, started = 0, 0.0
with client[database].watch(full_document="required", full_document_before_change="required",
                            show_expanded_events=True, start_at_operation_time=Timestamp(*start)) as stream:
    for event in stream:
        if event["operationType"] == "insert":
            started = started or time.monotonic()
            count += 1
            if count == wanted:
                break
print(time.monotonic() - started)
"""


class Database(SourceFleet):
    """A set and a fleet on it."""

    def __init__(self, bench: Bench, server: EmbeddedMongo, *, lake: bool = False, **config: Any) -> None:
        name = f"m{uuid.uuid4().hex[:8]}"
        settings = {
            "hosts": server.hosts, "replica_set": server.name, "tables": [f"{name}.t"],
            "spill_directory": str(bench.directory / "spill"), **config,
        }  # fmt: skip
        super().__init__(bench, name, "mongodb", settings, lake=lake)
        self.client = server.client()
        self.client[name].create_collection("t", changeStreamPreAndPostImages={"enabled": True})

    def fill(self, first: int, last: int, per_transaction: int) -> None:
        """`per_transaction`: 1 for single writes."""
        table = self.client[self.name].t
        step = max(1_000, per_transaction)
        with self.client.start_session() as session:
            for start in range(first, last + 1, step):
                documents = [_document(n) for n in range(start, min(last, start + step - 1) + 1)]
                if per_transaction == 1:
                    table.insert_many(documents)
                    continue
                with session.start_transaction():
                    table.insert_many(documents, session=session)


def _document(n: int) -> dict[str, Any]:
    at = datetime.now(UTC)
    return {"_id": Int64(n), "branch": n % 16, "owner": f"owner number {n}", "cents": Int64(1_000_000 + n), "at": at}


@contextmanager
def _server(bench: Bench) -> Iterator[EmbeddedMongo]:
    server = EmbeddedMongo(bench.directory / f"mongodb-{uuid.uuid4().hex[:6]}", oplog_mb=4_000)
    server.start()
    try:
        yield server
    finally:
        server.remove()


def stream(bench: Bench) -> None:
    for per_transaction, name in ((1_000, "1,000 a transaction"), (1, "single writes")):
        changes = int(400_000 * bench.scale)
        with _server(bench) as server:
            database = Database(bench, server, copy_tables=False)
            extractor = database.extractor()
            database.wait_for_capture()
            extractor.stop()
            begin = database.client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"]
            bench.say(f"{changes:,} documents, {name}")
            database.fill(1, changes, per_transaction)
            about = [server.hosts, server.name, database.name, [begin.time, begin.inc + 1], changes]
            raw = changes / bare_seconds(_DRAIN, json.dumps(about))
            database.measure_stream(bench, f"mongodb: change stream → changes topic, {name}", changes, raw)


def copy(bench: Bench) -> None:
    rows = int(2_000_000 * bench.scale)
    with _server(bench) as server:
        database = Database(bench, server, lake=True, chunk_rows=max(1, rows // 8))
        bench.say(f"a collection of {rows:,} documents")
        database.fill(1, rows, 1)
        raw = min(_read_out(database) for _ in range(2))
        database.measure_copy(bench, "mongodb: collection → Parquet", f"{database.name}.t", rows, rows / raw)


def _read_out(database: Database) -> float:
    """Seconds of a plain find, thrown away."""
    started = time.monotonic()
    for _ in database.client[database.name].t.find():
        pass
    return time.monotonic() - started
