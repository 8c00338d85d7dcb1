"""The questions of the mode `incremental`. They are made here, nothing is asked.

A collection is read in the order (primary, secondary). Bounds are extended JSON, canonical, so that each keeps its
type. The server compares a primary only with values of its own kind: so all must be of one kind, and whoever has
another is refused by name. A secondary is compared by the order that the server has for all its types.
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
#: values that compare with one another, by the names of the server's types
_NUMBERS = ["int", "long", "double", "decimal"]


def bound_of(cursor: CursorConfig, document: Query) -> Bound:
    found = [document.get(name) for name in cursor.columns]
    return tuple(None if value is None else json_util.dumps(value, json_options=_OPTIONS) for value in found)


def value_of(text: str) -> Any:
    return json_util.loads(text, json_options=_OPTIONS)


def is_time(bound: Bound) -> bool:
    """Whether a value says by itself that no transaction can come below it any more."""
    return isinstance(value_of(bound[0] or "null"), datetime)


def kinds_of(value: Any) -> list[str]:
    """Types that the server compares this value with; none: it cannot be a cursor."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float | Decimal128):
        return _NUMBERS
    return ["date"] if isinstance(value, datetime) else ["string"] if isinstance(value, str) else (
        ["objectId"] if isinstance(value, ObjectId) else []
    )  # fmt: skip


def of_other_kinds(cursor: CursorConfig, kinds: list[str]) -> Query:
    """Documents whose primary cannot be compared with the others: they would never be read."""
    name = cursor.primary
    # a list is compared item by item
    return {"$or": [{name: {"$type": "array"}}, {name: {"$exists": True, "$not": {"$type": [*kinds, "null"]}}}]}


def above(cursor: CursorConfig, after: Bound | None) -> Query:
    """What lies above a bound; without the documents that have no primary."""
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
    """By the order over all types, in which nothing is lower than null."""
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
    """Documents that have come below the bound since it was read up to, and with them those that were read then."""
    value = value_of(after[0] or "null")
    if isinstance(value, datetime):
        return {cursor.primary: {"$gt": value - timedelta(seconds=cursor.overlap)}}
    if kinds_of(value) is not _NUMBERS:
        raise SourceError(
            f"overlap: the cursor {cursor.primary} has values of the type {type(value).__name__}",
            hint="overlap is for dates and numbers: take it out, or take such a cursor",
        )
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    # down to the next whole number: a type that the server compares exactly
    return {cursor.primary: {"$gt": Int64(math.floor(number) - math.ceil(cursor.overlap))}}


def settled(cursor: CursorConfig, value: Any, at: datetime, settle_seconds: float) -> Query:
    """What is not to be a bound yet: what is young, and what lies in the future, which would hide all before it."""
    if isinstance(value, datetime):
        return {cursor.primary: {"$lte": at.astimezone(UTC) - timedelta(seconds=settle_seconds)}}
    if kinds_of(value) is _NUMBERS:
        return {cursor.primary: {"$lt": math.inf}}
    return {}


def order(cursor: CursorConfig, direction: int) -> dict[str, int]:
    """With `_id` at the end: always the same, whatever is equal."""
    return dict.fromkeys([*cursor.columns, "_id"], direction)
