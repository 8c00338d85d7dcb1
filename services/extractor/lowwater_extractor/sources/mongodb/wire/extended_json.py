"""Converts BSON values to extended JSON (version 2).

Numbers are JSON numbers if that preserves their value: integers without a decimal point, doubles with one. The value is
preserved, but not whether it had 32 or 64 bits. All other types are in the canonical form. A text that is not UTF-8 is
`{"$invalidUtf8": "<base64>"}`, which only lowwater uses.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring as quoted

from bson.decimal128 import Decimal128

from lowwater.errors import CodecError
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb
from lowwater_extractor.sources.mongodb.wire.raw_bson import Value

#: end of the year 9999 in milliseconds: a date after that, or before 1970, is written as a number
_ISO_MS_MAX = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def name_text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CodecError(
            "a field whose name is not UTF-8", hint="rename the field: the lake needs UTF-8 names"
        ) from error


def text(data: bytes, value: Value) -> str:
    writer = _WRITERS.get(value.type)
    if writer is not None:
        return writer(data, value.at, value.end)
    return _FIXED[value.type]


def _double(data: bytes, at: int, _: int) -> str:
    (number,) = rb.double(data, at)
    if math.isfinite(number):
        return repr(number)
    shown = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return f'{{"$numberDouble":"{shown}"}}'


def _counted(data: bytes, at: int, end: int) -> str:
    """Return a JSON string, with quotes."""
    raw = data[at + 4 : end - 1]
    try:
        return quoted(raw.decode())
    except UnicodeDecodeError:
        return f'{{"$invalidUtf8":"{b64encode(raw).decode()}"}}'


def _document(data: bytes, at: int, _: int) -> str:
    return "{" + ",".join(f"{quoted(name_text(n))}:{text(data, v)}" for n, v in rb.elements(data, at)) + "}"


def _array(data: bytes, at: int, _: int) -> str:
    return "[" + ",".join([text(data, value) for _, value in rb.elements(data, at)]) + "]"


def _binary(data: bytes, at: int, end: int) -> str:
    subtype = data[at + 4]
    # the old subtype 2 has a second length field
    raw = data[at + (9 if subtype == 2 else 5) : end]
    return f'{{"$binary":{{"base64":"{b64encode(raw).decode()}","subType":"{subtype:02x}"}}}}'


def _object_id(data: bytes, at: int, end: int) -> str:
    return f'{{"$oid":"{data[at:end].hex()}"}}'


def _date(data: bytes, at: int, _: int) -> str:
    (ms,) = rb.int64(data, at)
    if not 0 <= ms <= _ISO_MS_MAX:
        return f'{{"$date":{{"$numberLong":"{ms}"}}}}'
    shown = (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return f'{{"$date":"{shown.removesuffix("+00:00")}Z"}}'


def _regex(data: bytes, at: int, end: int) -> str:
    middle = data.index(0, at)
    pattern, options = (quoted(name_text(part)) for part in (data[at:middle], data[middle + 1 : end - 1]))
    return f'{{"$regularExpression":{{"pattern":{pattern},"options":{options}}}}}'


def _pointer(data: bytes, at: int, end: int) -> str:
    id_ = _object_id(data, end - 12, end)
    return f'{{"$dbPointer":{{"$ref":{_counted(data, at, end - 12)},"$id":{id_}}}}}'


def _code(data: bytes, at: int, end: int) -> str:
    return f'{{"$code":{_counted(data, at, end)}}}'


def _symbol(data: bytes, at: int, end: int) -> str:
    return f'{{"$symbol":{_counted(data, at, end)}}}'


def _code_with_scope(data: bytes, at: int, end: int) -> str:
    scope = at + 8 + int(rb.length(data, at + 4)[0])
    return f'{{"$code":{_counted(data, at + 4, scope)},"$scope":{_document(data, scope, end)}}}'


def _timestamp(data: bytes, at: int, _: int) -> str:
    (number,) = rb.uint64(data, at)
    return f'{{"$timestamp":{{"t":{number >> 32},"i":{number & 0xFFFFFFFF}}}}}'


def _decimal(data: bytes, at: int, end: int) -> str:
    return f'{{"$numberDecimal":"{Decimal128.from_bid(data[at:end])}"}}'


_WRITERS: dict[int, Callable[[bytes, int, int], str]] = {
    rb.DOUBLE: _double,
    rb.STRING: _counted,
    rb.DOCUMENT: _document,
    rb.ARRAY: _array,
    rb.BINARY: _binary,
    rb.OBJECT_ID: _object_id,
    rb.BOOLEAN: lambda data, at, _: "true" if data[at] else "false",
    rb.DATE: _date,
    rb.REGEX: _regex,
    rb.DB_POINTER: _pointer,
    rb.CODE: _code,
    rb.SYMBOL: _symbol,
    rb.CODE_WITH_SCOPE: _code_with_scope,
    rb.INT32: lambda data, at, _: str(rb.int32(data, at)[0]),
    rb.TIMESTAMP: _timestamp,
    rb.INT64: lambda data, at, _: str(rb.int64(data, at)[0]),
    rb.DECIMAL: _decimal,
}
_FIXED = {
    rb.NULL: "null",
    rb.UNDEFINED: '{"$undefined":true}',
    rb.MIN_KEY: '{"$minKey":1}',
    rb.MAX_KEY: '{"$maxKey":1}',
}
