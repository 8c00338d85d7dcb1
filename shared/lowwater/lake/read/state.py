"""A table's rows at a gsn: the base, overlaid by the latest change of each key, with deletes and truncates applied.

DuckDB reads the files in two passes: the first finds the last place of each key (a number that increases with gsn and
seq), the second selects the rows at these places. Deletes and the old keys of changed keys have places, too.
Transactions with tangled keys are found first, and their changes are replaced: see `tangles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from lowwater.errors import LakeError
from lowwater.lake.moved_keys.query import Tangled, TangledSearch
from lowwater.lake.moved_keys.suspects import Suspects, find_suspects
from lowwater.lake.moved_keys.tangles import FROM, MAYBE
from lowwater.lake.read.fill import filled_winners
from lowwater.lake.read.scans import Scans, asking, connect, quoted
from lowwater.lake.read.state_plan import StatePlan
from lowwater.lake.schema.adapt import CDC_TYPES, alias, before_alias, convert
from lowwater.lake.schema.columns import CDC_FIELDS
from lowwater.lake.store.base import Store
from lowwater.lake.store.parquet_files import BATCH_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Query:
    """The SQL of one state, on one connection."""

    def __init__(self, scans: Scans, plan: StatePlan, cdc: Sequence[str], columns: Sequence[int]) -> None:
        self.scans, self.plan = scans, plan
        self.cdc, self.columns = list(cdc), list(columns)
        self._moves = False
        self._seq_bits = 0
        self._tangled: Tangled | None = None

    def sql(self) -> str:
        if not self.plan.key:
            return self._without_key()
        if not self._look():
            return self._base()
        may_fill = any(f.unchanged_rows for f in (*self.plan.changes, *self.plan.over))
        rows = filled_winners(self) if may_fill else self.winners(self.cdc, self.columns)
        if not self.plan.base:
            return rows
        touched = f"SELECT {self.keys} FROM ({self.key_places()})"
        if self._has_maybe:
            touched += f" UNION ALL SELECT {self.keys} FROM ({self._maybe()})"
        same = self.same("t", "b")
        return (
            f"({rows}) UNION ALL ({self._base()} WHERE NOT EXISTS "
            f"(SELECT 1 FROM (SELECT {self.keys} FROM ({touched}) GROUP BY ALL) t WHERE {same}))"
        )

    def same(self, one: str, other: str) -> str:
        """SQL condition: two rows have the same key."""
        return " AND ".join(f"{one}.{alias(n)} IS NOT DISTINCT FROM {other}.{alias(n)}" for n in self.plan.key)

    @property
    def keys(self) -> str:
        return ", ".join(alias(n) for n in self.plan.key)

    @property
    def place(self) -> str:
        """SQL of the place: an odd number for (gsn, seq). Even numbers are for deletes and old keys of changed keys."""
        return self.place_of("_seq")

    def place_of(self, seq: str) -> str:
        if (self.plan.gsn + 1).bit_length() + self._seq_bits + 1 < 63:
            return f"((((_gsn << {self._seq_bits}) | {seq}) << 1) | 1)"
        return f"((_gsn::HUGEINT * 4611686018427387904 + {seq}) * 2 + 1)"

    @property
    def moved(self) -> str:
        """SQL condition: an update that changed the key of its row. False if `before` has no key."""
        known = " OR ".join(f"{before_alias(n)} IS NOT NULL" for n in self.plan.key)
        other = " OR ".join(f"{before_alias(n)} IS DISTINCT FROM {alias(n)}" for n in self.plan.key)
        return f"(_op = 'u' AND ({known}) AND ({other}))"

    @property
    def comes_from(self) -> str:
        """SQL condition: a change whose row had another key before: its before-key, up to the place `came_from`."""
        return self.moved if self._tangled is None else f"({FROM} IS NOT NULL OR {self.moved})"

    @property
    def came_from(self) -> str:
        if self._tangled is None:
            return f"{self.place} - 1"
        return f"CASE WHEN {FROM} IS NULL THEN {self.place} ELSE {self.place_of(FROM)} END - 1"

    @property
    def _has_maybe(self) -> bool:
        return self._tangled is not None and self._tangled.has_maybe

    def events(self, cdc: Sequence[str], columns: Sequence[int], before: Sequence[int] = ()) -> str:
        """SQL of all changes in the plan, tangled ones replaced by their results, with columns `MAYBE` and `FROM`."""
        cdc = list(dict.fromkeys(["_op", "_gsn", "_seq", *cdc]))
        found = self.scans.select(self.plan.changes, cdc, columns, before, self.plan.where)
        if self._tangled is not None:
            names = ", ".join([*cdc, *map(alias, columns), *map(before_alias, before)])
            found = (
                f"SELECT {names}, false AS {MAYBE}, CAST(NULL AS BIGINT) AS {FROM} FROM ({found}) "
                f"WHERE {self.place} NOT IN (SELECT {self.place} FROM {self._tangled.replaced}) "
                f"UNION ALL SELECT {names}, {MAYBE}, {FROM} FROM {self._tangled.rows}"
            )
        if self.plan.over:
            over = self.scans.select(self.plan.over, cdc, columns, before, self.plan.where_over)
            if self._tangled is not None:
                over = f"SELECT *, false AS {MAYBE}, CAST(NULL AS BIGINT) AS {FROM} FROM ({over})"
            found += f" UNION ALL {over}"
        return found

    def key_places(self) -> str:
        """SQL of every place of every key, without rows that are `MAYBE`."""
        # rows are selected by place, and a delete may have the same (gsn, seq) as a row of another key that was moved:
        # deletes get an even place
        own = f"{self.place} - (_op = 'd')::INTEGER"
        if not self._moves:
            return f"SELECT {self.keys}, {own} AS p FROM ({self.events((), self.plan.key)})"
        both = self.events((), self.plan.key, self.plan.key)
        old = ", ".join(before_alias(n) for n in self.plan.key)
        counts, leaves = "true", self.moved
        if self._tangled is not None:
            counts = f"NOT {MAYBE}"
            leaves = f"({FROM} IS NULL AND {self.moved})"
        return (
            f"SELECT {self.keys}, {own} AS p FROM ({both}) WHERE {counts} UNION ALL "
            f"SELECT {old}, {self.place} - 1 AS p FROM ({both}) WHERE {leaves}"
        )

    def _maybe(self) -> str:
        """SQL of the last `MAYBE` place of each key: it has a row there if it had one before."""
        events = self.events((), self.plan.key)
        return f"SELECT {self.keys}, max({self.place}) AS p FROM ({events}) WHERE {MAYBE} GROUP BY {self.keys}"

    def _last_places(self) -> str:
        last = f"SELECT {self.keys}, max(p) AS p FROM ({self.key_places()}) GROUP BY {self.keys}"
        if not self._has_maybe:
            return f"SELECT p FROM ({last})"
        there = "l.p % 2 = 1 AND m.p > l.p"
        found = (
            f"SELECT CASE WHEN {there} THEN m.p ELSE l.p END AS p FROM ({last}) l LEFT JOIN ({self._maybe()}) m "
            f"ON {self.same('l', 'm')}"
        )
        if not self.plan.base:
            return found
        base = self.base(self.plan.key)
        return (
            f"{found} UNION ALL SELECT m.p FROM ({self._maybe()}) m "
            f"WHERE NOT EXISTS (SELECT 1 FROM ({last}) l WHERE {self.same('l', 'm')}) "
            f"AND EXISTS (SELECT 1 FROM ({base}) b WHERE {self.same('b', 'm')})"
        )

    def winners(self, cdc: Sequence[str], columns: Sequence[int]) -> str:
        """SQL of the last change of each key that is not deleted."""
        items = ", ".join([*cdc, *map(alias, columns)])
        events = self.events(cdc, columns)
        return f"SELECT {items} FROM ({events}) WHERE _op <> 'd' AND {self.place} IN ({self._last_places()})"

    def base(self, columns: Sequence[int]) -> str:
        """SQL of the rows of the base, without the deleted keys that a folded state retains."""
        found = self.scans.select(self.plan.base, list(dict.fromkeys(["_op", *self.cdc])), columns)
        return f"SELECT * FROM ({found}) WHERE _op IS NULL OR _op NOT IN ('d', 't')"

    def _base(self) -> str:
        items = ", ".join([*self.cdc, *map(alias, self.columns)])
        columns = sorted({*self.columns, *self.plan.key})
        return f"SELECT {items} FROM ({self.base(columns)}) b"

    def _look(self) -> bool:
        """Reads what determines the query: whether there are changes, the highest `_seq`, and changed keys."""
        if not self.plan.changes and not self.plan.over:
            return False
        events = self.events((), self.plan.key, self.plan.key)
        taken = f"coalesce(bool_or(_op = 'd' OR {self.moved}), false)"
        asked = f"SELECT max(_seq), coalesce(bool_or({self.moved}), false), {taken} FROM ({events})"
        [(seq, self._moves, takes)] = self.scans.con.execute(asked).fetchall()
        self._seq_bits = int(seq or 0).bit_length()
        if takes and (suspects := find_suspects(self.plan.changes)):
            self._find_tangled(self._changes_of(suspects))
        return seq is not None

    def _changes_of(self, suspects: Suspects) -> str:
        cdc, key, where = ["_op", "_gsn", "_seq"], self.plan.key, self.plan.where
        found = [self.scans.select(suspects.whole, cdc, key, key, where)] if suspects.whole else []
        if suspects.partly:
            gsns = ", ".join(map(str, suspects.gsns))
            found.append(self.scans.select(suspects.partly, cdc, key, key, f"{where} AND _gsn IN ({gsns})"))
        return " UNION ALL ".join(found)

    def _find_tangled(self, changes: str) -> None:
        """Finds tangled changes. If columns are missing, a further query finds which keys had rows before."""
        search = TangledSearch.find(self.scans, self.plan, changes, self.moved)
        if search is None:
            return
        self._moves = True
        self._tangled = search.register()
        asks = search.asks()
        if asks is not None:
            keys = ", ".join(f"a.{alias(n)}" for n in self.plan.key)
            below = (
                f"SELECT a.n, max(k.p) AS p FROM {asks} a LEFT JOIN ({self.key_places()}) k "
                f"ON {self.same('a', 'k')} AND k.p < {self.place_of('0').replace('_gsn', 'a._gsn')} GROUP BY a.n"
            )
            in_base = f"EXISTS (SELECT 1 FROM ({self.base(self.plan.key)}) b WHERE {self.same('a', 'b')})"
            asked = (
                f"SELECT CASE WHEN o.p IS NULL THEN {in_base} ELSE o.p % 2 = 1 END "
                f"FROM (SELECT n, _gsn, {keys} FROM {asks} a) a JOIN ({below}) o USING (n) ORDER BY n"
            )
            answers = [bool(found) for (found,) in self.scans.con.execute(asked).fetchall()]
            self._tangled = search.register(answers)

    def _without_key(self) -> str:
        events = self.events(self.cdc, self.columns)
        found = self.scans.con.execute(f"SELECT _op FROM ({self.events((), ())}) WHERE _op IN ('u', 'd') LIMIT 1")
        if found.fetchall():
            raise no_key(self.plan.table)
        items = ", ".join([*self.cdc, *map(alias, self.columns)])
        return f"SELECT {items} FROM ({events}) UNION ALL ({self._base()})"


def no_key(table: str) -> LakeError:
    return LakeError(
        f"{table} has no key, and rows of it were updated or deleted: its state cannot be computed",
        hint="give the table a key in the source's config; its changes can still be read",
    )


class State:
    """A lazy query for a state: each method reads it again."""

    def __init__(self, store: Store, plan: StatePlan, columns: Sequence[str] | None, memory: str | None) -> None:
        self._store, self._plan, self._memory = store, plan, memory
        union = plan.union
        by_name = {column.name: number for number, column in enumerate(union.columns)}
        self._names = list(by_name) if columns is None else list(columns)
        for name in self._names:
            if name not in by_name and name not in CDC_TYPES:
                raise LakeError(
                    f"{plan.table} has no column {name!r}", hint=f"it has {', '.join(by_name)} and CDC columns"
                )
        self._numbers = [by_name[name] for name in self._names if name in by_name]
        self._cdc = [name for name in self._names if name not in by_name]
        of_cdc = {field.name: field.with_nullable(True) for field in CDC_FIELDS}
        #: schema of the result
        self.schema = pa.schema([of_cdc[n] if n in of_cdc else union.columns[by_name[n]].field for n in self._names])

    @property
    def gsn(self) -> int:
        return self._plan.gsn

    def _sql(self, con: duckdb.DuckDBPyConnection) -> str:
        rows = Query(Scans(con, self._store, self._plan.union), self._plan, self._cdc, self._numbers).sql()
        by_name = {self._plan.union.columns[n].name: alias(n) for n in self._numbers}
        items = ", ".join(f"{by_name.get(name, name)} AS {quoted(name)}" for name in self._names)
        return f"SELECT {items} FROM ({rows})"

    def batches(self) -> pa.RecordBatchReader:
        """Streams the rows, unordered."""
        con = connect(self._memory)
        with asking(self._store):
            found = con.sql(self._sql(con)).to_arrow_reader(BATCH_ROWS)

        def read() -> Iterator[pa.RecordBatch]:
            # `con` must stay open as long as its reader
            with con, asking(self._store):
                for batch in found:
                    arrays = [convert(a, f.type) for a, f in zip(batch.columns, self.schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

        return pa.RecordBatchReader.from_batches(self.schema, read())

    def arrow(self, con: duckdb.DuckDBPyConnection | None = None) -> pa.Table:
        """The rows as an Arrow table. A given connection must have TimeZone UTC; it is faster for small tables."""
        with nullcontext(con) if con is not None else connect(self._memory) as asked, asking(self._store):
            found = asked.sql(self._sql(asked)).to_arrow_table()
        arrays = [convert(a, f.type) for a, f in zip(found.columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def duckdb(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """A relation on your connection; decimals of more than 38 digits are text in it."""
        with asking(self._store):
            return con.sql(self._sql(con))

    def spark(self, session: SparkSession) -> DataFrame:
        from lowwater.lake.spark.state import state_frame

        return state_frame(session, self._store, self._plan, self._names)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts, for small tables."""
        try:
            return list(self.arrow().to_pylist())
        except (OverflowError, ValueError) as error:
            raise LakeError(
                f"{self._plan.table}: a time outside of the range of Python's datetime ({error})",
                hint="read it with arrow(), duckdb() or spark()",
            ) from error
