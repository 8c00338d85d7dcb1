"""A task that merges small files of one table version. Memory holds one batch of each of the overlapping files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lowwater.errors import LakeDamagedError, LakeError
from lowwater.lake.chain.manifest import File
from lowwater.lake.read.changes import merged, overlapping
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.store.base import Store
from lowwater.lake.store.parquet_files import change_batches
from lowwater_spark.landing.files import ROW_GROUP_ROWS, LakeFiles
from lowwater_spark.maintenance.fold_changes import fold
from lowwater_spark.maintenance.state_task import StateItem, write_state

_ALL = (1 << 63) - 1


@dataclass(frozen=True)
class MergeItem:
    """Files of one table and schema id, adjacent in gsn."""

    avro: str
    files: tuple[File, ...]
    folds: bool = False


Item = MergeItem | StateItem


@dataclass(frozen=True)
class ItemReport:
    number: int
    files: tuple[File, ...] = ()
    #: why this item failed, or ""
    wrong: str = ""


def run_item(store: Store, attempt: str, tag: str, file_bytes: int, number: int, item: Item) -> ItemReport:
    try:
        if isinstance(item, StateItem):
            files = write_state(store, attempt, tag, file_bytes, item)
        else:
            files = write_merged(store, attempt, tag, file_bytes, item)
    except (LakeDamagedError, LakeError, pa.ArrowInvalid) as error:
        return ItemReport(number, wrong=str(error))
    return ItemReport(number, tuple(files))


def write_merged(store: Store, attempt: str, tag: str, file_bytes: int, item: MergeItem) -> list[File]:
    table, schema_id = lake_table(item.avro), item.files[0].schema_id
    batches = _checked(_rows(store, item.files, table.stream_schema))
    # the column metadata in a file may differ
    parts: Iterator[pa.Table] = (pa.Table.from_arrays(b.columns, schema=table.stream_schema) for b in batches)
    if item.folds:
        parts = _parts(fold(pa.concat_tables(parts), table.key))
    # the files of one item fit one file: a small excess must not become a small file again
    with LakeFiles(store, attempt, tag, 2 * file_bytes) as out:
        for part in parts:
            out.add(schema_id, table, part)
        written = out.close()
    folded_to = max(file.gsn_max if item.folds else file.folded_to for file in item.files)
    return [file.model_copy(update={"folded_to": folded_to}) for file in written]


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, ROW_GROUP_ROWS):
        yield rows.slice(start, ROW_GROUP_ROWS)


def _rows(store: Store, files: tuple[File, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for group in overlapping(files):
        yield from merged([change_batches(store, file, schema.names, -1, _ALL) for file in group])


def _checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Raises LakeDamagedError unless rows are in strictly rising order of (gsn, seq)."""
    last = (-1, -1)
    for batch in batches:
        gsn, seq = batch.column("_gsn").to_numpy(), batch.column("_seq").to_numpy()
        rises = (gsn[1:] > gsn[:-1]) | ((gsn[1:] == gsn[:-1]) & (seq[1:] > seq[:-1]))
        if not np.all(rises) or (int(gsn[0]), int(seq[0])) <= last:
            raise LakeDamagedError(
                f"changes near gsn {gsn[0]} are out of order or duplicated",
                hint="`lowwater lake verify` lists all damage; the files are not changed",
            )
        last = (int(gsn[-1]), int(seq[-1]))
        yield batch
