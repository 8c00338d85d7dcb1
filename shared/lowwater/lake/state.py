"""A table's rows at a gsn: the latest change of each key over the base, with deletes and truncates applied.

DuckDB does it in two passes over the files: the first finds each key's last place (a number that grows with the
order), the second takes the rows at these places. Deleted rows and old keys of changed keys are places, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from lowwater.errors import LakeError
from lowwater.lake.adapt import CDC_TYPES, alias, before_alias, convert
from lowwater.lake.columns import CDC_FIELDS
from lowwater.lake.fill import filled_winners
from lowwater.lake.parquet_files import BATCH_ROWS
from lowwater.lake.plan import StatePlan
from lowwater.lake.scans import Scans, asking, connect, quoted
from lowwater.lake.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Query:
    """The SQL of one state, on one connection."""

    def __init__(self, scans: Scans, plan: StatePlan, cdc: Sequence[str], columns: Sequence[int]) -> None:
        self.scans, self.plan = scans, plan
        self.cdc, self.columns = list(cdc), list(columns)
        self._moves = False
        self._seq_bits = 0

    def sql(self) -> str:
        if not self.plan.key:
            return self._without_key()
        if not self._look():
            return self._base()
        may_fill = any(f.unchanged_rows for f in (*self.plan.changes, *self.plan.over))
        rows = filled_winners(self) if may_fill else self.winners(self.cdc, self.columns)
        if not self.plan.base:
            return rows
        touched = f"SELECT {self.keys} FROM ({self.key_places()}) GROUP BY ALL"
        same = " AND ".join(f"t.{alias(n)} IS NOT DISTINCT FROM b.{alias(n)}" for n in self.plan.key)
        return f"({rows}) UNION ALL ({self._base()} WHERE NOT EXISTS (SELECT 1 FROM ({touched}) t WHERE {same}))"

    @property
    def keys(self) -> str:
        return ", ".join(alias(n) for n in self.plan.key)

    @property
    def place(self) -> str:
        """One number for (gsn, seq), odd: even ones are for old keys of changed keys."""
        if (self.plan.gsn + 1).bit_length() + self._seq_bits + 1 < 63:
            return f"((((_gsn << {self._seq_bits}) | _seq) << 1) | 1)"
        return "((_gsn::HUGEINT * 4611686018427387904 + _seq) * 2 + 1)"

    @property
    def moved(self) -> str:
        """True of an update that gave its row another key. A `before` without a key says nothing of it."""
        known = " OR ".join(f"{before_alias(n)} IS NOT NULL" for n in self.plan.key)
        other = " OR ".join(f"{before_alias(n)} IS DISTINCT FROM {alias(n)}" for n in self.plan.key)
        return f"(_op = 'u' AND ({known}) AND ({other}))"

    def events(self, cdc: Sequence[str], columns: Sequence[int], before: Sequence[int] = ()) -> str:
        """All changes that count."""
        cdc = list(dict.fromkeys(["_op", "_gsn", "_seq", *cdc]))
        found = self.scans.select(self.plan.changes, cdc, columns, before, self.plan.where)
        if self.plan.over:
            found += f" UNION ALL {self.scans.select(self.plan.over, cdc, columns, before, self.plan.where_over)}"
        return found

    def key_places(self) -> str:
        """Every place of every key."""
        if not self._moves:
            return f"SELECT {self.keys}, {self.place} AS p FROM ({self.events((), self.plan.key)})"
        both = self.events((), self.plan.key, self.plan.key)
        old = ", ".join(before_alias(n) for n in self.plan.key)
        return (
            f"SELECT {self.keys}, {self.place} AS p FROM ({both}) UNION ALL "
            f"SELECT {old}, {self.place} - 1 AS p FROM ({both}) WHERE {self.moved}"
        )

    def winners(self, cdc: Sequence[str], columns: Sequence[int]) -> str:
        """The last change of each key that is still there."""
        last = f"SELECT max(p) FROM ({self.key_places()}) GROUP BY {self.keys}"
        items = ", ".join([*cdc, *map(alias, columns)])
        return f"SELECT {items} FROM ({self.events(cdc, columns)}) WHERE _op <> 'd' AND {self.place} IN ({last})"

    def base(self, columns: Sequence[int]) -> str:
        """The base's rows; a folded state keeps deleted keys."""
        found = self.scans.select(self.plan.base, list(dict.fromkeys(["_op", *self.cdc])), columns)
        return f"SELECT * FROM ({found}) WHERE _op IS NULL OR _op NOT IN ('d', 't')"

    def _base(self) -> str:
        items = ", ".join([*self.cdc, *map(alias, self.columns)])
        columns = sorted({*self.columns, *self.plan.key})
        return f"SELECT {items} FROM ({self.base(columns)}) b"

    def _look(self) -> bool:
        """What decides how the question is put: whether there are changes, how far `_seq` goes, changed keys."""
        if not self.plan.changes and not self.plan.over:
            return False
        events = self.events((), self.plan.key, self.plan.key)
        asked = f"SELECT max(_seq), coalesce(bool_or({self.moved}), false) FROM ({events})"
        [(seq, self._moves)] = self.scans.con.execute(asked).fetchall()
        self._seq_bits = int(seq or 0).bit_length()
        return seq is not None

    def _without_key(self) -> str:
        events = self.events(self.cdc, self.columns)
        found = self.scans.con.execute(f"SELECT _op FROM ({self.events((), ())}) WHERE _op IN ('u', 'd') LIMIT 1")
        if found.fetchall():
            raise no_key(self.plan.table)
        items = ", ".join([*self.cdc, *map(alias, self.columns)])
        return f"SELECT {items} FROM ({events}) UNION ALL ({self._base()})"


def no_key(table: str) -> LakeError:
    return LakeError(
        f"{table} has no key, and rows of it were updated or deleted: its state cannot be told",
        hint="give the table a key in the source's config; its changes can still be read",
    )


class State:
    """Asked for, not read yet: each method reads it anew."""

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
        #: of what is read
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
        """Streams; the rows are in no order."""
        con = connect(self._memory)
        with asking(self._store):
            found = con.sql(self._sql(con)).to_arrow_reader(BATCH_ROWS)

        def read() -> Iterator[pa.RecordBatch]:
            # `con` must live as long as its reader
            with con, asking(self._store):
                for batch in found:
                    arrays = [convert(a, f.type) for a, f in zip(batch.columns, self.schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

        return pa.RecordBatchReader.from_batches(self.schema, read())

    def arrow(self) -> pa.Table:
        with connect(self._memory) as con, asking(self._store):
            found = con.sql(self._sql(con)).to_arrow_table()
        arrays = [convert(a, f.type) for a, f in zip(found.columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def duckdb(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """A relation on your connection; decimals of more than 38 digits are text in it."""
        with asking(self._store):
            return con.sql(self._sql(con))

    def spark(self, session: SparkSession) -> DataFrame:
        from lowwater.lake.spark_state import state_frame

        return state_frame(session, self._store, self._plan, self._names)

    def rows(self) -> list[dict[str, Any]]:
        """For small tables."""
        return list(self.arrow().to_pylist())
