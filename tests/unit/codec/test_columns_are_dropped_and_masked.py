"""What a rule hides is in none of the published bytes."""

from __future__ import annotations

import hashlib
import hmac
import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.codec import table as types
from lowwater.codec.avro import change_schema
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules, Mask
from lowwater.codec.table import Column, TableSchema
from lowwater.errors import CodecError, ConfigError
from lowwater.records.ids import SchemaId
from lowwater.records.wire import HEADER_SIZE

TABLE = TableSchema(
    "db",
    "BANK",
    "CUSTOMERS",
    1,
    (Column("ID", types.INT64), Column("SSN", types.STRING), Column("AGE", types.INT32), Column("N", types.STRING)),
    key=("ID",),
)
SSN = "BANK.CUSTOMERS.SSN"
AGE = "BANK.CUSTOMERS.AGE"
ID = "BANK.CUSTOMERS.ID"
#: letters that nothing else in a record has
secrets = st.text("ŠŽĐ", min_size=3, max_size=9)


def _read(encoder: TableEncoder, row: list[Any]) -> tuple[bytes, dict[str, Any]]:
    value = encoder.value(1, "u", row, row, 0)
    schema = fastavro.parse_schema(change_schema(encoder.table))
    record = fastavro.schemaless_reader(io.BytesIO(value[HEADER_SIZE:]), schema, None)
    assert isinstance(record, dict)
    assert record["before"] == record["after"]
    return value, record["after"]


@given(secrets)
def test_a_dropped_column_is_neither_in_the_schema_nor_in_the_bytes(secret: str) -> None:
    encoder = TableEncoder(TABLE, SchemaId(1), ColumnRules(drop=frozenset({SSN})))
    value, row = _read(encoder, [7, secret, 30, "n"])
    assert row == {"ID": 7, "AGE": 30, "N": "n"}
    assert secret.encode() not in value


@given(secrets)
def test_masked_columns_keep_their_place_and_lose_their_value(secret: str) -> None:
    for mask, shown in ((Mask.NULL, None), (Mask.REDACT, "***")):
        encoder = TableEncoder(TABLE, SchemaId(1), ColumnRules(mask={SSN: mask}))
        value, row = _read(encoder, [7, secret, 30, "n"])
        assert row == {"ID": 7, "SSN": shown, "AGE": 30, "N": "n"}
        assert secret.encode() not in value


@given(secrets, st.integers(-(1 << 31), (1 << 31) - 1))
def test_hashed_columns_are_text_and_equal_values_stay_equal(secret: str, age: int) -> None:
    rules = ColumnRules(mask={SSN: Mask.HASH, AGE: Mask.HASH, ID: Mask.HASH}, hash_key=b"key")
    encoder = TableEncoder(TABLE, SchemaId(1), rules)
    value, row = _read(encoder, [7, secret, age, "n"])
    wanted = [hmac.new(b"key", text.encode(), hashlib.sha256).hexdigest() for text in ("7", secret, str(age))]
    assert row == {"ID": wanted[0], "SSN": wanted[1], "AGE": wanted[2], "N": "n"}
    assert secret.encode() not in value


@pytest.mark.parametrize("mask", list(Mask))
def test_null_stays_null_under_every_mask(mask: Mask) -> None:
    encoder = TableEncoder(TABLE, SchemaId(1), ColumnRules(mask={SSN: mask}, hash_key=b"key"))
    assert _read(encoder, [7, None, None, None])[1] == {"ID": 7, "SSN": None, "AGE": None, "N": None}


def test_an_error_in_another_column_does_not_show_what_is_masked() -> None:
    encoder = TableEncoder(TABLE, SchemaId(1), ColumnRules(mask={SSN: Mask.REDACT}))
    with pytest.raises(CodecError, match=r"CUSTOMERS\.AGE") as caught:
        encoder.value(1, "c", None, [7, "ŠŽĐ", 1 << 40, "n"], 0)
    assert "ŠŽĐ" not in str(caught.value)


@pytest.mark.parametrize(
    "rules",
    [
        ColumnRules(drop=frozenset({ID})),
        ColumnRules(mask={ID: Mask.NULL}),
        ColumnRules(mask={ID: Mask.REDACT}),
        ColumnRules(mask={SSN: Mask.HASH}),
    ],
    ids=["key-dropped", "key-null", "key-redacted", "hash-without-key"],
)
def test_rules_that_would_mix_rows_up_are_refused(rules: ColumnRules) -> None:
    with pytest.raises(ConfigError) as caught:
        TableEncoder(TABLE, SchemaId(1), rules)
    assert caught.value.hint


def test_all_columns_of_a_table_without_a_key_can_go() -> None:
    table = TableSchema("db", "BANK", "LOG", 1, (Column("A", types.STRING), Column("B", types.INT32)))
    encoder = TableEncoder(table, SchemaId(1), ColumnRules(drop=frozenset({"BANK.LOG.A", "BANK.LOG.B"})))
    assert _read(encoder, ["x", 1])[1] == {}
    assert encoder.insert(["x", 1], 0) == encoder.body("c", None, ["x", 1], 0)


@given(secrets)
def test_the_quick_ways_for_whole_rows_hide_the_same(secret: str) -> None:
    rules = ColumnRules(drop=frozenset({AGE}), mask={SSN: Mask.HASH}, hash_key=b"key")
    encoder = TableEncoder(TABLE, SchemaId(1), rules)
    row = [7, secret, 30, "n"]
    for quick, plain in (
        (encoder.insert(row, 5), encoder.body("c", None, row, 5)),
        (encoder.delete(row, 5), encoder.body("d", row, None, 5)),
        (encoder.update([*row, *row], 5), encoder.body("u", row, row, 5)),
    ):
        assert quick == plain
        assert secret.encode() not in quick


def test_all_columns_but_the_key_can_go() -> None:
    rules = ColumnRules(drop=frozenset({SSN, AGE, "BANK.CUSTOMERS.N"}))
    assert _read(TableEncoder(TABLE, SchemaId(1), rules), [7, "x", 1, "n"])[1] == {"ID": 7}
