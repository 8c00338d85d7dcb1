"""Parquet files of a lake, written by a task: one at a time for each table, each named after its attempt."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lowwater.lake.chain.manifest import Bounds, File, Layer, Place
from lowwater.lake.schema.columns import LakeTable
from lowwater.lake.store.base import Store
from lowwater_spark.landing.moved_key_notes import TangleNotes

#: rows of a row group; a reader skips row groups by their bounds
ROW_GROUP_ROWS = 1 << 16
#: limit of the bytes that all tables of one task buffer; the largest table is written first
HELD_BYTES_MAX = 64 << 20


def path_name(table: str) -> str:
    """A table's name as part of a path, with escapes for characters that a store may not accept."""
    return re.sub(r"[^A-Za-z0-9_.-]", lambda m: f"_x{ord(m.group()):x}_", table)


def _json_value(value: Any) -> Any:
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    return None


def key_bounds(path: Path, key: tuple[str, ...]) -> dict[str, Bounds]:
    """Minimum and maximum of each key column, from the statistics in the file."""
    metadata = pq.read_metadata(path)
    names = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    found: dict[str, Bounds] = {}
    for column in key:
        if column not in names:
            continue
        groups = [metadata.row_group(g).column(names[column]).statistics for g in range(metadata.num_row_groups)]
        if not groups or any(s is None or not s.has_min_max for s in groups):
            continue
        try:
            low, high = _json_value(min(s.min for s in groups)), _json_value(max(s.max for s in groups))
        except (OverflowError, ValueError):
            # a time that Python cannot represent, such as of the year 294276: a file without bounds is never skipped
            continue
        if low is not None and high is not None:
            found[column] = Bounds(min=low, max=high)
    return found


@dataclass
class _Open:
    """A file that is being written."""

    local: Path
    writer: pq.ParquetWriter
    rows: int = 0
    gsn_min: int = 0
    gsn_max: int = 0
    truncates: list[Place] = field(default_factory=list)
    unchanged_rows: int = 0
    tangles: TangleNotes | None = None


class TableWriter:
    """Writes one table version. Rows are added in (gsn, seq) order and go to files of about `file_bytes`."""

    def __init__(self, files: LakeFiles, schema_id: int, table: LakeTable, layer: Layer) -> None:
        self._files = files
        self._schema_id = schema_id
        self._table = table
        self._layer = layer
        self._schema = table.copy_schema if layer is Layer.COPY else table.stream_schema
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self.held_bytes = 0
        self._open: _Open | None = None
        self.done: list[File] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        # not `nbytes`: it reads the offsets of empty arrays too, and the JVM sends none for those
        self.held_bytes += rows.get_total_buffer_size()
        if self._held_rows >= ROW_GROUP_ROWS:
            self.write_held()

    def write_held(self) -> None:
        """Writes the buffered rows as one row group."""
        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        self._held, self._held_rows, self.held_bytes = [], 0, 0
        if self._open is None:
            local = self._files.scratch()
            writer = pq.ParquetWriter(local, self._schema, compression="zstd", compression_level=1)
            notes = TangleNotes(self._table.key) if self._layer is Layer.STREAM else None
            self._open = _Open(local, writer, tangles=notes)
        self._note(self._open, rows)
        self._open.writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        if self._open.local.stat().st_size >= self._files.file_bytes:
            self._close_file()

    def _note(self, file: _Open, rows: pa.Table) -> None:
        file.rows += rows.num_rows
        # a state without rows is written as a file without rows
        if self._layer is Layer.COPY or not rows.num_rows:
            return
        span = pc.min_max(rows["_gsn"])
        low, high = span["min"].as_py(), span["max"].as_py()
        file.gsn_min = low if not file.gsn_min else min(low, file.gsn_min)
        file.gsn_max = max(high, file.gsn_max)
        file.unchanged_rows += rows.num_rows - rows["_unchanged"].null_count
        if file.tangles is not None:
            file.tangles.add(rows)
        emptied = rows.select(["_op", "_gsn", "_seq"]).filter(pc.equal(rows["_op"], "t"))
        file.truncates += [Place(gsn=row["_gsn"], seq=row["_seq"]) for row in emptied.to_pylist()]

    def _close_file(self) -> None:
        file = self._open
        if file is None:
            return
        self._open = None
        file.writer.close()
        with file.local.open("rb") as data:
            sha256 = hashlib.file_digest(data, "sha256").hexdigest()
        size = file.local.stat().st_size
        bounds = key_bounds(file.local, self._table.key)
        path = self._files.next_path(self._layer, self._table)
        self._files.store.put_file(path, file.local)
        self.done.append(
            File(
                path=path,
                table=self._table.name,
                layer=self._layer,
                schema_id=self._schema_id,
                key=self._table.key,
                rows=file.rows,
                bytes=size,
                sha256=sha256,
                gsn_min=file.gsn_min,
                gsn_max=file.gsn_max,
                bounds=bounds,
                truncates=tuple(file.truncates),
                unchanged_rows=file.unchanged_rows,
                tangles=None if file.tangles is None else file.tangles.facts(),
            )
        )

    def close(self) -> None:
        self.write_held()
        self._close_file()


class LakeFiles:
    """All files that one task writes. `tag` distinguishes the tasks of an attempt."""

    def __init__(self, store: Store, attempt: str, tag: str, file_bytes: int) -> None:
        self.store = store
        self.file_bytes = file_bytes
        self._attempt = attempt
        self._tag = tag
        self._count = 0
        self._tables: dict[tuple[int, Layer], TableWriter] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="lowwater-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Deletes the local files, also if `close` was not called."""
        self._directory.cleanup()

    def scratch(self) -> Path:
        self._count += 1
        return Path(self._directory.name, f"{self._count}.parquet")

    def next_path(self, layer: Layer, table: LakeTable) -> str:
        self._count += 1
        return f"{layer}/{path_name(table.name)}/{self._attempt}-{self._tag}-{self._count}.parquet"

    def add(self, schema_id: int, table: LakeTable, rows: pa.Table, layer: Layer = Layer.STREAM) -> None:
        key = (schema_id, layer)
        if key not in self._tables:
            self._tables[key] = TableWriter(self, schema_id, table, layer)
        self._tables[key].add(rows)
        held = sum(t.held_bytes for t in self._tables.values())
        while held > HELD_BYTES_MAX:
            largest = max(self._tables.values(), key=lambda t: t.held_bytes)
            held -= largest.held_bytes
            largest.write_held()

    def close(self) -> list[File]:
        """The files written; all of them are in the store when this returns."""
        try:
            for table in self._tables.values():
                table.close()
            return [file for table in self._tables.values() for file in table.done]
        finally:
            self._directory.cleanup()
