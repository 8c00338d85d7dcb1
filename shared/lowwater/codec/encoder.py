"""One Avro encoder per table version: Python source is generated for its schema and compiled.

Generic Avro encoders walk the schema for each row, which is slow in Python. Here the columns are unrolled into one
expression, integers are encoded inline with the tables of `varint.py`, and nothing is looked up by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lowwater.codec import values, varint
from lowwater.codec.avro import OPS
from lowwater.codec.rules import ColumnRules, PublishedColumn, published
from lowwater.codec.table import ColumnKind, TableSchema
from lowwater.errors import CodecError, LowwaterError
from lowwater.records.ids import SchemaId
from lowwater.records.wire import header

Row = Sequence[Any]


class Body(Protocol):
    """Encodes a Change without its `seq`, which comes first. Rows have the source's columns, in the table's order."""

    def __call__(
        self, op: str, before: Row | None, after: Row | None, ts_us: int, unchanged: Sequence[str] = ()
    ) -> bytes: ...


WholeRow = Callable[[Row, int], bytes]
_Explain = Callable[[str, Row | None, Row | None, Exception], LowwaterError]

#: exceptions that a value which does not fit its type can cause
_ERRORS = (TypeError, ValueError, AttributeError, KeyError, ArithmeticError, struct.error, CodecError)

_PRESENT = b"\x02"
_ABSENT = b"\x00"
_MASK = varint.SMALL_END - 1
#: union branch and varint in one, for 0 … 16383
_NUMBERS = [_PRESENT + small for small in varint.SMALL]
#: union branch and the lowest fourteen bits of a longer varint
_NUMBERS_MORE = [_PRESENT + more for more in varint.MORE]
#: union branch and length in one, for lengths 0 … 8191
_LENGTHS = [_PRESENT + varint.long(n) for n in range(varint.SMALL_END // 2)]
_OPS = {op: varint.long(number) for number, op in enumerate(OPS)}

# z is the zig-zagged number, never below 0: one table look-up up to 14 bits, two up to 28; longer numbers, and values
# that do not fit, are passed to the writer
_WHOLE = (
    f"(N[z] if (z := {{v}} << 1 ^ {{v}} >> 63) < {1 << 14} else M[z & {_MASK}] + S[z >> 14] if z < {1 << 28}"
    " else P + {w}({v}))"
)
# present-day times in microseconds have 43 to 56 bits; a datetime is passed to the writer
_MICROS = (
    f"(M[z & {_MASK}] + Q[z >> 14 & {_MASK}] + Q[z >> 28 & {_MASK}] + S[z >> 42]"
    f" if type({{v}}) is int and {1 << 42} <= (z := {{v}} << 1 ^ {{v}} >> 63) < {1 << 56} else P + {{w}}({{v}}))"
)
# UTF-8 bytes of a log are copied, not decoded and encoded again
_UTF8 = "{v} if type({v}) is bytes else {v}.encode()"
_COUNTED = f"((L[n] if (n := len(b := {{b}})) < {varint.SMALL_END // 2} else P + long(n)) + b)"

#: inline code for non-null values of these kinds; other kinds call their writer
_INLINE: dict[ColumnKind, str] = {
    ColumnKind.INT32: _WHOLE,
    ColumnKind.INT64: _WHOLE,
    ColumnKind.STRING: _COUNTED.format(b=_UTF8),
    ColumnKind.JSON: _COUNTED.format(b=_UTF8),
    ColumnKind.BYTES: _COUNTED.format(b="{v}"),
    ColumnKind.TIMESTAMP: _MICROS,
    ColumnKind.TIMESTAMPTZ: _MICROS,
}


def _row_text(
    letter: str, columns: Sequence[PublishedColumn], width: int, *, whole: bool
) -> tuple[list[str], list[str], list[str]]:
    """The variables of a row, the statements that mask them, and the expression of each published column.

    In a whole row, columns that the source declares NOT NULL are not checked for null; a null there raises an error.
    """
    names = ["_"] * width
    masks: list[str] = []
    parts: list[str] = []
    for i, column in enumerate(columns):
        v = f"{letter}{i}"
        names[column.place] = v
        if column.change is not None:
            masks.append(f"        {v} = m{i}({v})")
        written = _INLINE.get(column.column.type.kind, "(P + {w}({v}))").format(v=v, w=f"w{i}")
        is_never_null = whole and not column.column.nullable and column.change is None
        parts.append(written if is_never_null else f"(Z if {v} is None else {written})")
    return names, masks, parts


def _source_text(columns: Sequence[PublishedColumn], width: int) -> str:
    """Source of `body`, for any change, and of `insert`, `update` and `delete`, for whole rows without branches."""
    names_a, masks_a, parts_any = _row_text("a", columns, width, whole=False)
    _, _, parts_a = _row_text("a", columns, width, whole=True)
    names_b, masks_b, parts_b = _row_text("b", columns, width, whole=True)
    # the rules may drop every column
    row_any, row_a, row_b = (", ".join(parts) or "b''" for parts in (parts_any, parts_a, parts_b))
    ts = _MICROS.format(v="ts_us", w="long").replace("M[", "Q[", 1).replace("P + ", "")
    # the changes of a transaction often have the same time
    time = ["        global T, TB", "        if ts_us != T:", f"            TB = {ts}", "            T = ts_us"]

    def function(head: str, lines: list[str], result: str, explained: str) -> list[str]:
        tail = ["    except ERRORS as error:", f"        raise explain({explained}, error) from error"]
        return [head, "    try:", *time, *lines, f"        return {result}", *tail]

    one = [f"        [{', '.join(names_a)}] = row", *masks_a]
    both = [f"        [{', '.join(names_a + names_b)}] = rows", *masks_a, *masks_b]
    lines = [
        "def write_row(row):",
        *(line[4:] for line in one),
        f"    return J(({row_any},))",
        *function(
            "def body(op, before, after, ts_us, unchanged=()):",
            [],
            "J((O[op], Z if before is None else P + write_row(before), Z if after is None else P + write_row(after),"
            " names(unchanged) if unchanged else Z, TB))",
            "op, before, after",
        ),
        *function("def insert(row, ts_us):", one, f"J((C, {row_a}, Z, TB))", "'c', None, row"),
        *function("def delete(row, ts_us):", one, f"J((D, {row_a}, Z, Z, TB))", "'d', row, None"),
        *function(
            "def update(rows, ts_us):",
            both,
            f"J((U, {row_a}, P, {row_b}, Z, TB))",
            f"'u', rows[:{width}], rows[{width}:]",
        ),
    ]
    return "\n".join(lines)


def truncate_body(ts_us: int) -> bytes:
    """An encoded truncate without its `seq`; it does not depend on the columns of the table."""
    return _OPS["t"] + _ABSENT + _ABSENT + _ABSENT + varint.long(ts_us)


def _names(unchanged: Sequence[str]) -> bytes:
    return varint.long(len(unchanged)) + b"".join(map(values.text, unchanged)) + b"\x00"


def _compile(columns: Sequence[PublishedColumn], width: int, explain: _Explain) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "N": _NUMBERS, "M": _NUMBERS_MORE, "S": varint.SMALL, "Q": varint.MORE, "L": _LENGTHS, "O": _OPS,
        "P": _PRESENT, "Z": _ABSENT, "J": b"".join, "T": None, "TB": b"", "long": varint.long, "names": _names,
        "C": _OPS["c"] + _ABSENT + _PRESENT, "U": _OPS["u"] + _PRESENT, "D": _OPS["d"] + _PRESENT,
        "ERRORS": _ERRORS, "explain": explain,
    }  # fmt: skip
    for i, column in enumerate(columns):
        scope[f"w{i}"] = values.writer(column.column.type)
        scope[f"m{i}"] = column.change
    # safe: the source consists of numbers and our own templates, and contains no name of a table or column
    exec(_source_text(columns, width), scope)
    return scope


class TableEncoder:
    """Encodes the changes of one table version, as the source returns them, in Avro."""

    __slots__ = ("_source", "body", "columns", "delete", "header", "insert", "table", "update")

    def __init__(self, table: TableSchema, schema_id: SchemaId, rules: ColumnRules | None = None) -> None:
        #: the table as it is published, and the origin of each of its columns
        self.table, self.columns = published(table, rules or ColumnRules())
        self._source = table
        compiled = _compile(self.columns, len(table.columns), self._explain)
        self.body: Body = compiled["body"]
        #: faster functions for whole rows; `update` takes the values of both rows in one sequence
        self.insert: WholeRow = compiled["insert"]
        self.update: WholeRow = compiled["update"]
        self.delete: WholeRow = compiled["delete"]
        self.header = header(schema_id)

    def value(
        self,
        seq: int,
        op: str,
        before: Row | None,
        after: Row | None,
        ts_us: int,
        unchanged: Sequence[str] = (),
    ) -> bytes:
        """A whole message value."""
        return self.header + varint.long(seq) + self.body(op, before, after, ts_us, unchanged)

    def _explain(self, op: str, before: Row | None, after: Row | None, error: Exception) -> LowwaterError:
        """The error with the name of the column. It is searched for only after an error."""
        where = self.table.full_name
        hint = getattr(error, "hint", None) or "check the table's version against the row"
        if op not in _OPS:
            return CodecError(f"{where}: no such operation: {op!r}", source=self.table.source)
        for row in (before, after):
            if row is None:
                continue
            if len(row) != len(self._source.columns):
                what = f"{where}: a row of {len(row)} values for {len(self._source.columns)} columns"
                return CodecError(what, source=self.table.source, hint=hint)
            for column in self.columns:
                value = row[column.place]
                try:
                    shown = value if column.change is None else column.change(value)
                    if shown is not None:
                        values.writer(column.column.type)(shown)
                except _ERRORS as cause:
                    what = f"{where}.{column.column.name} ({column.column.type.kind}): {cause}"
                    return CodecError(what, source=self.table.source, hint=hint)
        return CodecError(f"{where}: {self._null_in(before, after) or error}", source=self.table.source, hint=hint)

    def _null_in(self, *rows: Row | None) -> str:
        """Finds a null in a NOT NULL column of a whole row, after each single value was encoded without error."""
        for row in rows:
            for column in self.columns:
                if row is not None and row[column.place] is None and not column.column.nullable:
                    return f"{column.column.name} is null, but the source declares it NOT NULL"
        return ""
