"""Builds the queries of the mode `incremental`. No I/O.

A collection is read in the order (primary, secondary). Bounds are canonical extended JSON, which preserves types. The
server compares a primary only with values of comparable types, so all primaries must be of one kind; a document with
another is reported as an error. A secondary is compared in the server's order over all types.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.json_util import JSONMode, JSONOptions
from bson.objectid import ObjectId

from lowwater.errors import SourceError
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range
from lowwater_extractor.modes import CursorConfig

Query = dict[str, Any]

_OPTIONS = JSONOptions(
    json_mode=JSONMode.CANONICAL, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
#: types that the server compares with one another, by its names
_NUMBERS = ["int", "long", "double", "decimal"]


def bound_of(cursor: CursorConfig, document: Query) -> Bound:
    found = [document.get(name) for name in cursor.columns]
    return tuple(None if value is None else json_util.dumps(value, json_options=_OPTIONS) for value in found)


def value_of(text: str) -> Any:
    return json_util.loads(text, json_options=_OPTIONS)


def is_time(bound: Bound) -> bool:
    """Return whether the cursor is a time, so that no transaction can still commit below a bound in the past."""
    return isinstance(value_of(bound[0] or "null"), datetime)


def kinds_of(value: Any) -> list[str]:
    """Return the types that the server compares with this value; none: it cannot be a cursor."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float | Decimal128):
        return _NUMBERS
    return ["date"] if isinstance(value, datetime) else ["string"] if isinstance(value, str) else (
        ["objectId"] if isinstance(value, ObjectId) else []
    )  # fmt: skip


def of_other_kinds(cursor: CursorConfig, kinds: list[str]) -> Query:
    """Match documents whose primary is not comparable with the others: they would never be read."""
    name = cursor.primary
    # a list is compared item by item
    return {"$or": [{name: {"$type": "array"}}, {name: {"$exists": True, "$not": {"$type": [*kinds, "null"]}}}]}


def above(cursor: CursorConfig, after: Bound | None) -> Query:
    """Match documents above a bound; not those without a primary."""
    if not after:
        return {cursor.primary: {"$ne": None}}
    value = value_of(after[0] or "null")
    secondary = _compared("$gt", cursor.secondary, after[1])
    return {"$or": [{cursor.primary: {"$gt": value}}, {cursor.primary: value, **secondary}]}


def up_to(cursor: CursorConfig, to: Bound) -> Query:
    value = value_of(to[0] or "null")
    secondary = _compared("$lte", cursor.secondary, to[1])
    return {"$or": [{cursor.primary: {"$lt": value}}, {cursor.primary: value, **secondary}]}


def _compared(operator: str, name: str, text: str | None) -> Query:
    """Compare in the server's order over all types, in which null is the lowest."""
    value = None if text is None else value_of(text)
    return {"$expr": {operator: [{"$ifNull": [f"${name}", None]}, {"$literal": value}]}}


def in_range(cursor: CursorConfig, wanted: Range) -> Query:
    missing = {cursor.primary: None}
    if wanted.to == LOWEST:
        return missing
    if wanted.after is None:
        return {"$or": [missing, up_to(cursor, wanted.to)]}
    lower = _late(cursor, wanted.after) if wanted.after and cursor.overlap else above(cursor, wanted.after)
    return {"$and": [lower, up_to(cursor, wanted.to)]}


def _late(cursor: CursorConfig, after: Bound) -> Query:
    """Match documents above the bound minus the overlap: those committed late, and those already read."""
    value = value_of(after[0] or "null")
    if isinstance(value, datetime):
        return {cursor.primary: {"$gt": value - timedelta(seconds=cursor.overlap)}}
    if kinds_of(value) is not _NUMBERS:
        raise SourceError(
            f"overlap: the cursor {cursor.primary} has values of the type {type(value).__name__}",
            hint="overlap requires a cursor of dates or numbers: remove it, or use such a cursor",
        )
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    # rounded down to an integer, which the server compares exactly
    return {cursor.primary: {"$gt": Int64(math.floor(number) - math.ceil(cursor.overlap))}}


def settled(cursor: CursorConfig, value: Any, at: datetime, settle_seconds: float) -> Query:
    """Match documents that can be a bound: not recent ones, nor ones in the future, which would hide earlier ones."""
    if isinstance(value, datetime):
        return {cursor.primary: {"$lte": at.astimezone(UTC) - timedelta(seconds=settle_seconds)}}
    if kinds_of(value) is _NUMBERS:
        return {cursor.primary: {"$lt": math.inf}}
    return {}


def order(cursor: CursorConfig, direction: int) -> dict[str, int]:
    """Return the sort order, with `_id` at the end, so that it is unique."""
    return dict.fromkeys([*cursor.columns, "_id"], direction)
