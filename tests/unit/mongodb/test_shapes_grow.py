"""Columns out of documents: whatever comes in whatever order, nothing of it is lost, and nothing hidden is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mongodb.documents import BY_HAND, OID, VALUES, document, element, encode

from lowwater.codec.rules import ColumnRules, Mask
from lowwater.errors import CodecError, ConfigError
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.relations import Shapes, refuse_nested_rules
from lowwater_extractor.sources.mongodb.shapes import Grows, Hidden, RowReader, Shape
from lowwater_extractor.sources.mongodb.types import CONVERTS, FieldType
from lowwater_extractor.sources.mongodb.wire import extended_json as extended
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb

NAMES = st.sampled_from(["a", "b", "A", "ä.x", "", "_rest", "_op", "$x", "n" * 201])
SOME = st.one_of(
    st.sampled_from([value for _, value, _ in VALUES]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1).map(Int64),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**25), max_value=10**25).map(Decimal128),
)
DOCUMENTS = st.lists(st.dictionaries(NAMES, SOME, max_size=5), min_size=1, max_size=8)


def _read(shape: Shape, data: bytes, columns_max: int) -> tuple[Shape, list[Any]]:
    """As a table does it."""
    try:
        return shape, RowReader(shape, Hidden(), columns_max).read(data)
    except Grows:
        shape = shape.grown(data, 0, columns_max)
        return shape, RowReader(shape, Hidden(), columns_max).read(data)


def _check(shape: Shape, data: bytes, row: list[Any]) -> None:
    """Every field is in its column, as the column's type writes it, or in the rest, as JSON writes it."""
    rest: dict[str, Any] = json.loads(row[-1]) if row[-1] else {}
    places = {name: place for place, name in enumerate(shape.fields, 1)}
    names = set()
    for raw, value in rb.elements(data):
        name = raw.decode()
        if name == "_id":
            continue
        names.add(name)
        if name in rest:
            assert rest[name] == json.loads(extended.text(data, value))
            assert name not in places or row[places[name]] is None
        else:
            convert = CONVERTS[shape.fields[name], value.type]
            assert str(row[places[name]]) == str(convert(data, value.at, value.end))
    assert set(rest) <= names
    assert all(row[place] is None for name, place in places.items() if name not in names)


@given(DOCUMENTS, st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_whatever_comes_in_whatever_order(documents: list[dict[str, Any]], columns_max: int) -> None:
    shape = Shape("d", "c", FieldType.INT64)
    for number, one in enumerate(documents):
        data = encode({"_id": number, **one})
        before = shape
        shape, row = _read(shape, data, columns_max)
        _check(shape, data, row)
        assert list(shape.fields)[: len(before.fields)] == list(before.fields), "columns stay in their places"
        assert len(shape.fields) <= max(columns_max, len(before.fields))


@given(DOCUMENTS)
@settings(max_examples=100, deadline=None)
def test_growing_is_the_same_when_it_is_done_again_and_remembered_in_between(documents: list[dict[str, Any]]) -> None:
    one = two = Shape("d", "c", FieldType.INT64)
    for number, found in enumerate(documents):
        data = encode({"_id": number, **found})
        one = one.grown(data, 0, 100)
        two = Shape.unpack("d", "c", two.grown(data, 0, 100).pack())
        assert one == two
    for number, found in enumerate(documents):
        assert one.grown(encode({"_id": number, **found}), 0, 100) == one, "what was seen makes it grow no more"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, Int64(1 << 40)], FieldType.INT64),
        ([Int64(1), 5], FieldType.INT64),
        ([1, 0.5], FieldType.DOUBLE),
        ([Int64((1 << 60) + 1), 0.5], FieldType.INT64),
        ([1, Int64(1), 0.5], FieldType.INT64),
        ([1, Decimal128("1")], FieldType.DECIMAL),
        ([Int64(1), Decimal128("1")], FieldType.DECIMAL),
        ([0.5, Decimal128("1")], FieldType.DOUBLE),
        ([Decimal128("1"), 0.5], FieldType.DECIMAL),
        ([1, "x"], FieldType.INT32),
        ([None, "x"], FieldType.STRING),
        ([{}, 1], FieldType.JSON),
    ],
)
def test_a_column_widens_where_a_type_holds_both(values: list[Any], wanted: FieldType) -> None:
    shape = Shape("d", "c")
    for value in values:
        shape = shape.grown(encode({"_id": 1, "v": value}), 0, 10)
    assert shape.fields["v"] is wanted


def test_null_and_missing_are_told_apart() -> None:
    shape = Shape("d", "c", FieldType.INT64, {"v": FieldType.STRING})
    reader = RowReader(shape, Hidden(), 10)
    assert reader.read(encode({"_id": 1})) == [1, None, None]
    assert reader.read(encode({"_id": 1, "v": None})) == [1, None, '{"v":null}']


def test_a_name_that_comes_twice_is_kept_twice() -> None:
    one, two = (element(16, "v", bytes((n, 0, 0, 0))) for n in (1, 2))
    data = document(element(16, "_id", b"\1\0\0\0"), one, two, two)
    reader = RowReader(Shape("d", "c", FieldType.INT64, {"v": FieldType.INT32}), Hidden(), 10)
    assert reader.read(data) == [1, 1, '{"v":2,"v":2}']


# -- keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type_", "wanted"),
    [
        (OID, FieldType.OBJECT_ID, str(OID).encode()),
        ("k", FieldType.STRING, b"k"),
        (5, FieldType.INT64, 5),
        (Int64(5), FieldType.INT64, 5),
        (5.0, FieldType.INT64, 5),
        (5.5, FieldType.JSON, "5.5"),
        (bson.Binary(bytes(16), 4), FieldType.UUID, b"00000000-0000-0000-0000-000000000000"),
        (b"k", FieldType.JSON, '{"$binary":{"base64":"aw==","subType":"00"}}'),
        ({"a": 1, "b": "x"}, FieldType.JSON, '{"a":1,"b":"x"}'),
        (True, FieldType.JSON, "true"),
        (None, FieldType.JSON, "null"),
        (bson.MinKey(), FieldType.JSON, '{"$minKey":1}'),
        (Decimal128("5"), FieldType.JSON, '{"$numberDecimal":"5"}'),
    ],
)
def test_an_id_of_any_type_is_a_key(value: Any, type_: FieldType, wanted: Any) -> None:
    data = encode({"_id": value})
    shape = Shape("d", "c").grown(data, 0, 10)
    assert shape.id_type is type_
    assert RowReader(shape, Hidden(), 10).read(data) == [wanted, None]


@pytest.mark.parametrize(("type_", "raw"), [v[1:3] for v in BY_HAND if v[1] != rb.STRING])
def test_an_id_of_an_old_type_too(type_: int, raw: bytes) -> None:
    data = document(element(type_, "_id", raw))
    shape = Shape("d", "c").grown(data, 0, 10)
    assert shape.id_type is FieldType.JSON
    assert RowReader(shape, Hidden(), 10).read(data)[0] is not None


def test_ids_of_several_types_are_refused_until_the_column_is_json() -> None:
    shape = Shape("d", "c").grown(encode({"_id": 1}), 0, 10)
    with pytest.raises(CodecError, match="another type") as refused:
        RowReader(shape, Hidden(), 10).read(encode({"_id": "1"}))
    assert "ids_as_json" in (refused.value.hint or "")
    reader = RowReader(shape.with_id_as_json(), Hidden(), 10)
    assert [reader.read(encode({"_id": v}))[0] for v in (1, "1")] == ["1", '"1"']


# -- what is hidden --------------------------------------------------------------------------------------


def _hidden(mask: Mapping[str, Mask], *drop: str) -> Hidden:
    return Hidden.of(ColumnRules(frozenset(drop), mask), "d.c")


def test_what_is_dropped_is_in_no_column_and_not_in_the_rest_whatever_its_type() -> None:
    hidden = _hidden({}, "d.c.ssn")
    shape = Shape("d", "c")
    for value in (1, "x", None, {"a": 1}):
        data = encode({"_id": 1, "ssn": value, "b": 2})
        shape = shape.grown(data, 0, 10)
        assert RowReader(shape, hidden, 10).read(data) == [1, *([None] if "ssn" in shape.fields else []), 2, None]


def test_what_is_masked_is_one_text_column_whatever_its_type() -> None:
    hidden = _hidden({"d.c.ssn": Mask.HASH})
    shape = Shape("d", "c").grown(encode({"_id": 1, "ssn": 5}), 0, 10)
    assert [c.type.kind for c in shape.table("s", hidden.masked).columns] == ["int64", "string", "json"]
    reader = RowReader(shape, hidden, 10)
    assert [reader.read(encode({"_id": 1, "ssn": v})) for v in (5, "x", OID, {"a": 1}, None)] == [
        [1, "5", None],
        [1, b"x", None],
        [1, str(OID), None],
        [1, '{"a":1}', None],
        [1, None, None],
    ]


def test_what_is_masked_and_has_no_room_for_a_column_is_shown_nowhere() -> None:
    hidden = _hidden({"d.c.ssn": Mask.HASH})
    reader = RowReader(Shape("d", "c", FieldType.INT64, {"a": FieldType.INT32}), hidden, 1)
    assert reader.read(encode({"_id": 1, "ssn": 5})) == [1, None, None]


def test_a_rule_for_a_part_of_a_field_is_refused() -> None:
    config = MongoConfig(hosts=["h"], replica_set="r", tables=["d.c", "d.c.d"])
    refuse_nested_rules(ColumnRules(frozenset({"d.c.name", "d.c.d.name", "d.other.a.b"})), config, "s")
    with pytest.raises(ConfigError, match="a part of a field") as refused:
        refuse_nested_rules(ColumnRules(frozenset({"d.c.address.street"})), config, "s")
    assert "d.c.address" in (refused.value.hint or "")


# -- remembered ------------------------------------------------------------------------------------------


def test_shapes_are_remembered_when_they_have_changed_and_forgotten_when_dropped() -> None:
    shapes = Shapes(MongoConfig(hosts=["h"], replica_set="r", tables=["d.*"]))
    shapes.grow("d.c", encode({"_id": 1, "v": 1}))
    notes = shapes.notes()
    assert list(notes) == ["shape/d.c"]
    assert shapes.notes() == {}
    shapes.grow("d.c", encode({"_id": 2, "v": 1}))
    assert shapes.notes() == {}
    again = Shapes(MongoConfig(hosts=["h"], replica_set="r", tables=["d.*"]))
    again.load(notes)
    assert again.get("d.c") == shapes.get("d.c")
    again.forget("d.c")
    assert again.notes() == {"shape/d.c": b""}
    assert again.get("d.c").id_type is None
