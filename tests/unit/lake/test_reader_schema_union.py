"""All versions of a table as one set of columns: nothing is lost, nothing is rounded."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lowwater.codec.avro import change_schema
from lowwater.codec.table import (
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    JSON,
    STRING,
    TIMESTAMP,
    Column,
    TableSchema,
    Type,
    array,
    decimal,
)
from lowwater.lake.schema.columns import TYPE_NOTE, lake_name, lake_table
from lowwater.lake.schema.union import TableUnion, common_type, union_of


def union(*versions: dict[str, Type]) -> TableUnion:
    tables = {}
    for number, columns in enumerate(versions, 1):
        schema = TableSchema("s", "n", "t", number, tuple(Column(n, t) for n, t in columns.items()), ("id",))
        tables[number + 100] = lake_table(json.dumps(change_schema(schema)))
    return union_of(tables)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.decimal128(5, 2), pa.decimal128(21, 2)),
        (pa.int32(), pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 0), pa.decimal128(10, 8), pa.decimal128(18, 8)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
        (pa.decimal256(76, 0), pa.decimal256(76, 1), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), None),
        (pa.string(), pa.int32(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.field("item", pa.int64()))),
    ],
)
def test_a_common_type_keeps_every_value_of_both(
    one: pa.DataType, other: pa.DataType, common: pa.DataType | None
) -> None:
    assert common_type(one, other) == common
    assert common_type(other, one) == common


def test_added_dropped_and_widened_columns_are_one_set() -> None:
    found = union({"id": INT32, "old": STRING, "x": FLOAT32}, {"id": INT64, "x": FLOAT64, "new": DATE})
    assert [(c.name, c.field.type) for c in found.columns] == [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("new", pa.date32()),
        ("old", pa.string()),
    ]
    assert found.column("new").names == {102: "new"}  # type: ignore[union-attr]
    assert found.newest.version == 2


def test_types_without_a_common_one_get_a_name_each_and_the_newest_keeps_its_own() -> None:
    found = union({"id": INT64, "x": DATE}, {"id": INT64, "x": STRING}, {"id": INT64, "x": TIMESTAMP})
    assert [(c.name, c.field.type) for c in found.columns] == [
        ("id", pa.int64()),
        ("x", pa.timestamp("us")),
        ("x__v2", pa.string()),
        ("x__v1", pa.date32()),
    ]
    assert found.renamed(101) == {"x": "x__v1"}
    assert found.renamed(103) == {}


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    found = union({"id": INT64, "x": DATE, "x__v1": STRING}, {"id": INT64, "x": STRING})
    assert sorted(c.name for c in found.columns) == ["id", "x", "x__v1", "x__v1_"]


def test_a_note_on_a_type_stays_while_all_versions_have_it() -> None:
    both = union({"id": INT64, "x": JSON}, {"id": INT64, "x": JSON})
    assert both.columns[1].field.metadata == {TYPE_NOTE: b"json"}
    one = union({"id": INT64, "x": JSON}, {"id": INT64, "x": STRING})
    assert one.columns[1].field.metadata is None


def test_lists_widen_by_their_items() -> None:
    found = union({"id": INT64, "x": array(INT32)}, {"id": INT64, "x": array(decimal(5, 2))})
    assert found.columns[1].field.type.value_type == pa.decimal128(12, 2)


def test_column_named_as_a_cdc_column_and_one_named_as_its_replacement_stay_two() -> None:
    assert [lake_name(name) for name in ("_gsn", "_gsn_", "gsn")] == ["_gsn_", "_gsn__", "gsn"]
