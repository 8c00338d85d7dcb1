"""Documents of every BSON type, and events made by hand."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import bson
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

OID = ObjectId("0123456789abcdef01234567")
#: name, what the driver writes, extended JSON
VALUES: list[tuple[str, Any, str]] = [
    ("double", 1.5, "1.5"),
    ("whole double", 2.0, "2.0"),
    ("nan", float("nan"), '{"$numberDouble":"NaN"}'),
    ("infinity", float("-inf"), '{"$numberDouble":"-Infinity"}'),
    ("string", 'é "quoted" \u0000', '"é \\"quoted\\" \\u0000"'),
    ("object", {"a": {"b": [1, None]}}, '{"a":{"b":[1,null]}}'),
    ("array", [1, "x", OID], '[1,"x",{"$oid":"0123456789abcdef01234567"}]'),
    ("binary", b"\x00\xff", '{"$binary":{"base64":"AP8=","subType":"00"}}'),
    ("old binary", Binary(b"\x01", 2), '{"$binary":{"base64":"AQ==","subType":"02"}}'),
    ("uuid", Binary(bytes(range(16)), 4), '{"$binary":{"base64":"AAECAwQFBgcICQoLDA0ODw==","subType":"04"}}'),
    ("own binary", Binary(b"\x01", 128), '{"$binary":{"base64":"AQ==","subType":"80"}}'),
    ("objectid", OID, '{"$oid":"0123456789abcdef01234567"}'),
    ("true", True, "true"),
    ("false", False, "false"),
    ("date", dt.datetime(2024, 2, 29, 12, 0, 0, 123_000, dt.UTC), '{"$date":"2024-02-29T12:00:00.123Z"}'),
    ("whole date", dt.datetime(2024, 2, 29, tzinfo=dt.UTC), '{"$date":"2024-02-29T00:00:00Z"}'),
    ("old date", DatetimeMS(-1), '{"$date":{"$numberLong":"-1"}}'),
    ("far date", DatetimeMS(1 << 62), f'{{"$date":{{"$numberLong":"{1 << 62}"}}}}'),
    ("null", None, "null"),
    ("regex", Regex("^a/b", "im"), '{"$regularExpression":{"pattern":"^a/b","options":"im"}}'),
    ("code", Code("f()"), '{"$code":"f()"}'),
    ("code with scope", Code("f(x)", {"x": 1}), '{"$code":"f(x)","$scope":{"x":1}}'),
    ("int32", -7, "-7"),
    ("timestamp", Timestamp(4, 7), '{"$timestamp":{"t":4,"i":7}}'),
    ("int64", Int64(1 << 60), str(1 << 60)),
    ("decimal", Decimal128("1.10"), '{"$numberDecimal":"1.10"}'),
    ("decimal nan", Decimal128("NaN"), '{"$numberDecimal":"NaN"}'),
    ("decimal exponent", Decimal128("-1E+6000"), '{"$numberDecimal":"-1E+6000"}'),
    ("minkey", MinKey(), '{"$minKey":1}'),
    ("maxkey", MaxKey(), '{"$maxKey":1}'),
]

_OPTIONS: CodecOptions[Any] = CodecOptions(tz_aware=True)


def encode(document: dict[str, Any]) -> bytes:
    return bson.encode(document, codec_options=_OPTIONS)


def element(type_: int, name: str, value: bytes) -> bytes:
    return bytes((type_,)) + name.encode() + b"\0" + value


def document(*elements: bytes) -> bytes:
    """By hand: for what the driver does not write."""
    body = b"".join(elements)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def counted(text: bytes) -> bytes:
    return struct.pack("<i", len(text) + 1) + text + b"\0"


#: types that the driver reads and never writes
BY_HAND: list[tuple[str, int, bytes, str]] = [
    ("undefined", 6, b"", '{"$undefined":true}'),
    ("symbol", 14, counted(b"s"), '{"$symbol":"s"}'),
    ("dbpointer", 12, counted(b"c") + OID.binary, f'{{"$dbPointer":{{"$ref":"c","$id":{{"$oid":"{OID}"}}}}}}'),
    ("not utf-8", 2, counted(b"\xff\x00"), '{"$invalidUtf8":"/wA="}'),
]


def token(time: int, kind: int = 128) -> str:
    """As the server writes them: a timestamp, then what tells high-water marks (0) from events (128)."""
    return f"82{time:016x}2b{kind:02x}"


def event(
    time: int, kind: str = "insert", doc: Any = None, *, before: Any = None, transaction: int | None = None,
    namespace: str = "shop.orders", **more: Any,
) -> bytes:  # fmt: skip
    database, _, collection = namespace.partition(".")
    found: dict[str, Any] = {
        "_id": {"_data": token(time)},
        "operationType": kind,
        "clusterTime": Timestamp(time >> 32, time & 0xFFFFFFFF),
        "wallTime": DatetimeMS(1_700_000_000_000),
        "ns": {"db": database, "coll": collection},
    }
    if doc is not None:
        found |= {"fullDocument": doc, "documentKey": {"_id": doc["_id"]}}
    if before is not None:
        found |= {"fullDocumentBeforeChange": before, "documentKey": {"_id": before["_id"]}}
    if transaction is not None:
        found |= {"lsid": {"id": Binary(b"s" * 16, 4), "uid": b"u"}, "txnNumber": Int64(transaction)}
    return encode({**found, **more})
