"""Every type of a change, from Avro to Parquet and back, decoded by Spark and in Python."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.landing.conftest import NewGroup

from lowwater.codec.table import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Column,
    TableSchema,
    array,
    decimal,
)  # fmt: skip
from lowwater.lake import Lake
from lowwater.lake.chain.chain import Chain
from lowwater.lake.schema.columns import TYPE_NOTE
from lowwater.lake.store.local import LocalDirectory
from lowwater_spark.landing import compiled_tables

UTC = dt.UTC
COLUMNS: list[tuple[str, Any, pa.DataType, list[Any]]] = [
    ("b", BOOLEAN, pa.bool_(), [True, False]),
    ("i", INT32, pa.int32(), [-(1 << 31), (1 << 31) - 1]),
    ("l", INT64, pa.int64(), [-(1 << 63), (1 << 63) - 1]),
    ("f", FLOAT32, pa.float32(), [0.5, float("inf")]),
    ("d", FLOAT64, pa.float64(), [1e300, -0.0]),
    ("n", decimal(20, 4), pa.decimal128(20, 4), [Decimal("1234567890123456.7890"), Decimal("-0.0001")]),
    ("w", decimal(50, 10), pa.decimal256(50, 10), [Decimal("1" * 40 + ".0123456789"), Decimal("-1.5000000000")]),
    ("s", STRING, pa.string(), ["", "grüße, 世界"]),
    ("y", BYTES, pa.binary(), [b"", b"\x00\xff"]),
    ("day", DATE, pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 11, 16)]),
    ("time of day", TIME, pa.time64("us"), [dt.time(0, 0), dt.time(23, 59, 59, 999999)]),
    ("ts", TIMESTAMP, pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2026, 11, 16, 1, 2, 3, 4)]),
    ("tz", TIMESTAMPTZ, pa.timestamp("us", tz="UTC"),
     [dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2026, 11, 16, 1, 2, 3, 4, tzinfo=UTC)]),
    ("u", UUID, pa.string(), [str(uuid.UUID(int=1)), str(uuid.UUID(int=2**127))]),
    ("j", JSON, pa.string(), ['{"a": 1}', "null"]),
    ("list", array(INT64), pa.list_(pa.int64()), [[], [1, None, 3]]),
    ("times", array(TIME), pa.list_(pa.time64("us")), [[dt.time(1, 2, 3)], None]),
    ("prices", array(decimal(10, 2)), pa.list_(pa.decimal128(10, 2)), [[Decimal("1.00"), None], []]),
    ("_gsn", STRING, pa.string(), ["a column that is named as one of ours", None]),
]  # fmt: skip
TABLE = TableSchema("src", "S", "all types", 1, tuple(Column(n, t) for n, t, _, _ in COLUMNS), ("i",))


@pytest.mark.parametrize("rows_min", [0, 1 << 40], ids=["decoded by Spark", "decoded in Python"])
def test_every_type_comes_back_as_it_was(new_group: NewGroup, monkeypatch: pytest.MonkeyPatch, rows_min: int) -> None:
    monkeypatch.setattr(compiled_tables, "ROWS_MIN", rows_min)
    group = new_group()
    rows = [tuple(values[k] for *_, values in COLUMNS) for k in (0, 1)]
    nulls = (None,) * len(COLUMNS)
    with group.topic as topic:
        topic.transaction((TABLE, "c", None, rows[0]), (TABLE, "c", None, rows[1]))
        topic.transaction((TABLE, "u", rows[0], nulls), (TABLE, "d", rows[1], None))
    group.land()

    (file,) = Chain.open(LocalDirectory(group.settings.state_directory.parent / "lake")).files("src.S.all types")
    schema = pq.read_schema(f"{group.lake}/{file.path}")
    names = [n if n != "_gsn" else "_gsn_" for n, *_ in COLUMNS]
    for name, (_, _, arrow, _) in zip(names, COLUMNS, strict=True):
        assert schema.field(name).type == arrow, name
    assert schema.field("j").metadata[TYPE_NOTE] == b"json"
    assert schema.field("u").metadata[TYPE_NOTE] == b"uuid"

    found = Lake.open(group.lake).changes("src.S.all types").arrow().to_pylist()
    assert [(r["_op"], r["_gsn"], r["_seq"]) for r in found] == [("c", 1, 1), ("c", 1, 2), ("u", 2, 1), ("d", 2, 2)]
    assert [tuple(r[name] for name in names) for r in found] == [*rows, nulls, rows[1]]
    assert [r["_before"] and tuple(r["_before"].values()) for r in found] == [None, None, *rows]
    assert found[0]["_txid"] == "00000001"
    assert found[0]["_order"] == {"major": 1001, "minor": 1}


@pytest.mark.long
def test_hundreds_of_versions_of_a_wide_table_land_at_once(new_group: NewGroup) -> None:
    """Compiled all together, they took minutes, and then more memory than there was."""
    group = new_group()
    count, width = 300, 60
    with group.topic as topic:
        for version in range(1, count + 1):
            columns = (Column("id", INT64), *(Column(f"c{n}_{version}", STRING) for n in range(width)))
            table = TableSchema("src", "S", "wide", version, columns, ("id",))
            topic.transaction((table, "c", None, (version, *(f"{version}" for _ in range(width)))))
    group.land()
    found = Lake.open(group.lake).changes("src.S.wide", columns=["id", "c0_7"]).arrow().to_pylist()
    assert [row["id"] for row in found] == list(range(1, count + 1))
    assert [row["id"] for row in found if row["c0_7"] is not None] == [7]
