"""Varints, positions, and the hand-written codecs against the plain ones."""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import types
import typing
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.codec import generic, varint
from lowwater.codec.avro import avro_columns, change_schema
from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.errors import CodecError, SchemaError
from lowwater.records.codec import (
    RECORDS,
    RecordCodec,
    decode_commit,
    decode_mark,
    encode_commit,
    encode_mark,
    encode_order_key,
    record_schemas,
)
from lowwater.records.ids import SchemaId
from lowwater.records.positions import ORDER_MIN, U64_MAX, Order
from lowwater.records.types import Abandon, Commit, Mark, OrderKey
from lowwater.records.wire import HEADER_SIZE, header, schema_id_of

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
longs = st.integers(I64_MIN, I64_MAX) | st.integers(-70_000, 70_000)
orders = st.builds(Order, st.integers(0, U64_MAX), st.integers(0, U64_MAX))
text = st.text(st.characters(codec="utf-8"), max_size=8)
CODEC = RecordCodec({name: SchemaId(n + 1) for n, name in enumerate(sorted(record_schemas()))})


def of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a record's field."""
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        return st.none() | of_hint(inner)
    if origin is tuple:
        return st.lists(of_hint(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if hint is Order:
        return orders
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return st.builds(hint, **{name: of_hint(h) for name, h in typing.get_type_hints(hint).items()})
    if issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    return {int: longs, str: text, bool: st.booleans(), bytes: st.binary(max_size=5)}[hint]


@given(longs)
def test_a_number_has_avros_bytes_and_comes_back(number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    assert varint.long(number) == out.getvalue()
    assert varint.read_long(b"??" + varint.long(number) + b"?", 2) == (number, 2 + len(varint.long(number)))


@pytest.mark.parametrize("bits", range(64))
def test_a_number_at_each_power_of_two_comes_back(bits: int) -> None:
    for number in {min((1 << bits) + near, I64_MAX) for near in (-1, 0, 1)}:
        for signed in (number, -number):
            assert varint.read_long(varint.long(signed), 0)[0] == signed


@pytest.mark.parametrize("number", [I64_MAX + 1, I64_MIN - 1, 1 << 80, -(1 << 80)])
def test_a_number_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(CodecError):
        varint.long(number)


@given(longs, st.data())
def test_a_number_that_is_cut_off_is_an_error(number: int, data: st.DataObject) -> None:
    whole = varint.long(number)
    with pytest.raises(CodecError):
        varint.read_long(whole[: data.draw(st.integers(0, len(whole) - 1))], 0)


@given(st.integers(0, (1 << 32) - 1))
def test_a_schema_id_comes_back_from_its_header(number: int) -> None:
    assert schema_id_of(header(SchemaId(number)) + b"rest") == number


@pytest.mark.parametrize("value", [b"", b"\x00\x00", b"\x01\x00\x00\x00\x05x"])
def test_what_is_not_ours_has_no_schema_id(value: bytes) -> None:
    with pytest.raises(CodecError):
        schema_id_of(value)


@given(orders, orders)
def test_packed_positions_compare_as_the_pairs_do(one: Order, other: Order) -> None:
    assert (one.pack() < other.pack()) == (one < other)
    assert (one.pack() == other.pack()) == (one == other)
    assert Order.unpack(one.pack()) == one


@given(orders)
def test_a_mark_covers_every_commit_at_its_major_and_none_above(order: Order) -> None:
    assert order <= Order.mark(order.major)
    assert order >= ORDER_MIN
    if order.major < U64_MAX:
        assert Order.mark(order.major) < Order(order.major + 1, 1)


@given(of_hint(Commit), of_hint(Mark), of_hint(OrderKey))
def test_the_hand_written_codecs_equal_the_generic_ones(commit: Commit, mark: Mark, key: OrderKey) -> None:
    assert encode_commit(commit) == generic.encode(commit)
    assert encode_mark(mark) == generic.encode(mark)
    assert encode_order_key(key) == generic.encode(key)
    assert decode_commit(CODEC.encode(commit)) == commit
    assert decode_mark(CODEC.encode(mark)) == mark


@given(of_hint(Commit), of_hint(Mark), st.data())
def test_a_record_that_is_cut_off_is_an_error_and_nothing_else(commit: Commit, mark: Mark, data: st.DataObject) -> None:
    for value, decode in ((CODEC.encode(commit), decode_commit), (CODEC.encode(mark), decode_mark)):
        with pytest.raises(CodecError):
            decode(value[: data.draw(st.integers(HEADER_SIZE, len(value) - 1))])


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@given(data=st.data())
def test_every_record_comes_back_as_it_was_written(record: type, data: st.DataObject) -> None:
    written = data.draw(of_hint(record))
    value = CODEC.encode(written)
    assert CODEC.record_type(value) is record
    assert CODEC.decode(value, record) == written


def test_another_record_than_expected_is_named() -> None:
    with pytest.raises(SchemaError, match="expected Mark, found Abandon"):
        CODEC.decode(CODEC.encode(Abandon("t", 1)), Mark)
    with pytest.raises(SchemaError, match="expected Mark, found schema 900"):
        CODEC.decode(header(SchemaId(900)), Mark)


def test_columns_whose_names_differ_by_case_alone_have_names_that_every_avro_reader_tells_apart() -> None:
    table = TableSchema("s", "n", "t", 1, (Column("a", INT64), Column("A", INT64), Column("a_", INT64)), ("a",))
    schema = json.dumps(change_schema(table))
    row = next(f for f in json.loads(schema)["fields"] if f["name"] == "before")["type"][1]
    names = [field["name"].lower() for field in row["fields"]]
    assert len(set(names)) == 3
    assert list(avro_columns(schema)) == ["a", "A", "a_"]
