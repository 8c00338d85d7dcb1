"""The compiled encoder beside `fastavro.schemaless_writer` on the same rows."""

from __future__ import annotations

import io
import time
from typing import Any

import fastavro

from bench.common import Bench, Result, best_of
from lowwater.codec.avro import change_schema
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import INT32, INT64, STRING, TIMESTAMPTZ, Column, TableSchema
from lowwater.records.ids import SchemaId

TABLE = TableSchema(
    "bench",
    "BANK",
    "ACCOUNTS",
    1,
    (
        Column("ID", INT64),
        Column("BRANCH", INT32),
        Column("OWNER", STRING),
        Column("ADDRESS", STRING),
        Column("BALANCE_CENTS", INT64),
        Column("UPDATED", TIMESTAMPTZ),
    ),
    ("ID",),
)
NOW_US = 1_763_000_000_000_000


def row(n: int) -> tuple[Any, ...]:
    """About a hundred bytes, so that an update with both images has about two hundred."""
    address = f"{n % 200} Harbour Street, {10_000 + n} Lower Waterford, county of the tides"
    return n, n % 16, f"owner {n}", address, 1_000_000 + n, NOW_US + n


def run(bench: Bench) -> None:
    count = int(100_000 * bench.scale)
    rows = [row(n) for n in range(1000)]
    encoder = TableEncoder(TABLE, SchemaId(1))
    schema: Any = fastavro.parse_schema(change_schema(TABLE))
    names = [column.name for column in TABLE.columns]
    records = [
        {"seq": 1, "op": "u", "before": dict(zip(names, row, strict=True)), "after": dict(zip(names, row, strict=True)),
         "unchanged": [], "ts_us": NOW_US}
        for row in rows
    ]  # fmt: skip

    def ours() -> float:
        value = encoder.value
        started = time.perf_counter()
        for n in range(count):
            image = rows[n % 1000]
            value(1, "u", image, image, NOW_US)
        return count / (time.perf_counter() - started)

    def theirs() -> float:
        started = time.perf_counter()
        for n in range(count // 4):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, records[n % 1000])
            out.getvalue()
        return count // 4 / (time.perf_counter() - started)

    ceiling = best_of(3, theirs)
    bench.add(Result("encoder, against fastavro", best_of(3, ours), "changes/s", ceiling, goal="ratio ≥ 4"))
