"""Finds the tangled changes of one state with DuckDB, and resolves them in memory. See `tangles`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.moved_keys.roles import Bools, Ints
from lowwater.lake.moved_keys.tangles import MAYBE, Tangles
from lowwater.lake.read.scans import Scans
from lowwater.lake.read.state_plan import StatePlan
from lowwater.lake.schema.adapt import CDC_TYPES, adapt_aliased, alias, aliased_schema, before_alias, transport
from lowwater.lake.store.parquet_files import change_batches

#: array of (`gsn`, `seq`)
Pairs = npt.NDArray[np.void]


@dataclass(frozen=True)
class Tangled:
    """Names of temporary tables."""

    #: `_gsn` and `_seq` of the changes that are replaced
    replaced: str
    #: the changes that replace them
    rows: str
    has_maybe: bool


class TangledSearch:
    def __init__(self, scans: Scans, tangles: Tangles, places: Pairs) -> None:
        self._con, self._tangles = scans.con, tangles
        self._replaced = self._keep(pa.table({"_gsn": places["gsn"], "_seq": places["seq"]}))

    @classmethod
    def find(cls, scans: Scans, plan: StatePlan, changes: str, moved: str) -> TangledSearch | None:
        """`changes`: SQL of the changes in the plan, with the key columns of row and before-image; `moved`: SQL
        condition for updates that change the key. None: nothing is tangled."""
        places = _places(scans, plan, changes, moved)
        if places is None:
            return None
        found = Tangles.find(_rows(scans, plan, places), plan.key, [column.name for column in plan.union.columns])
        assert found is not None, "DuckDB and Arrow do not agree on what is tangled"
        return cls(scans, found, places)

    def asks(self) -> str | None:
        """A temporary table of `Tangles.asks`, numbered by `n`; None if it is empty."""
        asks = self._tangles.asks()
        if not asks.num_rows:
            return None
        return self._keep(asks.append_column("n", pa.array(range(asks.num_rows), pa.int64())))

    def register(self, existed: Sequence[bool] | None = None) -> Tangled:
        rows = self._tangles.made(np.array(existed, bool) if existed is not None else self._none_asked())
        return Tangled(self._replaced, self._keep(rows), bool(pc.any(rows[MAYBE]).as_py()))

    def _none_asked(self) -> Bools | None:
        return None if self._tangles.asks().num_rows else np.zeros(0, bool)

    def _keep(self, rows: pa.Table) -> str:
        name = f"lowwater_{uuid.uuid4().hex}"
        self._con.register(f"{name}_arrow", rows)
        self._con.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}_arrow")
        self._con.unregister(f"{name}_arrow")
        return name


def _places(scans: Scans, plan: StatePlan, changes: str, moved: str) -> Pairs | None:
    """The positions of all changes of tangled keys, sorted."""
    con, name = scans.con, f"lowwater_{uuid.uuid4().hex}"
    adds, removes = f"(_op IN ('c', 'r') OR {moved})", f"(_op = 'd' OR {moved})"
    is_tangled = "min(_seq) FILTER (WHERE {0}) < max(_seq) FILTER (WHERE {1})"
    # first without the keys: few transactions add a row to any key before they remove one
    con.execute(
        f"CREATE TEMP TABLE {name}_gsn AS SELECT _gsn FROM ({changes}) GROUP BY _gsn "
        f"HAVING {is_tangled.format(adds, removes)}"
    )
    [(count,)] = con.execute(f"SELECT count(*) FROM {name}_gsn").fetchall()
    if not count:
        return None
    keys = ", ".join(alias(n) for n in plan.key)
    old = ", ".join(f"{before_alias(n)} AS {alias(n)}" for n in plan.key)
    old_keys = ", ".join(before_alias(n) for n in plan.key)
    same_group = " AND ".join(f"a.{alias(n)} IS NOT DISTINCT FROM r.{alias(n)}" for n in plan.key)
    candidates = f"(SELECT * FROM ({changes}) WHERE _gsn IN (FROM {name}_gsn))"
    taken = (
        f"SELECT _gsn, {keys}, max(_seq) AS last FROM (SELECT _gsn, {keys}, _seq FROM {candidates} WHERE _op = 'd' "
        f"UNION ALL SELECT _gsn, {old_keys}, _seq FROM {candidates} WHERE {moved}) GROUP BY ALL"
    )
    # mostly another key is removed: this is found without evaluating all changes of each key
    [(count,)] = con.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM (SELECT _gsn, {keys}, _seq FROM {candidates} WHERE {adds}) a "
        f"JOIN ({taken}) r ON a._gsn = r._gsn AND {same_group} AND a._seq < r.last LIMIT 1)"
    ).fetchall()
    if not count:
        con.execute(f"DROP TABLE {name}_gsn")
        return None
    con.execute(
        f"CREATE TEMP TABLE {name}_roles AS WITH e AS (SELECT * FROM ({changes}) WHERE _gsn IN (FROM {name}_gsn)) "
        f"SELECT _gsn, _seq, {keys}, {adds} AS adds, _op = 'd' AS removes FROM e UNION ALL "
        f"SELECT _gsn, _seq, {old}, false, true FROM e WHERE {moved}"
    )
    same = " AND ".join(f"g.{alias(n)} IS NOT DISTINCT FROM r.{alias(n)}" for n in plan.key)
    groups = f"SELECT _gsn, {keys} FROM {name}_roles GROUP BY ALL HAVING {is_tangled.format('adds', 'removes')}"
    found = con.execute(
        f"SELECT DISTINCT _gsn, _seq FROM {name}_roles r SEMI JOIN ({groups}) g ON g._gsn = r._gsn AND {same} "
        "ORDER BY _gsn, _seq"
    ).fetchnumpy()
    for table in ("roles", "gsn"):
        con.execute(f"DROP TABLE {name}_{table}")
    return _pairs(found["_gsn"], found["_seq"]) if len(found["_gsn"]) else None


def _pairs(gsn: Ints, seq: Ints) -> Pairs:
    found = np.empty(len(gsn), dtype=[("gsn", np.int64), ("seq", np.int64)])
    found["gsn"], found["seq"] = gsn, seq
    return found


def _rows(scans: Scans, plan: StatePlan, wanted: Pairs) -> pa.Table:
    """The changes at these positions, with all columns, in order."""
    union = plan.union
    columns = range(len(union.columns))
    schema = aliased_schema(union, list(CDC_TYPES), columns, columns, transport)
    gsns = np.unique(wanted["gsn"])
    factor = int(wanted["seq"].max()) + 1
    # one number for each position, if it fits 64 bits
    numbers = wanted["gsn"] * factor + wanted["seq"] if int(gsns[-1] + 1) * factor < 1 << 62 else None

    def batches() -> Iterator[pa.RecordBatch]:
        for file in plan.changes:
            first, last = np.searchsorted(gsns, (file.gsn_min, file.gsn_max + 1))
            if first == last:
                continue
            names = union.versions[file.schema_id].stream_schema.names
            for batch in change_batches(scans.store, file, names, int(gsns[first]) - 1, int(gsns[last - 1])):
                gsn, seq = (batch.column(name).to_numpy() for name in ("_gsn", "_seq"))
                is_wanted: Bools = np.isin(gsn, gsns[first:last])
                is_wanted &= seq < factor
                if numbers is None:
                    is_wanted[is_wanted] = np.isin(_pairs(gsn[is_wanted], seq[is_wanted]), wanted)
                else:
                    is_wanted[is_wanted] = np.isin(gsn[is_wanted] * factor + seq[is_wanted], numbers)
                if is_wanted.any():
                    yield adapt_aliased(batch.filter(pa.array(is_wanted)), union, file.schema_id, schema)

    found = pa.Table.from_batches(batches(), schema)
    return found.sort_by([("_gsn", "ascending"), ("_seq", "ascending")])
