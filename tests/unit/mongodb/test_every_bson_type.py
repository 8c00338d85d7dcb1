"""Each BSON type: as extended JSON, as a column, and in a column of another type."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import bson
import pytest
from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from tests.unit.mongodb.documents import BY_HAND, OID, VALUES, document, element, encode

from lowwater.errors import LogCorruptError
from lowwater_extractor.sources.mongodb.shapes import Hidden, RowReader, Shape
from lowwater_extractor.sources.mongodb.types import FieldType, type_of
from lowwater_extractor.sources.mongodb.wire import extended_json as extended
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb

_READ = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def _only(data: bytes) -> rb.Value:
    return next(value for name, value in rb.elements(data) if name == b"v")


@pytest.mark.parametrize(("value", "wanted"), [v[1:] for v in VALUES], ids=[v[0] for v in VALUES])
def test_extended_json_is_what_is_written_here_and_the_driver_reads_it_back(value: Any, wanted: str) -> None:
    data = encode({"v": value})
    found = extended.text(data, _only(data))
    assert found == wanted
    # the driver's own reader makes the same bytes of it, but for how many bits a whole number has
    again = json_util.loads(f'{{"v":{found}}}', json_options=_READ)
    if not isinstance(value, int | dict | list):
        assert bson.encode(again) == data


@pytest.mark.parametrize(("type_", "raw", "wanted"), [v[1:] for v in BY_HAND], ids=[v[0] for v in BY_HAND])
def test_types_that_no_driver_writes_any_more(type_: int, raw: bytes, wanted: str) -> None:
    data = document(element(type_, "v", raw))
    found = extended.text(data, _only(data))
    assert found == wanted
    json.loads(found)


def test_an_unknown_type_is_an_error_and_so_is_a_document_that_ends_elsewhere() -> None:
    with pytest.raises(LogCorruptError, match="0x42"):
        list(rb.elements(document(element(0x42, "v", b""))))
    broken = bytearray(encode({"v": 1}))
    broken[0] += 1
    with pytest.raises((LogCorruptError, ValueError)):
        list(rb.elements(bytes(broken) + b"\0\0\0\0"))


TYPES: list[tuple[Any, FieldType, Any]] = [
    (True, FieldType.BOOLEAN, True),
    (5, FieldType.INT32, 5),
    (Int64(1 << 40), FieldType.INT64, 1 << 40),
    (0.25, FieldType.DOUBLE, 0.25),
    (Decimal128("12.50"), FieldType.DECIMAL, Decimal("12.50")),
    ("é", FieldType.STRING, "é".encode()),
    (OID, FieldType.OBJECT_ID, str(OID).encode()),
    (bson.Binary(bytes(range(16)), 4), FieldType.UUID, b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
    (b"\x01", FieldType.BINARY, b"\x01"),
    (bson.DatetimeMS(1_700_000_000_123), FieldType.DATE, 1_700_000_000_123_000),
    ({"a": 1}, FieldType.JSON, '{"a":1}'),
    ([1], FieldType.JSON, "[1]"),
    (bson.Regex("a"), FieldType.JSON, '{"$regularExpression":{"pattern":"a","options":""}}'),
    (bson.Binary(b"\x01", 3), FieldType.JSON, '{"$binary":{"base64":"AQ==","subType":"03"}}'),
]


@pytest.mark.parametrize(("value", "type_", "column"), TYPES, ids=[str(t[1]) + str(n) for n, t in enumerate(TYPES)])
def test_a_value_alone_makes_a_column_of_its_type(value: Any, type_: FieldType, column: Any) -> None:
    data = encode({"_id": 1, "v": value})
    assert type_of(data, _only(data)) is type_
    shape = Shape("d", "c").grown(data, 0, 10)
    assert shape.fields == {"v": type_}
    assert RowReader(shape, Hidden(), 10).read(data) == [1, column, None]


def _in(type_: FieldType, value: Any) -> tuple[Any, Any]:
    """What a column of this type and `_rest` have of a value."""
    reader = RowReader(Shape("d", "c", FieldType.INT64, {"v": type_}), Hidden(), 10, is_growing=False)
    _, column, rest = reader.read(encode({"_id": 1, "v": value}))
    return column, rest


@pytest.mark.parametrize(
    ("type_", "value", "column"),
    [
        (FieldType.INT64, 5, 5),
        (FieldType.DOUBLE, 5, 5.0),
        (FieldType.DOUBLE, Int64(1 << 53), float(1 << 53)),
        (FieldType.DECIMAL, 5, 5),
        (FieldType.DECIMAL, Int64(-(1 << 63)), -(1 << 63)),
        (FieldType.DECIMAL, Decimal128("1E+3"), Decimal(1000)),
        (FieldType.DECIMAL, Decimal128("1.0000000000000000000000"), Decimal(1)),
        (FieldType.JSON, "x", '"x"'),
        (FieldType.JSON, 5, "5"),
    ],
)
def test_a_value_that_a_wider_column_holds_is_in_it(type_: FieldType, value: Any, column: Any) -> None:
    assert _in(type_, value) == (column, None)


@pytest.mark.parametrize(
    ("type_", "value", "rest"),
    [
        (FieldType.INT32, "x", '"x"'),
        (FieldType.INT64, 0.5, "0.5"),
        (FieldType.INT64, 5.0, "5.0"),
        (FieldType.DOUBLE, Int64((1 << 53) + 1), str((1 << 53) + 1)),
        (FieldType.DOUBLE, Decimal128("0.1"), '{"$numberDecimal":"0.1"}'),
        (FieldType.DECIMAL, Decimal128("NaN"), '{"$numberDecimal":"NaN"}'),
        (FieldType.DECIMAL, Decimal128("-0"), '{"$numberDecimal":"-0"}'),
        (FieldType.DECIMAL, Decimal128("1E+20"), '{"$numberDecimal":"1E+20"}'),
        (FieldType.DECIMAL, Decimal128("1E-19"), '{"$numberDecimal":"1E-19"}'),
        (FieldType.DECIMAL, 0.1, "0.1"),
        (FieldType.STRING, OID, f'{{"$oid":"{OID}"}}'),
        (FieldType.OBJECT_ID, str(OID), f'"{OID}"'),
        (FieldType.UUID, b"\x01", '{"$binary":{"base64":"AQ==","subType":"00"}}'),
        (FieldType.BINARY, bson.Binary(b"\x01", 5), '{"$binary":{"base64":"AQ==","subType":"05"}}'),
        (FieldType.DATE, bson.DatetimeMS(1 << 61), f'{{"$date":{{"$numberLong":"{1 << 61}"}}}}'),
        (FieldType.STRING, None, "null"),
        (FieldType.JSON, None, "null"),
    ],
)
def test_a_value_that_does_not_fit_is_in_the_rest_as_it_is(type_: FieldType, value: Any, rest: str) -> None:
    assert _in(type_, value) == (None, f'{{"v":{rest}}}')


def test_a_text_that_is_not_utf8_is_in_the_rest() -> None:
    data = document(element(16, "_id", b"\1\0\0\0"), element(2, "v", b"\x02\0\0\0\xff\0"))
    reader = RowReader(Shape("d", "c", FieldType.INT64, {"v": FieldType.STRING}), Hidden(), 10)
    assert reader.read(data) == [1, None, '{"v":{"$invalidUtf8":"/w=="}}']


def test_nan_and_infinity_are_doubles() -> None:
    assert math.isnan(_in(FieldType.DOUBLE, float("nan"))[0])
    assert _in(FieldType.DOUBLE, float("inf")) == (math.inf, None)
