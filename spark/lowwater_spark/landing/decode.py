"""The ordered topic as Spark columns: keys, checksums and rows are decoded in the JVM, not in Python.

Every table version has its own column: a list with the decoded change, or null for records of other table versions. It
is a list because a null list has no child values, while a null struct writes a null for each field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lowwater.records.codec import record_schemas
from lowwater.records.ids import SchemaId
from lowwater.records.types import Commit, Copied, OrderKey, Skipped, Stale
from lowwater.records.wire import HEADER_SIZE, header

#: the record types of the ordered topic other than changes
CONTROL = (Commit.__name__, Skipped.__name__, Copied.__name__, Stale.__name__)
#: the column of the control records other than commits: there are few, so they are left encoded
OTHER = "other"
#: the column of changes whose table version is not among the compiled ones: they are left encoded
PLAIN = "plain"
#: the largest precision of a Spark decimal; longer decimals are read as bytes
DECIMAL_DIGITS_MAX = 38
_ALL = (1 << 31) - 1 - HEADER_SIZE


def body(column: str) -> Column:
    return F.substring(F.col(column), HEADER_SIZE + 1, _ALL)


def table_column(schema_id: int) -> str:
    return f"t{schema_id}"


@lru_cache(maxsize=10_000)
def spark_schema(avro: str) -> str:
    """`avro` changed so that Spark can read the same bytes: decimals beyond 38 digits are declared as bytes."""

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if node.get("logicalType") == "decimal" and node["precision"] > DECIMAL_DIGITS_MAX:
                return "bytes"
            return {name: walk(value) for name, value in node.items() if name != "lowwater"}
        return [walk(item) for item in node] if isinstance(node, list) else node

    return json.dumps(walk(json.loads(avro)))


@lru_cache(maxsize=10_000)
def _decoded(schema_id: int, avro: str) -> Column:
    """Cached because every call of these functions is a message to the JVM."""
    is_this = F.col("header") == F.lit(header(SchemaId(schema_id)))
    return F.when(is_this, F.array(from_avro(F.col("body"), avro, {"mode": "FAILFAST"})))


def ordered_rows(records: DataFrame, control_ids: Mapping[str, int], tables: Mapping[int, str]) -> DataFrame:
    """Offset, key, checksum and header of every record, and one column for each record type and table version.

    The key is left encoded: numpy decodes the keys of a whole batch faster than the JVM.
    `tables`: schema id → Avro schema of the table versions to decode with compiled code.
    """
    commit, *others = CONTROL
    staged = records.select(
        "offset",
        "key",
        F.crc32("value").alias("crc"),
        F.octet_length("value").alias("size"),
        F.substring("value", 1, HEADER_SIZE).alias("header"),
        body("value").alias("body"),
    )
    is_other = F.col("header").isin([header(SchemaId(control_ids[name])) for name in others])
    is_plain = ~F.col("header").isin([header(SchemaId(id_)) for id_ in (*control_ids.values(), *tables)])
    rows = [_decoded(id_, spark_schema(avro)).alias(table_column(id_)) for id_, avro in tables.items()]
    return staged.select(
        "offset",
        "key",
        "crc",
        "size",
        "header",
        _decoded(control_ids[commit], record_schemas()[commit]).alias(commit),
        F.when(is_other, F.col("body")).alias(OTHER),
        F.when(is_plain, F.col("body")).alias(PLAIN),
        *rows,
    )


def largest_value(records: DataFrame) -> int:
    """The size of the largest value in bytes; nothing is decoded."""
    found = records.agg(F.max(F.octet_length("value"))).first()
    assert found is not None
    return found[0] or 0


def end_of(records: DataFrame, commit_id: int, gsn: int) -> tuple[int | None, bytes | None]:
    """The last offset, and the Commit value of the transaction `gsn` or None; nothing but keys is decoded."""
    place = from_avro(body("key"), record_schemas()[OrderKey.__name__], {"mode": "FAILFAST"})
    is_end = (F.substring("value", 1, HEADER_SIZE) == F.lit(header(SchemaId(commit_id)))) & (place["gsn"] == gsn)
    found = records.agg(F.max("offset"), F.max(F.when(is_end, F.col("value")))).first()
    assert found is not None
    return found[0], None if found[1] is None else bytes(found[1])
