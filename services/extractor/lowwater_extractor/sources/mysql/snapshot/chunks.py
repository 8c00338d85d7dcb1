"""Pieces of tables that are copied as units: ranges of the primary key, and what the `bounds` of a chunk say.

A key that begins with a whole number is cut by arithmetic; any other by walking along its index. The first piece has no
lower bound and the last no upper one, so that the pieces together are the table, whatever it was when it was cut.
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

#: ranges of numbers say nothing about how many rows are in them
NUMBER_CHUNKS_MAX = 1_000

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")

#: a literal of a key's column: `n` is a number as it is written, `t` a text, `x` bytes in hexadecimal
Literal = tuple[str, str]
Key = tuple[Literal, ...]


def literal(value: Literal) -> str:
    """For a statement. The letters say how it is written, so that nothing is taken for something else."""
    kind, text = value
    if kind == "n" and _NUMBER.fullmatch(text):
        return text
    if kind == "t":
        return f"'{escape_string(text)}'"
    if kind == "x" and re.fullmatch(r"(?:[0-9A-F]{2})*", text):
        return f"X'{text}'"
    raise CodecError(f"a chunk's bounds have a literal of kind {kind!r}", hint="ask for a new copy")


def key_letter(column: WireColumn) -> str:
    """The letter for a key's column; empty where a literal would not compare as the key is sorted: labels, floats."""
    if column.type in (tm.TINY, tm.SHORT, tm.INT24, tm.LONG, tm.LONGLONG, tm.NEWDECIMAL, tm.YEAR):
        return "n"
    if column.type in (tm.DATE, tm.DATETIME2, tm.TIMESTAMP2, tm.TIME2):
        return "t"
    if column.type in tm.CHARACTER:
        return "x" if column.collation == BINARY_COLLATION else "t"
    return ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one chunk reads: rows from `from_key` on, up to but without `to_key`. None: no bound."""

    namespace: str
    table: str
    key: tuple[str, ...] = ()
    from_key: Key | None = None
    to_key: Key | None = None
    #: what must be visible to the reader: names where there are some, and file and offset
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
                hint="was it planned by a newer lowwater? upgrade Spark's side, or ask for a new copy",
            ) from error

    @property
    def relation(self) -> str:
        return quoted(self.namespace, self.table)

    @property
    def where(self) -> str:
        """Behind WHERE. Not `(a, b) >= (x, y)`, for which the server would read the whole index."""
        parts = []
        if self.from_key is not None:
            parts.append(_from(self.key, self.from_key))
        if self.to_key is not None:
            parts.append(_below(self.key, self.to_key))
        return " AND ".join(parts) or "TRUE"


def _from(key: Sequence[str], values: Key) -> str:
    """At or above: `a > x OR (a = x AND (b > y OR (b = y AND c >= z)))`, with `a >= x` in front for the index."""
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
    """Where the chunks but the first begin, of a whole number that goes from `low` to `high`, both included."""
    values = high - low + 1
    wanted = min(-(-rows // max(1, rows_per_chunk)), NUMBER_CHUNKS_MAX, values)
    return [low + values * number // wanted for number in range(1, wanted)]


def cut(whole: Bounds, cuts: Sequence[Key], rows: int) -> list[PlannedChunk]:
    """`cuts`: where the chunks but the first begin."""
    ends: list[Key | None] = [None, *cuts, None]
    key = whole.key[: len(cuts[0])] if cuts else whole.key
    made = [
        Bounds(whole.namespace, whole.table, key, low, high, whole.gtids, whole.file, whole.position)
        for low, high in pairwise(ends)
    ]
    return [PlannedChunk(bounds, -(-rows // len(made))) for bounds in made]


def walk_statement(whole: Bounds, kinds: Sequence[str], after: Key | None, step: int) -> str:
    """The key of the row that lies `step` rows further on."""
    columns = [
        f"HEX({quoted(name)})" if kind == "x" else quoted(name) for name, kind in zip(whole.key, kinds, strict=True)
    ]
    order = ", ".join(map(quoted, whole.key))
    where = _from(whole.key, after) if after is not None else "TRUE"
    return f"SELECT {', '.join(columns)} FROM {whole.relation} WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {step}"


def walked_key(row: Sequence[Any], kinds: Sequence[str]) -> Key:
    return tuple(zip(kinds, map(str, row), strict=True))
