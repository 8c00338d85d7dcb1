"""Builds the SQL statements of the mode `incremental`, without executing them.

A table is read in the order (primary, secondary), the order of an index on both: nulls in the secondary sort last.
Rows with a null in the primary come before all others. Bounds are untyped literals, which the server converts to the
type of the compared column and compares in that type's order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from psycopg import sql

from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range

#: maximum offset of local time ahead of UTC
_AHEAD_HOURS = 14
#: maximum offset of local time behind UTC
_BEHIND_HOURS = 12

#: expression for a bound minus the overlap, by type
_OVERLAPS = {
    "timestamptz": "({}::timestamptz - make_interval(secs => {}))",
    "timestamp": "({}::timestamp - make_interval(secs => {}))",
    "date": "({}::date - {})",
    "int2": "({}::int8 - {})",
    "int4": "({}::int8 - {})",
    "int8": "({}::int8 - {})",
    "numeric": "({}::numeric - {})",
    "float4": "({}::float8 - {})",
    "float8": "({}::float8 - {})",
}
_WHOLE = ("date", "int2", "int4", "int8")

SERVER_CURSOR = sql.Identifier("lowwater_sync")

#: the time of the visible data: now on a primary, the last replayed commit on a standby
AT = sql.SQL("""
SELECT (extract(epoch FROM at) * 1000000)::int8, at FROM (
    SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_xact_replay_timestamp(), 'epoch') ELSE now() END) t(at)
""")


@dataclass(frozen=True, slots=True)
class Cursored:
    """A relation and its cursor columns."""

    namespace: str
    table: str
    #: pg_class.relkind: r, p, v, m or f
    kind: str
    primary: str
    secondary: str
    key: tuple[str, ...]
    #: type of the primary column, domains resolved
    type_name: str
    #: each sync reads again rows this far below its lower bound
    overlap: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.table}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.primary, self.secondary) if self.secondary else (self.primary,)

    @property
    def tells_time(self) -> bool:
        """Whether the age of a value shows that no transaction can still write below it. For a timestamp without time
        zone it does not, because its zone is unknown."""
        return self.type_name in ("timestamptz", "date")

    @property
    def relation(self) -> sql.Composable:
        """The relation after FROM. Rows of inheriting tables belong to those tables (ONLY)."""
        return sql.SQL("ONLY {}" if self.kind == "r" else "{}").format(sql.Identifier(self.namespace, self.table))


def last_row(table: Cursored, after: Bound | None, at: str, settle_seconds: float) -> sql.Composed:
    """Select the cursor columns of the last row above `after` that is old enough to be read."""
    parts = [*_above(table, after), _past(table, at, settle_seconds)]
    return sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT 1").format(
        sql.SQL(", ").join(map(sql.Identifier, table.columns)),
        table.relation,
        sql.SQL(" AND ").join(parts),
        sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in table.columns),
    )


def rows(table: Cursored, columns: list[str], wanted: Range) -> sql.Composed:
    """Declare a server-side cursor for the rows of a range, in a deterministic order."""
    return sql.SQL("DECLARE {} NO SCROLL CURSOR FOR SELECT {} FROM {} WHERE {} ORDER BY {}").format(
        SERVER_CURSOR,
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        table.relation,
        in_range(table, wanted),
        sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys((*table.columns, *table.key)))),
    )


def in_range(table: Cursored, wanted: Range) -> sql.Composable:
    primary = sql.Identifier(table.primary)
    if wanted.to == LOWEST:
        return sql.SQL("{} IS NULL").format(primary)
    if wanted.after is None:
        return sql.SQL("({} IS NULL OR {})").format(primary, _up_to(table, wanted.to))
    above = [_late(table, wanted.after)] if wanted.after and table.overlap else _above(table, wanted.after)
    return sql.SQL(" AND ").join([*above, _up_to(table, wanted.to)])


def can_overlap(type_name: str) -> bool:
    return type_name in _OVERLAPS


def _late(table: Cursored, after: Bound) -> sql.Composable:
    """Condition for rows above the bound minus the overlap: late rows, and rows that were already read."""
    far = math.ceil(table.overlap / 86_400) if table.type_name == "date" else table.overlap
    far = math.ceil(far) if table.type_name in _WHOLE else far
    shifted = sql.SQL(_OVERLAPS[table.type_name]).format(sql.Literal(after[0]), sql.Literal(far))
    return sql.SQL("{} > {}").format(sql.Identifier(table.primary), shifted)


def _above(table: Cursored, after: Bound | None) -> list[sql.Composable]:
    primary = sql.Identifier(table.primary)
    if not after:
        return [sql.SQL("{} IS NOT NULL").format(primary)]
    value = sql.Literal(after[0])
    if not table.secondary or after[1] is None:
        return [sql.SQL("{} > {}").format(primary, value)]
    # the first condition allows an index scan: the server does not derive it from the second
    return [
        sql.SQL("{} >= {}").format(primary, value),
        sql.SQL("({p} > {v} OR {s} > {w} OR {s} IS NULL)").format(
            p=primary, v=value, s=sql.Identifier(table.secondary), w=sql.Literal(after[1])
        ),
    ]


def _up_to(table: Cursored, to: Bound) -> sql.Composable:
    primary, value = sql.Identifier(table.primary), sql.Literal(to[0])
    if not table.secondary or to[1] is None:
        return sql.SQL("{} <= {}").format(primary, value)
    return sql.SQL("({p} <= {v} AND ({p} < {v} OR {s} <= {w}))").format(
        p=primary, v=value, s=sql.Identifier(table.secondary), w=sql.Literal(to[1])
    )


def _past(table: Cursored, at: str, settle_seconds: float) -> sql.Composable:
    """Exclude values that must not become a bound: recent ones, and future ones, which would hide rows below them."""
    primary = sql.Identifier(table.primary)
    settled = sql.SQL("{}::timestamptz - make_interval(secs => {})").format(
        sql.Literal(at), sql.Literal(settle_seconds)
    )
    match table.type_name:
        case "timestamptz":
            return sql.SQL("{} <= {}").format(primary, settled)
        case "date":
            # a day that has ended in every time zone
            day = sql.SQL("(({}) AT TIME ZONE 'UTC' - make_interval(hours => {}))::date")
            return sql.SQL("{} < {}").format(primary, day.format(settled, sql.Literal(_BEHIND_HOURS)))
        case "timestamp":
            latest = sql.SQL("{}::timestamptz AT TIME ZONE 'UTC' + make_interval(hours => {})")
            return sql.SQL("{} <= {}").format(primary, latest.format(sql.Literal(at), sql.Literal(_AHEAD_HOURS)))
        case "float4" | "float8" | "numeric":
            # excludes Infinity and NaN, which sorts after it
            return sql.SQL("{} < 'Infinity'").format(primary)
        case _:
            return sql.SQL("true")
