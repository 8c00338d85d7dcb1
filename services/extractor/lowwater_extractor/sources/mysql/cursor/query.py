"""Builds the SQL statements of the mode `incremental`, without executing them.

A table is read in the order (primary, secondary). Rows with a null in the primary come before all others; nulls in the
secondary sort last. Bounds are the server's text, written as literals of the column's kind.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.snapshot.chunks import key_letter, literal
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.table_map import WireColumn

#: maximum offset of local time ahead of UTC
_AHEAD = dt.timedelta(hours=14)
#: maximum offset of local time behind UTC
_BEHIND = dt.timedelta(hours=12)
_NUMBERS = (tm.TINY, tm.SHORT, tm.INT24, tm.LONG, tm.LONGLONG, tm.NEWDECIMAL, tm.YEAR)
_INSTANTS = (tm.TIMESTAMP2, tm.DATETIME2)

AT = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"


@dataclass(frozen=True, slots=True)
class Cursored:
    """A table or view and its cursor columns."""

    namespace: str
    table: str
    #: one or two cursor columns
    cursor: tuple[WireColumn, ...]
    key: tuple[str, ...]
    #: whether the secondary may be null
    is_secondary_nullable: bool = False
    #: each sync reads again rows this far below its lower bound
    overlap: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.table}"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.cursor)

    @property
    def primary(self) -> str:
        return self.cursor[0].name

    @property
    def tells_time(self) -> bool:
        """Whether the age of a value shows that no transaction can still write below it. For a DATETIME it does not,
        because its time zone is unknown."""
        return self.cursor[0].type in (tm.TIMESTAMP2, tm.DATE)

    @property
    def relation(self) -> str:
        return quoted(self.namespace, self.table)

    def literal(self, place: int, text: str) -> str:
        return literal((key_letter(self.cursor[place]), text))


def last_row(table: Cursored, after: Bound | None, at_us: int, settle_seconds: float) -> str:
    """Select the cursor columns of the last row above `after` that is old enough to be read."""
    parts = [*_above(table, after), _past(table, at_us, settle_seconds)]
    columns = (
        f"HEX({quoted(c.name)})" if key_letter(c) == "x" else f"CAST({quoted(c.name)} AS CHAR)" for c in table.cursor
    )
    order = ", ".join(f"{part} DESC" for part in _order(table))
    return f"SELECT {', '.join(columns)} FROM {table.relation} WHERE {' AND '.join(parts)} ORDER BY {order} LIMIT 1"


def rows(table: Cursored, expressions: list[str], wanted: Range) -> str:
    """Select the rows of a range, in a deterministic order."""
    order = ", ".join(dict.fromkeys((*_order(table), *map(quoted, table.key))))
    return f"SELECT {', '.join(expressions)} FROM {table.relation} WHERE {in_range(table, wanted)} ORDER BY {order}"


def _order(table: Cursored) -> list[str]:
    """Return the ORDER BY expressions. The server sorts nulls first, so the secondary needs IS NULL before it."""
    found = [quoted(table.primary)]
    if len(table.cursor) > 1:
        secondary = quoted(table.cursor[1].name)
        found += [f"({secondary} IS NULL)", secondary] if table.is_secondary_nullable else [secondary]
    return found


def in_range(table: Cursored, wanted: Range) -> str:
    primary = quoted(table.primary)
    if wanted.to == LOWEST:
        return f"{primary} IS NULL"
    if wanted.after is None:
        return f"({primary} IS NULL OR {_up_to(table, wanted.to)})"
    above = [_late(table, wanted.after)] if wanted.after and table.overlap else _above(table, wanted.after)
    return " AND ".join([*above, _up_to(table, wanted.to)])


def can_overlap(table: Cursored) -> bool:
    return table.cursor[0].type in (*_NUMBERS, *_INSTANTS, tm.DATE)


def _late(table: Cursored, after: Bound) -> str:
    """Condition for rows above the bound minus the overlap: late rows, and rows that were already read."""
    assert after[0] is not None
    value, type_ = table.literal(0, after[0]), table.cursor[0].type
    if type_ in _INSTANTS:
        moved = f"{value} - INTERVAL {math.ceil(table.overlap * 1e6)} MICROSECOND"
    elif type_ == tm.DATE:
        moved = f"{value} - INTERVAL {math.ceil(table.overlap / 86_400)} DAY"
    else:
        # as decimal, because the result may be negative for an unsigned column
        moved = f"CAST({value} AS DECIMAL(65, 30)) - {math.ceil(table.overlap)}"
    return f"{quoted(table.primary)} > {moved}"


def _above(table: Cursored, after: Bound | None) -> list[str]:
    primary = quoted(table.primary)
    if not after:
        return [f"{primary} IS NOT NULL"]
    assert after[0] is not None
    value = table.literal(0, after[0])
    if len(table.cursor) == 1 or after[1] is None:
        return [f"{primary} > {value}"]
    secondary, second = quoted(table.cursor[1].name), table.literal(1, after[1])
    # the first condition allows an index scan: the server does not derive it from the second
    return [f"{primary} >= {value}", f"({primary} > {value} OR {secondary} > {second} OR {secondary} IS NULL)"]


def _up_to(table: Cursored, to: Bound) -> str:
    primary = quoted(table.primary)
    assert to[0] is not None
    value = table.literal(0, to[0])
    if len(table.cursor) == 1 or to[1] is None:
        return f"{primary} <= {value}"
    secondary, second = quoted(table.cursor[1].name), table.literal(1, to[1])
    return f"({primary} <= {value} AND ({primary} < {value} OR {secondary} <= {second}))"


def _past(table: Cursored, at_us: int, settle_seconds: float) -> str:
    """Exclude values that must not become a bound: recent ones, and future ones, which would hide rows below them."""
    primary = quoted(table.primary)
    now = dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC).replace(tzinfo=None)
    settled = now - dt.timedelta(seconds=settle_seconds)
    match table.cursor[0].type:
        case tm.TIMESTAMP2:
            return f"{primary} <= '{settled:%Y-%m-%d %H:%M:%S.%f}'"
        case tm.DATE:
            # a day that has ended in every time zone
            return f"{primary} < '{settled - _BEHIND:%Y-%m-%d}'"
        case tm.DATETIME2:
            return f"{primary} <= '{now + _AHEAD:%Y-%m-%d %H:%M:%S.%f}'"
        case _:
            return "TRUE"
