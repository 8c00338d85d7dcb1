"""Fills columns that are not in the log record from earlier versions of the row, also across a changed key.

Only the final rows are filled. For each such column, it finds the last change of the key that either contains the
column or gave the row this key; in the second case the search continues with the old key. So the number of iterations
is how often a row changed its key, not how often it was changed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lowwater.lake.read.scans import text
from lowwater.lake.schema.adapt import UNCHANGED, alias, before_alias

if TYPE_CHECKING:
    from lowwater.lake.read.state import Query


def filled_winners(query: Query) -> str:
    """SQL that selects the final rows, with all columns filled, from a temporary table."""
    con, key = query.scans.con, query.plan.key
    name = f"lowwater_{uuid.uuid4().hex}"
    columns = sorted({*query.columns, *key})
    cdc = list(dict.fromkeys(["_op", "_gsn", "_seq", UNCHANGED, *query.cdc]))
    con.execute(f"CREATE TEMP TABLE {name} AS SELECT *, {query.place} AS p FROM ({query.winners(cdc, columns)})")
    lacking = con.execute(f"SELECT DISTINCT unnest({UNCHANGED}) FROM {name}").fetchall()
    lacked = {str(row[0]) for row in lacking}
    for number in query.columns:
        if query.plan.union.columns[number].name in lacked and number not in key:
            _fill(query, name, number)
    items = ", ".join([*query.cdc, *map(alias, query.columns)])
    return f"SELECT {items} FROM {name}"


def _fill(query: Query, winners: str, number: int) -> None:
    con, key, value = query.scans.con, query.plan.key, alias(number)
    left_out = f"list_contains({UNCHANGED}, {text(query.plan.union.columns[number].name)})"
    # coalesce: null if the log record has all columns
    known = f"(NOT (_op = 'u' AND coalesce({left_out}, false)))"
    todo, found = f"{winners}_todo", f"{winners}_found"
    own = ", ".join(f"{alias(n)} AS k{n}" for n in key)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {todo} AS SELECT p AS target, p, {own} FROM {winners} WHERE {left_out}")
    con.execute(f"CREATE OR REPLACE TEMP TABLE {found} AS SELECT p AS target, {value} AS v FROM {winners} LIMIT 0")
    events = query.events([UNCHANGED], sorted({*key, number}), key)
    old = ", ".join(f"{before_alias(n)} AS o{n}" for n in key)
    stops = (
        f"SELECT {own}, {query.place} AS p, {known} AS known, CASE WHEN {known} THEN {value} END AS v, "
        f"{query.came_from} AS came_from, {old} "
        f"FROM ({events}) e WHERE ({known} OR {query.comes_from}) AND EXISTS (SELECT 1 FROM {todo} t WHERE "
        + " AND ".join(f"t.k{n} IS NOT DISTINCT FROM e.{alias(n)}" for n in key)
        + ")"
    )
    same = " AND ".join(f"t.k{n} IS NOT DISTINCT FROM s.k{n}" for n in key)
    of_base = " AND ".join(f"t.k{n} IS NOT DISTINCT FROM b.{alias(n)}" for n in key)
    base = query.base(sorted({*key, number}))
    hop = f"{winners}_hop"
    while True:
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {hop} AS SELECT t.target, {', '.join(f't.k{n}' for n in key)}, "
            f"arg_max(s, s.p) AS s FROM {todo} t LEFT JOIN ({stops}) s ON {same} AND s.p <= t.p "
            f"GROUP BY t.target, {', '.join(f't.k{n}' for n in key)}"
        )
        con.execute(f"INSERT INTO {found} SELECT target, s.v FROM {hop} WHERE s.known")
        con.execute(
            f"INSERT INTO {found} SELECT t.target, b.{value} FROM {hop} t JOIN ({base}) b ON {of_base} WHERE s IS NULL"
        )
        moved = ", ".join(f"s.o{n} AS k{n}" for n in key)
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {todo} AS SELECT target, s.came_from AS p, {moved} FROM {hop} "
            "WHERE NOT s.known"
        )
        [(left,)] = con.execute(f"SELECT count(*) FROM {todo}").fetchall()
        if not left:
            break
    con.execute(f"UPDATE {winners} SET {value} = f.v FROM {found} f WHERE {winners}.p = f.target")
    for table in (todo, found, hop):
        con.execute(f"DROP TABLE {table}")
