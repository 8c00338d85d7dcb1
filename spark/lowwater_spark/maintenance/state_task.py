"""A task that writes a table's folded state: the latest row of each key at one gsn, each in its own table version.

If the input does not fit in memory, it is first partitioned into pieces by a hash of the key. Pieces between which a
row moved, by a change of its key, are folded together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.errors import LakeError
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.read.state_plan import StatePlan
from lowwater.lake.schema.adapt import UNCHANGED, adapt, convert, convert_deep
from lowwater.lake.schema.columns import BEFORE, CDC_FIELDS
from lowwater.lake.schema.union import TableUnion
from lowwater.lake.store.base import Store
from lowwater.lake.store.parquet_files import change_batches, row_batches
from lowwater_spark.landing.files import ROW_GROUP_ROWS, LakeFiles
from lowwater_spark.maintenance.fold_changes import Bools, Ints, fold
from lowwater_spark.maintenance.tombstone_floor import parse_low
from lowwater_spark.maintenance.untangled import moved

#: bytes of files that are folded in memory at once; uncompressed they are several times as large
PIECE_BYTES = 48 << 20
#: in addition to the union's columns: the table version of the row's last change
_VERSION = pa.field("_schema_id", pa.int64())
_ALL = (1 << 63) - 1


@dataclass(frozen=True)
class StateItem:
    plan: StatePlan
    #: deletes at or below this gsn are left out: no copy that began before them can still become readable
    forget_to: int
    piece_bytes: int = PIECE_BYTES

    @property
    def files(self) -> tuple[File, ...]:
        return (*self.plan.base, *self.plan.over, *self.plan.changes)


@dataclass
class _Inputs:
    """The input rows of a state, in the union's columns. The last truncate is stored separately."""

    store: Store
    plan: StatePlan
    truncate: pa.Table | None = None
    _copied: int = 0
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = pa.schema([*self.plan.union.stream_schema, _VERSION])

    @property
    def key(self) -> list[str]:
        return [self.plan.union.columns[n].name for n in self.plan.key]

    def tables(self) -> Iterator[pa.Table]:
        plan = self.plan
        copy_floor = plan.over_floor if plan.over else plan.floor
        for file in plan.base:
            if file.layer is Layer.COPY:
                yield from (self._adapted(b, file) for b in self._copied_rows(file, copy_floor))
            else:
                yield from self._changes(file, -1, _ALL)
        for file in plan.over:
            yield from self._changes(file, plan.over_floor, _ALL)
        for file in plan.changes:
            yield from self._changes(file, plan.floor, plan.gsn)

    def _adapted(self, batch: pa.RecordBatch, file: File) -> pa.Table:
        union = self.plan.union
        rows = pa.Table.from_batches([adapt(batch, union, file.schema_id, union.stream_schema)])
        return rows.append_column(_VERSION, pa.array(np.full(len(rows), file.schema_id, np.int64)))

    def _changes(self, file: File, after: int, to: int) -> Iterator[pa.Table]:
        names = self.plan.union.versions[file.schema_id].stream_schema.names
        for batch in change_batches(self.store, file, names, after, to):
            rows = self._adapted(batch, file)
            is_truncate = pc.equal(rows["_op"], "t")
            if file.truncates:
                self._keep_last(rows.filter(is_truncate))
            yield rows.filter(pc.and_(pc.invert(is_truncate), pa.array(self._counts(rows))))

    def _counts(self, rows: pa.Table) -> Bools:
        gsn, seq = _ints(rows["_gsn"]), _ints(rows["_seq"])
        emptied = self.plan.emptied
        if emptied is None:
            return np.ones(len(rows), bool)
        found: Bools = (gsn > emptied.gsn) | ((gsn == emptied.gsn) & (seq > emptied.seq))
        return found

    def _keep_last(self, truncates: pa.Table) -> None:
        both = truncates if self.truncate is None else pa.concat_tables([self.truncate, truncates])
        self.truncate = _in_order(both).slice(max(0, both.num_rows - 1)) if both.num_rows else None

    def _copied_rows(self, file: File, floor: int) -> Iterator[pa.RecordBatch]:
        """Rows of a copy as changes at the gsn `floor`, each with a `_seq` of its own."""
        table = self.plan.union.versions[file.schema_id]
        major, minor = parse_low(file.low or "0.0")
        order = {"major": major, "minor": minor}
        for batch in row_batches(self.store, file, table.copy_schema.names):
            n = batch.num_rows
            seq = np.arange(self._copied + 1, self._copied + n + 1)
            self._copied += n
            known = {"_op": "r", "_gsn": floor, "_txid": "", "_thread": 0, "_order": order, "_commit_ts": 0, "_ts": 0}
            cdc = [
                pa.array(seq) if f.name == "_seq" else pa.repeat(pa.scalar(known.get(f.name), f.type), n)
                for f in CDC_FIELDS
            ]
            schema = table.stream_schema
            before = pa.nulls(n, schema.field(BEFORE).type)
            yield pa.RecordBatch.from_arrays([*cdc, before, *batch.columns], schema=schema)


def write_state(store: Store, attempt: str, tag: str, file_bytes: int, item: StateItem) -> list[File]:
    plan, inputs = item.plan, _Inputs(store, item.plan)
    written: list[File] = []
    for number, rows in enumerate(_pieces(inputs, sum(f.bytes for f in item.files), item.piece_bytes)):
        state = fold(_in_order(rows), inputs.key, is_whole=True)
        _check_known(state, plan.table)
        with LakeFiles(store, attempt, f"{tag}-{number}", file_bytes) as files:
            _add(files, plan.union, _kept(state, inputs.key, item.forget_to))
            written += files.close()
    last = inputs.truncate
    if last is not None and last["_gsn"][0].as_py() > item.forget_to:
        with LakeFiles(store, attempt, f"{tag}-t", file_bytes) as files:
            _add(files, plan.union, last)
            written += files.close()
    if not written:
        written = _empty(store, attempt, tag, plan.union)
    about = {"gsn_min": item.forget_to + 1, "gsn_max": plan.gsn, "folded_to": plan.gsn}
    return [file.model_copy(update=about) for file in written]


def _check_known(state: pa.Table, table: str) -> None:
    """Raises LakeError if a row lacks a column that the log did not contain: a later copy may still provide it."""
    is_lacking = pc.and_(pc.equal(state["_op"], "u"), state[UNCHANGED].is_valid())
    if pc.any(is_lacking).as_py():
        row = state.filter(is_lacking).slice(0, 1)
        raise LakeError(
            f"{table}: column {row[UNCHANGED][0].as_py()[0]!r} of a row is unknown at gsn {row['_gsn'][0].as_py()}",
            hint="copy the table: until then its changes are not folded",
        )


def _empty(store: Store, attempt: str, tag: str, union: TableUnion) -> list[File]:
    """Writes a state without rows, as a file without rows."""
    newest = max(union.versions, key=lambda id_: (union.versions[id_].version, id_))
    table = union.versions[newest]
    with LakeFiles(store, attempt, f"{tag}-none", 1) as files:
        files.add(newest, table, table.stream_schema.empty_table(), Layer.STATE)
        return files.close()


def _kept(state: pa.Table, key: list[str], forget_to: int) -> pa.Table:
    """The state without deletes up to `forget_to`; before images only where a copy's overlay needs the old key."""
    is_late = _ints(state["_gsn"]) > forget_to
    state = state.filter(pc.or_(pa.array(is_late), pc.not_equal(state["_op"], "d")))
    needed = moved(state, key) & (_ints(state["_gsn"]) > forget_to)
    before = state[BEFORE].combine_chunks()
    place = state.schema.get_field_index(BEFORE)
    kept = before.take(pa.array(np.arange(len(state)), mask=~needed))
    return state.set_column(place, state.schema.field(place), kept)


def _add(files: LakeFiles, union: TableUnion, rows: pa.Table) -> None:
    for schema_id, table in union.versions.items():
        own = rows.filter(pc.equal(rows[_VERSION.name], schema_id))
        for start in range(0, own.num_rows, ROW_GROUP_ROWS):
            part = own.slice(start, ROW_GROUP_ROWS).combine_chunks()
            files.add(schema_id, table, _as_version(part, union, schema_id), Layer.STATE)


def _as_version(rows: pa.Table, union: TableUnion, schema_id: int) -> pa.Table:
    """Converts the union's columns to those of one version."""
    schema = union.versions[schema_id].stream_schema
    seen = {column.names[schema_id]: column.name for column in union.columns if schema_id in column.names}
    own = {name: old for old, name in seen.items()}
    arrays: list[pa.Array] = []
    for one in schema:
        column = rows[seen.get(one.name, one.name)].combine_chunks()
        if one.name == UNCHANGED and union.renamed(schema_id):
            lists = [None if x is None else [own.get(name, name) for name in x] for x in column.to_pylist()]
            column = pa.array(lists, one.type)
        elif one.name == BEFORE and column.type != one.type:
            children = [convert(pc.struct_field(column, [seen[f.name]]), f.type) for f in one.type]
            column = pa.StructArray.from_arrays(children, fields=list(one.type), mask=column.is_null())
        arrays.append(convert_deep(column, one.type))
    return pa.Table.from_arrays(arrays, schema=schema)


# -- pieces --------------------------------------------------------------------------------------------------


def _pieces(inputs: _Inputs, bytes_: int, piece_bytes: int) -> Iterator[pa.Table]:
    count = -(-bytes_ // piece_bytes)
    if count <= 1:
        yield pa.concat_tables([inputs.schema.empty_table(), *inputs.tables()])
        return
    with tempfile.TemporaryDirectory(prefix="lowwater-fold-") as directory:
        paths = [Path(directory, f"{n}.arrow") for n in range(count)]
        for group in _deal(inputs, paths):
            parts = [pa.ipc.open_file(paths[n]).read_all() for n in group]
            yield pa.concat_tables(parts)
            for n in group:
                paths[n].unlink()


def _deal(inputs: _Inputs, paths: list[Path]) -> list[list[int]]:
    """Writes each row to the piece of its key; returns the groups of pieces that must be folded together."""
    belongs = list(range(len(paths)))

    def root(n: int) -> int:
        while belongs[n] != n:
            n = belongs[n]
        return n

    options = pa.ipc.IpcWriteOptions(compression="lz4")
    writers = [pa.ipc.new_file(path, inputs.schema, options=options) for path in paths]
    with duckdb.connect() as con:
        for rows in inputs.tables():
            own = _piece_of([rows[name] for name in inputs.key], len(paths), con)
            for n in np.unique(own):
                writers[n].write_table(rows.filter(pa.array(own == n)))
            is_moved = moved(rows, inputs.key)
            if is_moved.any():
                image = rows.filter(pa.array(is_moved))[BEFORE].combine_chunks()
                old = _piece_of([pc.struct_field(image, [name]) for name in inputs.key], len(paths), con)
                for one, other in set(zip(own[is_moved].tolist(), old.tolist(), strict=True)):
                    belongs[root(one)] = root(other)
    for writer in writers:
        writer.close()
    groups: dict[int, list[int]] = {}
    for n in range(len(paths)):
        groups.setdefault(root(n), []).append(n)
    return list(groups.values())


def _piece_of(columns: list[pa.ChunkedArray | pa.Array], count: int, con: duckdb.DuckDBPyConnection) -> Ints:
    # DuckDB has no decimals beyond 38 digits; equal decimals have equal texts, and so equal hashes
    plain = [c.cast(pa.string()) if pa.types.is_decimal(c.type) else c for c in columns]
    names = [f"k{n}" for n in range(len(plain))]
    con.register("keys", pa.table(plain, names=names))
    found = con.sql(f"SELECT (hash({', '.join(names)}) % {count})::BIGINT AS n FROM keys").to_arrow_table()
    con.unregister("keys")
    return _ints(found["n"])


def _in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("_gsn", "ascending"), ("_seq", "ascending")])


def _ints(column: pa.ChunkedArray) -> Ints:
    found: Ints = column.to_numpy()
    return found
