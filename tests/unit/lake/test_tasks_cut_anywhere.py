"""However Spark cuts the ordered topic: the same rows land, each once, and only those of whole transactions."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowwater.codec import generic
from lowwater.codec.avro import change_schema
from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.codec.varint import long
from lowwater.errors import LandingError
from lowwater.lake.chain.manifest import File
from lowwater.lake.schema.columns import lake_table
from lowwater.records.ids import SchemaId
from lowwater.records.positions import Order
from lowwater.records.types import Commit, Copied, Skipped, Stale
from lowwater.records.wire import header
from lowwater.runtime.config import LakeConfig
from lowwater_spark.landing import land_task
from lowwater_spark.landing.decode import table_column
from lowwater_spark.landing.land_task import LandTask, TaskParams, TaskReport
from lowwater_spark.landing.task_reports import Stitched, stitch

COMMIT, SKIPPED, COPIED, STALE = 1, 2, 3, 4
CONTROL = {"Commit": COMMIT, "Skipped": SKIPPED, "Copied": COPIED, "Stale": STALE}
#: in place of a table's number: a change that is a record of ours
OF_COPIED, OF_STALE = 2, 3
TABLES = {
    10 + n: json.dumps(change_schema(TableSchema("s", "n", f"T{n}", 1, (Column("ID", INT64),), ("ID",))))
    for n in range(2)
}
#: this one has too few rows to be compiled: its changes come encoded
PLAIN = 11
_U64 = pa.binary()
_ORDER = pa.struct([("major", _U64), ("minor", _U64)])
_COMMIT = pa.struct([
    ("source", pa.string()), ("thread", pa.int64()), ("txid", pa.string()), ("order", _ORDER),
    ("commit_ts_us", pa.int64()), ("clock_us", pa.int64()), ("changes", pa.int64()), ("checksum", pa.int64()),
    ("generation", pa.int64()),
])  # fmt: skip
_ROW = pa.struct([("ID", pa.int64())])
_CHANGE = pa.struct([
    ("seq", pa.int64()), ("op", pa.string()), ("before", _ROW), ("after", _ROW), ("unchanged", pa.list_(pa.string())),
    ("ts_us", pa.timestamp("us", tz="UTC")),
])  # fmt: skip
SCHEMA = pa.schema(
    [("offset", pa.int64()), ("key", pa.binary()), ("crc", pa.int64()), ("size", pa.int32()),
     ("header", pa.binary()), ("Commit", pa.list_(_COMMIT)), ("other", pa.binary()), ("plain", pa.binary()),
     *((table_column(id_), pa.list_(_CHANGE)) for id_ in TABLES if id_ != PLAIN)]
)  # fmt: skip


def _record(offset: int, gsn: int, seq: int, id_: int, **column: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("Commit", "other", "plain", table_column(10)))
    crc = crc32(f"{gsn}.{seq}".encode())
    key = header(SchemaId(9)) + long(gsn) + long(seq)
    own = {"offset": offset, "gsn": gsn, "key": key, "crc": crc, "size": 9, "header": header(SchemaId(id_))}
    return {**own, **empty, **column}


def _encoded(change: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(TABLES[PLAIN]), named_schemas={}), change)
    return out.getvalue()


def records(sizes: list[list[int] | None]) -> list[dict[str, Any]]:
    """One transaction for each: the tables that its changes go to; None is a skipped one. As plan.py decodes them."""
    found: list[dict[str, Any]] = []
    offset = 0
    for gsn, tables in enumerate(sizes, 1):
        checksum = 0
        offset += gsn % 3  # markers leave gaps
        if tables is None:
            skipped = generic.encode(Skipped("s", 1, f"{gsn}", Order(gsn, 1), 0, "why"))
            found.append(_record(offset, gsn, 1, SKIPPED, other=skipped))
            offset += 1
            continue
        for seq, table in enumerate(tables, 1):
            change = {
                "seq": seq,
                "op": "c",
                "before": None,
                "after": {"ID": gsn * 1000 + seq},
                "unchanged": [],
                "ts_us": 0,
            }
            if table == OF_COPIED:
                copied = Copied(seq, f"{gsn}.{seq}", ("n.T0",), ())
                found.append(_record(offset, gsn, seq, COPIED, other=generic.encode(copied)))
            elif table == OF_STALE:
                found.append(_record(offset, gsn, seq, STALE, other=generic.encode(Stale(seq, ("n.T0",), "why"))))
            elif 10 + table == PLAIN:
                found.append(_record(offset, gsn, seq, PLAIN, plain=_encoded(change)))
            else:
                found.append(_record(offset, gsn, seq, 10 + table, **{table_column(10 + table): [change]}))
            checksum += found[-1]["crc"]
            offset += 1
        order = {"major": gsn.to_bytes(8, "big"), "minor": (1).to_bytes(8, "big")}
        commit = {
            "source": "s", "thread": 1, "txid": f"{gsn}", "order": order, "commit_ts_us": gsn, "clock_us": gsn,
            "changes": len(tables), "checksum": checksum, "generation": gsn // 4,
        }  # fmt: skip
        found.append(_record(offset, gsn, len(tables) + 1, COMMIT, Commit=[commit]))
        offset += 1
    return found


@dataclass
class Run:
    """One landing, as land.py does it, without Spark."""

    directory: Path
    reports: list[TaskReport] = field(default_factory=list)

    def tasks(self, parts: list[list[dict[str, Any]]], batch: int, known: dict[int, Commit]) -> list[TaskReport]:
        params = TaskParams(LakeConfig(uri=str(self.directory)), "a", CONTROL, TABLES, known)
        reports = []
        for number, part in enumerate(parts):
            batches = [part[i : i + batch] for i in range(0, len(part), batch)]
            arrow = [pa.RecordBatch.from_pylist([{k: v for k, v in row.items() if k != "gsn"} for row in rows], SCHEMA)
                     for rows in batches]  # fmt: skip
            reports.append(LandTask(params, str(number)).run(arrow))
        return reports

    def land(self, parts: list[list[dict[str, Any]]], batch: int) -> tuple[Stitched, list[File]]:
        known: dict[int, Commit] = {}
        while True:
            reports = self.tasks(parts, batch, known)
            result = stitch(reports[::-1], 0, known)
            if result.is_final:
                break
            for part in parts:
                for row in part:
                    if row["Commit"] and row["gsn"] in result.needs_commits:
                        c = row["Commit"][0]
                        numbers = (c["commit_ts_us"], c["clock_us"], c["changes"], c["checksum"], c["generation"])
                        known[row["gsn"]] = Commit("s", 1, c["txid"], Order(row["gsn"], 1), *numbers)
        last = LandTask(TaskParams(LakeConfig(uri=str(self.directory)), "a", CONTROL, TABLES), "driver")
        for report, commit in result.carried:
            last.write_carried(report.carried, commit)
        self.reports = [*reports, last.report]
        return result, [f for r in reports for f in r.files] + last.close()

    def rows(self, files: list[File]) -> list[tuple[int, int, str, int]]:
        found = []
        for file in files:
            rows = pq.read_table(self.directory / file.path)
            assert rows.schema.equals(lake_table(TABLES[file.schema_id]).stream_schema)
            names = ("_gsn", "_seq", "_txid", "ID")
            found += list(zip(*(rows[name].to_pylist() for name in names), strict=True))
        return sorted(found)


def _wanted(sizes: list[list[int] | None], whole: int) -> list[tuple[int, int, str, int]]:
    return [
        (gsn, seq, str(gsn), gsn * 1000 + seq)
        for gsn, tables in enumerate(sizes, 1)
        if gsn <= whole
        for seq, table in enumerate(tables or [], 1)
        if table < OF_COPIED
    ]


TRANSACTIONS = st.lists(st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=12)), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(sizes=TRANSACTIONS, data=st.data())
def test_the_same_rows_whatever_the_cuts(sizes: list[list[int] | None], data: st.DataObject) -> None:
    all_ = records(sizes)
    end = data.draw(st.integers(1, len(all_)), "the micro-batch ends here")
    rows = all_[:end]
    cuts = sorted(data.draw(st.lists(st.integers(0, end), max_size=4), "tasks begin here"))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, end], strict=True)]
    batch = data.draw(st.integers(1, 10), "rows of a batch")
    carry = data.draw(st.integers(0, 8), "rows that a task holds")
    ends = (header(SchemaId(COMMIT)), header(SchemaId(SKIPPED)))
    whole = max((r["gsn"] for r in rows if r["header"] in ends), default=0)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(land_task, "CARRY_ROWS_MAX", carry)
        run = Run(Path(directory))
        result, files = run.land(parts, batch)
        assert run.rows(files) == _wanted(sizes, whole)
        landed = [(gsn, table) for gsn, tables in enumerate(sizes, 1) for table in tables or [] if gsn <= whole]
        found = [c.gsn for r in run.reports for c in r.copied]
        assert sorted(found) == [gsn for gsn, table in landed if table == OF_COPIED]
        assert {c.generation for r in run.reports for c in r.copied} == {gsn // 4 for gsn in found}
        assert sorted(s.gsn for r in run.reports for s in r.stale) == [g for g, table in landed if table == OF_STALE]
        first = {}
        for gsn in range(whole, 0, -1):
            if sizes[gsn - 1] is not None:
                first["s", gsn // 4] = gsn
        generations: dict[tuple[str, int], int] = {}
        for report in run.reports:
            for pair, gsn in report.generations.items():
                generations[pair] = min(gsn, generations.get(pair, gsn))
        assert generations == first
    assert (result.last_end.gsn if result.last_end else 0) == whole
    assert result.last is not None
    assert result.last.offset == rows[-1]["offset"]
    assert result.open_gsn == (None if rows[-1]["header"] in ends else rows[-1]["gsn"])


@settings(max_examples=100, deadline=None)
@given(sizes=TRANSACTIONS, data=st.data())
def test_a_record_that_is_gone_or_comes_twice_is_always_found(
    sizes: list[list[int] | None], data: st.DataObject
) -> None:
    rows = records(sizes)
    at = data.draw(st.integers(0, len(rows) - 1), "this one")
    is_last = at == len(rows) - 1
    broken = [*rows[:at], *rows[at + 1 :]] if data.draw(st.booleans(), "gone") and not is_last else [
        *rows[: at + 1], *rows[at:]
    ]  # fmt: skip
    cut = data.draw(st.integers(0, len(broken)), "a task begins here")
    with tempfile.TemporaryDirectory() as directory, pytest.raises(LandingError):
        Run(Path(directory)).land([broken[:cut], broken[cut:]], data.draw(st.integers(1, 5), "rows of a batch"))
