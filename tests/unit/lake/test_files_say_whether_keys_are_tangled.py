"""What is noted of a file when it is written leads a reader to every tangled transaction, however files are cut."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowwater.lake.chain.manifest import File, TangleFacts
from lowwater.lake.moved_keys.suspects import find_suspects
from lowwater.lake.schema.columns import BEFORE
from lowwater_spark.landing.moved_key_notes import TangleNotes
from lowwater_spark.maintenance.untangled import moved, roles_of

SCHEMA = pa.schema(
    [
        ("_gsn", pa.int64()),
        ("_seq", pa.int64()),
        ("_op", pa.string()),
        (BEFORE, pa.struct([("id", pa.int64())])),
        ("id", pa.int64()),
    ]
)
Change = tuple[str, int, int]
CHANGES = st.tuples(st.sampled_from("cudtmr"), st.integers(0, 3), st.integers(0, 3))


def _table(transactions: list[list[Change]]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for gsn, changes in enumerate(transactions, 1):
        for seq, (op, id_, old) in enumerate(changes, 1):
            before = {"id": old} if op == "m" else None
            rows.append({"_gsn": gsn, "_seq": seq, "_op": "u" if op == "m" else op, BEFORE: before, "id": id_})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _tangled(rows: pa.Table) -> set[int]:
    rows = rows.filter(pc.not_equal(rows["_op"], "t"))
    if not rows.num_rows:
        return set()
    roles = roles_of(rows, ["id"])
    return set(roles.gsn[roles.is_tangled].tolist())


def _file(name: str, rows: pa.Table, tangles: TangleFacts | None, schema_id: int = 1) -> File:
    gsns = rows["_gsn"].to_pylist()
    return File(
        path=name, table="s.t", schema_id=schema_id, key=("id",), rows=rows.num_rows, bytes=1, sha256="",
        gsn_min=gsns[0], gsn_max=gsns[-1], tangles=tangles,
    )  # fmt: skip


def _noted(name: str, parts: list[pa.Table]) -> File:
    notes = TangleNotes(["id"])
    for part in parts:
        notes.add(part)
    return _file(name, pa.concat_tables(parts), notes.facts())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_every_tangled_transaction_is_searched_whole(transactions: list[list[Change]], data: st.DataObject) -> None:
    rows = _table(transactions)
    cuts = sorted(data.draw(st.sets(st.integers(1, rows.num_rows)), "cuts") | {0, rows.num_rows})
    parts = [rows.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    files: list[File] = []
    tables: dict[str, pa.Table] = {}
    while parts:
        count = data.draw(st.integers(1, len(parts)), "parts of a file")
        name = str(len(files))
        tables[name] = pa.concat_tables(parts[:count])
        files.append(_noted(name, parts[:count]))
        parts = parts[count:]
    suspects = find_suspects(files)
    whole = {file.path for file in suspects.whole}
    partly = {file.path for file in suspects.partly}
    for gsn in _tangled(rows):
        for name, table in tables.items():
            if gsn in table["_gsn"].to_pylist():
                assert name in whole or (name in partly and gsn in suspects.gsns)


def test_inserts_and_deletes_of_other_keys_are_not_searched() -> None:
    transactions: list[list[Change]] = [[("c", 1, 0), ("d", 2, 0)], [("c", 3, 0), ("d", 1, 0)]]
    assert not find_suspects([_noted("a", [_table(transactions)])])


def test_parts_of_a_transaction_in_files_whose_order_is_not_known_are_searched() -> None:
    """Small files are merged: the one that begins first may have the later part of a transaction that both have."""
    rows = _table([[("c", 9, 0)], [("c", 1, 0), ("d", 1, 0)]])
    later = pa.concat_tables([rows.slice(0, 1), rows.slice(2, 1)])
    one, two = _noted("a", [later]), _noted("b", [rows.slice(1, 1)])
    assert find_suspects([one, two]).gsns == (2,)


@pytest.mark.parametrize("type_", [pa.list_(pa.int32()), pa.float64(), pa.binary()])
def test_keys_of_any_type_are_compared(type_: pa.DataType) -> None:
    own: list[Any] = {pa.list_(pa.int32()): [[1], [2]], pa.float64(): [-0.0, 1.0], pa.binary(): [b"1", b"2"]}[type_]  # type: ignore[assignment]
    before = [{"id": {pa.float64(): 0.0}.get(type_, own[0])}, {"id": own[0]}]
    struct = pa.struct([("id", type_)])
    columns = {"_gsn": [1, 2], "_seq": [1, 1], "_op": ["u", "u"], BEFORE: pa.array(before, struct)}
    rows = pa.table({**columns, "id": pa.array(own, type_)})
    assert moved(rows, ["id"]).tolist() == [False, True]
    notes = TangleNotes(["id"])
    notes.add(rows)
    assert not notes.facts().inside


def test_files_from_before_facts_were_noted_are_searched() -> None:
    old = _file("a", _table([[("c", 1, 0)]]), None)
    assert find_suspects([old]).whole == (old,)


def test_versions_of_a_table_that_share_transactions_are_searched() -> None:
    rows = _table([[("c", 1, 0)], [("c", 2, 0)], [("c", 3, 0)]])
    one, two = _file("a", rows, TangleFacts()), _file("b", rows.slice(1, 1), TangleFacts(), schema_id=2)
    assert find_suspects([one, two]).whole == (one, two)
