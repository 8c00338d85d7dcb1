"""Compares a table of the lake with what the database had, every row and every value. No I/O but the lake's.

Values are canonical: numbers exact, floats by their bits (NaN equals NaN), times as microseconds, JSON by its meaning.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lowwater.lake.schema.columns import lake_name
from tests.differential.workload import Row, TableState

#: what Arrow holds further than Python's types reach
_AS_INT: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_timestamp, pa.int64()),
    (pa.types.is_time64, pa.int64()),
    (pa.types.is_date32, pa.int32()),
)


def same(value: Any) -> Any:
    return value


def float64(value: Any) -> Any:
    if value is None or value != value:
        return value if value is None else "NaN"
    return struct.pack(">d", value) if isinstance(value, (int, float)) else value


def float32(value: Any) -> Any:
    if value is None or value != value:
        return value if value is None else "NaN"
    return struct.pack(">f", value) if isinstance(value, (int, float)) else value


def decimal(value: Any) -> Any:
    """Whole numbers of the lake are decimals without a fraction: equal numbers are equal."""
    return Decimal(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value


def nested(value: Any) -> Any:
    return tuple(nested(one) for one in value) if isinstance(value, (list, tuple)) else value


def of_json(text: Any) -> Any:
    """By meaning: objects are sets of fields; 1.0 and 1 differ, 1.0 and 1.00 do not."""
    if not isinstance(text, (str, bytes)):
        return text

    def number(digits: str) -> Any:
        return ("number", Decimal(digits).normalize())

    def meant(value: Any) -> Any:
        if isinstance(value, list):
            return ("list", *map(meant, value))
        # 1, 1.0 and true are equal to Python
        return ("bool", value) if isinstance(value, bool) else value

    def fields(pairs: list[tuple[str, Any]]) -> Any:
        return ("fields", frozenset(Counter((name, meant(value)) for name, value in pairs).items()))

    try:
        return meant(json.loads(text, parse_float=number, parse_int=int, object_pairs_hook=fields))
    except ValueError:
        return ("not JSON", text)


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Python values; times and dates as the numbers that they are stored as."""
    for is_it, as_ in _AS_INT:
        if is_it(column.type):
            return list(column.cast(as_).to_pylist())
    return list(column.to_pylist())


def rows_of(table: pa.Table, wanted: TableState) -> Counter[Row]:
    """The lake's rows with the database's columns. One that the lake has not met yet is null."""
    if wanted.rows_of_lake is not None:
        return wanted.rows_of_lake(table)
    columns: list[list[Any]] = []
    for name, from_lake in zip(wanted.columns, wanted.from_lake, strict=True):
        seen = lake_name(name)
        if seen in table.column_names:
            columns.append([from_lake(value) for value in plain(table[seen])])
        else:
            columns.append([None] * table.num_rows)
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def without(state: TableState, names: Collection[str]) -> TableState:
    """The same table as if it did not have these columns."""
    kept = [i for i, name in enumerate(state.columns) if name not in names]
    rows: Counter[Row] = Counter()
    for row, count in state.rows.items():
        rows[tuple(row[i] for i in kept)] += count
    columns, makes = tuple(state.columns[i] for i in kept), tuple(state.from_lake[i] for i in kept)
    return replace(state, columns=columns, rows=rows, from_lake=makes)


def difference(table: pa.Table, wanted: TableState, rows_max: int = 6) -> str:
    """Empty if they are equal; else rows that only one of them has, and the columns in which near ones differ."""
    found = rows_of(table, wanted)
    if found == wanted.rows:
        return ""
    missing, extra = wanted.rows - found, found - wanted.rows
    lines = [f"{missing.total()} rows are missing, {extra.total()} are not the database's (of {wanted.rows.total()})"]
    missing_columns = [name for name in wanted.columns if lake_name(name) not in table.column_names]
    if missing_columns and wanted.rows_of_lake is None:
        lines.append(f"the lake has no column {', '.join(missing_columns)}")
    lines.append(f"columns  {', '.join(wanted.columns)}")
    for what, rows in (("missing", missing), ("extra", extra)):
        lines += [f"{what:8} {_shown(row)}" for row in list(rows.elements())[:rows_max]]
    for row in list(missing)[:rows_max]:
        near = min(extra, key=lambda other: sum(a != b for a, b in zip(row, other, strict=True)), default=None)
        if near is not None:
            differ = [(n, a, b) for n, a, b in zip(wanted.columns, row, near, strict=True) if a != b]
            if len(differ) < len(row):
                lines += [f"near     {n}: database {_cut(a)}, lake {_cut(b)}" for n, a, b in differ[:4]]
    return "\n".join(lines)


def _shown(row: Row) -> str:
    return "(" + ", ".join(_cut(value) for value in row) + ")"


def _cut(value: Any) -> str:
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(_cut, value))) + "}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}… ({len(text)} characters)"
