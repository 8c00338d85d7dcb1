"""`state` of a table out of five changes a key, beside DuckDB asked by hand on the same files.

By hand means the quickest query that was found, by someone who knows that keys never change and that no column is
left out: the reader has to find that out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.support.lake_maker import LakeMaker

from bench.common import Bench, Result, best_of, peak_mb
from bench.encoder import NOW_US, TABLE
from lowwater.lake.reader import Lake
from lowwater.lake.schema.columns import ORDER_TYPE
from lowwater.lake.store.local import LocalDirectory

LANDINGS = 10
CHANGES_EACH_KEY = 5
CHANGES_EACH_TRANSACTION = 5
DELETED = 0.02
TIMES = 3


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*(p if isinstance(p, str) else pa.array(p).cast(pa.string()) for p in parts), "")


def _images(ids: Any, cents: Any, instants: pa.Array) -> list[pa.Array]:
    """As `encoder.row`, many at once."""
    address = _joined(ids % 200, " Harbour Street, ", ids + 10_000, " Lower Waterford, county of the tides")
    branch = pa.array((ids % 16).astype("int32"))
    return [pa.array(ids), branch, _joined("owner ", ids), address, pa.array(cents), instants]


def make(root: Path, keys: int) -> None:
    """All keys are inserted first, then any of them are updated, a few deleted."""
    maker, rng = LakeMaker(LocalDirectory(root)), np.random.default_rng(1)
    schema_id = maker.version(TABLE)
    schema, fields = maker.tables[schema_id].stream_schema, maker.tables[schema_id].row_fields
    count = keys * CHANGES_EACH_KEY // LANDINGS
    for start in range(0, count * LANDINGS, count):
        number = np.arange(start, start + count)
        is_new = number < keys
        ids = np.where(is_new, number, rng.integers(0, keys, count))
        op = np.where(is_new, "c", np.where(rng.random(count) < DELETED, "d", "u"))
        gsn = number // CHANGES_EACH_TRANSACTION + 1
        at = pa.array(NOW_US + gsn * 1000).cast(pa.timestamp("us", tz="UTC"))
        cents = rng.integers(0, 10**9, count)
        order = pa.StructArray.from_arrays(
            [pa.array(gsn.astype("uint64")), pa.array(np.ones(count, "uint64"))], fields=list(ORDER_TYPE)
        )
        before = pa.StructArray.from_arrays(_images(ids, cents - 1, at), fields=fields, mask=pa.array(is_new))
        one = np.ones(count, "int64")
        cdc = [pa.array(op), pa.array(gsn), pa.array(number % CHANGES_EACH_TRANSACTION + 1), _joined("tx", gsn)]
        cdc += [pa.array(one), order, at, at, pa.nulls(count, pa.list_(pa.string())), before]
        table = pa.Table.from_arrays([*cdc, *_images(ids, cents, at)], schema=schema)
        maker.land_table(schema_id, table)


def by_hand(root: Path) -> str:
    files = f"read_parquet('{root}/stream/*/*.parquet')"
    place = f"_gsn * {CHANGES_EACH_TRANSACTION + 1} + _seq"
    columns = ", ".join(f'"{column.name}"' for column in TABLE.columns)
    last = f"SELECT max({place}) FROM {files} GROUP BY {TABLE.key[0]}"
    return f"SELECT {columns} FROM {files} WHERE _op <> 'd' AND {place} IN ({last})"


def _measure(how: str, root: Path) -> dict[str, float]:
    """In a process of its own, so that the memory is its own."""

    def once() -> float:
        started = time.perf_counter()
        if how == "ours":
            rows = Lake.open(str(root)).state(TABLE.table).arrow().num_rows
        else:
            with duckdb.connect() as con:
                rows = con.sql(by_hand(root)).to_arrow_table().num_rows
        counts.add(rows)
        return time.perf_counter() - started

    counts: set[int] = set()
    seconds = best_of(TIMES, once)
    [rows] = counts
    return {"seconds": seconds, "rows": rows, "peak_mb": peak_mb(int(Path("/proc/self").resolve().name))}


def _in_child(how: str, root: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.state", how, str(root)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def run(bench: Bench) -> None:
    keys, root = max(1000, int(1_000_000 * bench.scale)), bench.directory / "lake"
    bench.say(f"a lake of {keys * CHANGES_EACH_KEY:,} changes on {keys:,} keys")
    make(root, keys)
    hand, ours = _in_child("by hand", root), _in_child("ours", root)
    if hand["rows"] != ours["rows"]:
        raise AssertionError(f"by hand {hand['rows']} rows, ours {ours['rows']}")
    changes = keys * CHANGES_EACH_KEY
    bench.add(
        Result(
            "lake: state of a table",
            changes / ours["seconds"] / 1000,
            "k changes/s",
            changes / hand["seconds"] / 1000,
            "0.8 of DuckDB by hand",
            ours["peak_mb"],
            f"{ours['seconds']:.2f} s, by hand {hand['seconds']:.2f} s and {hand['peak_mb']:.0f} MB",
        )
    )


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], Path(sys.argv[2]))))
