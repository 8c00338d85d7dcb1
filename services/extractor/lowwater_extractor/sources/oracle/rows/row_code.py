"""Code generation for the fast decoders of one table version: the expressions that read its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowwater_extractor.sources.oracle.charsets import NOT_ASCII, codec_of
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.redo.layout import VECTOR_HEAD
from lowwater_extractor.sources.oracle.rows import time_values
from lowwater_extractor.sources.oracle.rows.number_values import Decode, Kept
from lowwater_extractor.sources.oracle.rows.values import decoder
from lowwater_extractor.sources.oracle.types import CHARACTERS, OracleColumn

#: sets `a`, the position of the next field, from the end `e` of this one
_NEXT = "a = e + 3 & -4"
#: the undo, whose F2 is at `f`, is one part of several, or not of a row: not for the fast path
IS_PART = "d[f + 20] & 7 or d[f + 21] & 1 or d[f + 16] != 11 or d[f + 17] != 1"
#: inlined `time_values.date`
_DATE = "DAYS[d[a:a + 4]] + HOURS[d[a + 4]] + MINUTES[d[a + 5]] + SECONDS[d[a + 6]]"


class RowValues:
    """The expressions that decode the columns, and the scope that they use."""

    def __init__(self, version: TableVersion) -> None:
        self.scope: dict[str, Any] = {
            "DAYS": time_values.DAYS, "HOURS": time_values.HOURS, "MINUTES": time_values.MINUTES,
            "SECONDS": time_values.SECONDS, "NANOS": time_values.NANOSECONDS,
        }  # fmt: skip
        self.width = len(version.stored)
        #: by segment column; hidden columns have none
        self.expressions: dict[int, str] = {}
        #: segment columns in the published order
        self.places = [c.number for c in version.visible]
        for column in version.visible:
            decode = decoder(column)
            assert decode is not None
            self.expressions[column.number] = self._expression(column, decode)

    def _expression(self, column: OracleColumn, decode: Decode) -> str:
        name = f"D{column.number}"
        kept = getattr(decode, "__self__", None)
        self.scope[name] = kept if isinstance(kept, Kept) else decode
        if isinstance(kept, Kept):
            return f"{name}[d[a:e]]"
        if decode is bytes:
            return "d[a:e]"
        if decode is time_values.date:
            return f"({_DATE} if e - a == 7 else {name}(d[a:e]))"
        if decode is time_values.timestamp:
            return f"({_DATE} + NANOS(d, a + 7)[0] // 1000 if e - a == 11 else {name}(d[a:e]))"
        if column.type in CHARACTERS and codec_of(column.charset) not in NOT_ASCII:
            return f"(b if (b := d[a:e]).isascii() else {name}(b))"
        return f"{name}(d[a:e])"

    def take(self, size: str, name: str, column: int) -> list[str]:
        """Code that reads a field of `size` bytes at `a` into variable `name`."""
        if column not in self.expressions:
            return [f"e = a + {size}", _NEXT]
        return [f"e = a + {size}", f"{name} = {self.expressions[column]} if {size} else None", _NEXT]

    def row(self, letter: str, known: set[int]) -> str:
        return ", ".join(f"{letter}{column}" if column in known else "None" for column in self.places)


def function(name: str, head: str, lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    # built only from numbers and templates in this package: it contains no names of tables or columns
    exec("\n".join([f"def {name}({head}):", *(f"    {line}" for line in lines)]), scope)
    made: Callable[..., Any] = scope[name]
    return made


def list_end(fields: int) -> int:
    """Bytes of a vector's header and size list."""
    return VECTOR_HEAD + (2 * fields + 4 & ~3)


def first_size(fields: int) -> bytes:
    """The first number of a size list of `fields` fields."""
    return (2 * fields + 2).to_bytes(2, "little")
