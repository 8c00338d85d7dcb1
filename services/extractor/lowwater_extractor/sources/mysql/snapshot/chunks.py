"""Splits tables into chunks, ranges of the primary key, and defines the `bounds` of a chunk.

A key whose first column is an integer is split by arithmetic, any other by walking along its index. The first chunk has
no lower bound and the last no upper bound, so the chunks cover the whole table even if it changes after planning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from pymysql.converters import escape_string

from lowwater.errors import CodecError
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.types import BINARY_COLLATION
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.table_map import WireColumn

#: limits the number of ranges, because the rows in a range are unknown
NUMBER_CHUNKS_MAX = 1_000

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")

#: (kind, text) of a key value: `n` is a number, `t` a text, `x` bytes in hexadecimal
Literal = tuple[str, str]
Key = tuple[Literal, ...]


def literal(value: Literal) -> str:
    """Return the SQL literal of a key value. Raises CodecError if the text does not match its kind."""
    kind, text = value
    if kind == "n" and _NUMBER.fullmatch(text):
        return text
    if kind == "t":
        return f"'{escape_string(text)}'"
    if kind == "x" and re.fullmatch(r"(?:[0-9A-F]{2})*", text):
        return f"X'{text}'"
    raise CodecError(f"a chunk's bounds have a literal of kind {kind!r}", hint="request a new copy")


def key_letter(column: WireColumn) -> str:
    """Return the literal kind of a key column; empty if literals would not compare in key order (labels, floats)."""
    if column.type in (tm.TINY, tm.SHORT, tm.INT24, tm.LONG, tm.LONGLONG, tm.NEWDECIMAL, tm.YEAR):
        return "n"
    if column.type in (tm.DATE, tm.DATETIME2, tm.TIMESTAMP2, tm.TIME2):
        return "t"
    if column.type in tm.CHARACTER:
        return "x" if column.collation == BINARY_COLLATION else "t"
    return ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rows of one chunk: from `from_key` (inclusive) to `to_key` (exclusive). None: no bound."""

    namespace: str
    table: str
    key: tuple[str, ...] = ()
    from_key: Key | None = None
    to_key: Key | None = None
    #: log position that must be visible to the reader: GTIDs if the server has them, and file and offset
    gtids: str | None = None
    file: str = ""
    position: int = 0

    def encode(self) -> bytes:
        return json.dumps({name: value for name, value in asdict(self).items() if value not in (None, "", ())}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Bounds:
        try:
            found: dict[str, Any] = json.loads(data)
            found["key"] = tuple(found.get("key", ()))
            for name in ("from_key", "to_key"):
                if name in found:
                    found[name] = tuple((kind, text) for kind, text in found[name])
            return cls(**found)
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                f"a chunk's bounds cannot be read: {error}",
                hint="was it planned by a newer lowwater? upgrade lowwater_spark, or request a new copy",
            ) from error

    @property
    def relation(self) -> str:
        return quoted(self.namespace, self.table)

    @property
    def where(self) -> str:
        """The condition after WHERE. Not `(a, b) >= (x, y)`, for which the server would scan the whole index."""
        parts = []
        if self.from_key is not None:
            parts.append(_from(self.key, self.from_key))
        if self.to_key is not None:
            parts.append(_below(self.key, self.to_key))
        return " AND ".join(parts) or "TRUE"


def _from(key: Sequence[str], values: Key) -> str:
    """At or above: `a > x OR (a = x AND (b > y OR (b = y AND c >= z)))`, preceded by `a >= x` for the index."""
    column, value = quoted(key[0]), literal(values[0])
    if len(key) == 1:
        return f"{column} >= {value}"
    return f"({column} >= {value} AND ({column} > {value} OR {_from(key[1:], values[1:])}))"


def _below(key: Sequence[str], values: Key) -> str:
    column, value = quoted(key[0]), literal(values[0])
    if len(key) == 1:
        return f"{column} < {value}"
    return f"({column} <= {value} AND ({column} < {value} OR {_below(key[1:], values[1:])}))"


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    bounds: Bounds
    rows_estimate: int


def number_cuts(low: int, high: int, rows: int, rows_per_chunk: int) -> list[int]:
    """Return the first values of all chunks except the first, for integers from `low` to `high` inclusive."""
    values = high - low + 1
    wanted = min(-(-rows // max(1, rows_per_chunk)), NUMBER_CHUNKS_MAX, values)
    return [low + values * number // wanted for number in range(1, wanted)]


def cut(whole: Bounds, cuts: Sequence[Key], rows: int) -> list[PlannedChunk]:
    """Split a table. `cuts`: the first keys of all chunks except the first."""
    ends: list[Key | None] = [None, *cuts, None]
    key = whole.key[: len(cuts[0])] if cuts else whole.key
    made = [
        Bounds(whole.namespace, whole.table, key, low, high, whole.gtids, whole.file, whole.position)
        for low, high in pairwise(ends)
    ]
    return [PlannedChunk(bounds, -(-rows // len(made))) for bounds in made]


def walk_statement(whole: Bounds, kinds: Sequence[str], after: Key | None, step: int) -> str:
    """Return a query of the key that is `step` rows after `after`."""
    columns = [
        f"HEX({quoted(name)})" if kind == "x" else quoted(name) for name, kind in zip(whole.key, kinds, strict=True)
    ]
    order = ", ".join(map(quoted, whole.key))
    where = _from(whole.key, after) if after is not None else "TRUE"
    return f"SELECT {', '.join(columns)} FROM {whole.relation} WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {step}"


def walked_key(row: Sequence[Any], kinds: Sequence[str]) -> Key:
    return tuple(zip(kinds, map(str, row), strict=True))
