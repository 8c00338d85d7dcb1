"""Reads a lake's Parquet files as Arrow batches, from any store."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lowwater.errors import LakeDamagedError, NotThereError
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.store.base import Store

BATCH_ROWS = 65_536
#: of an object store: number of files to prefetch, and their maximum size
FILES_AHEAD, FETCHED_BYTES_MAX = 4, 8 << 20


class Opener(Protocol):
    """The part of a store that is needed for reading."""

    def open(self, path: str) -> BinaryIO: ...


def damaged(path: str, what: str) -> LakeDamagedError:
    return LakeDamagedError(
        f"{path}: it is in the ledger, but {what}",
        position=path,
        hint="a view older than `grace_hours` of the lake needs `refresh`; `lowwater lake verify` lists all damage",
    )


@contextmanager
def open_parquet(store: Opener, file: File) -> Iterator[pq.ParquetFile]:
    try:
        with store.open(file.path) as raw, pq.ParquetFile(raw) as parquet:
            yield parquet
    except NotThereError as error:
        raise damaged(file.path, "it is not there") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(file.path, f"it cannot be read: {error}") from error


def _groups_between(parquet: pq.ParquetFile, after: int, to: int) -> list[int]:
    """Row groups that may have changes with after < gsn ≤ to; all of them if the file has no statistics."""
    meta = parquet.metadata
    place = next(i for i in range(meta.num_columns) if meta.schema.column(i).path == "_gsn")
    found = []
    for n in range(meta.num_row_groups):
        stats = meta.row_group(n).column(place).statistics
        if stats is None or not stats.has_min_max or (stats.max > after and stats.min <= to):
            found.append(n)
    return found


def change_batches(
    store: Store, file: File, columns: Sequence[str], after: int, to: int, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Columns of a file, of the changes with after < gsn ≤ to. `columns` must include `_gsn`."""
    whole = file.gsn_min > after and file.gsn_max <= to
    with open_parquet(store, file) as parquet:
        groups = None if whole else _groups_between(parquet, after, to)
        for batch in parquet.iter_batches(rows, row_groups=groups, columns=list(columns)):
            if not whole:
                gsn = batch.column("_gsn")
                batch = batch.filter(pc.and_(pc.greater(gsn, after), pc.less_equal(gsn, to)))
            if batch.num_rows:
                yield batch


def row_batches(store: Opener, file: File, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Columns of all rows of a file, in the file's column order."""
    with open_parquet(store, file) as parquet:
        if columns:
            yield from parquet.iter_batches(BATCH_ROWS, columns=list(columns))
            return
        for start in range(0, parquet.metadata.num_rows, BATCH_ROWS):
            count = min(BATCH_ROWS, parquet.metadata.num_rows - start)
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def last_gsn_at_or_below(store: Store, files: Sequence[File], major: int, minor: int, after: int = 0) -> int:
    """The last gsn above `after` at which the table has an order at or below this one; `after` if there is none.

    Within a generation of a source, orders increase with the gsn, so the files are read from the newest to the first
    match.
    """
    found = after
    for file in sorted(files, key=lambda f: -f.gsn_max):
        if file.gsn_max <= found:
            break
        with open_parquet(store, file) as parquet:
            for group in reversed(range(parquet.metadata.num_row_groups)):
                rows = parquet.read_row_group(group, columns=["_gsn", "_order"]).combine_chunks()
                order = rows.column("_order")
                majors, minors = pc.struct_field(order, "major"), pc.struct_field(order, "minor")
                same = pc.and_(pc.equal(majors, pa.scalar(major, pa.uint64())), pc.less_equal(minors, _u64(minor)))
                below = pc.and_(pc.or_(pc.less(majors, _u64(major)), same), pc.greater(rows.column("_gsn"), after))
                last = pc.max(rows.column("_gsn").filter(below)).as_py()
                if last is not None:
                    found = max(found, last)
                    if file.layer is Layer.STREAM:  # files of other layers are not sorted by gsn
                        break
    return found


def first_gsn_later_than(store: Store, files: Sequence[File], after: int, to: int, time_us: int) -> int | None:
    """The first gsn in (after, to] whose transaction committed after this time."""
    found: int | None = None
    limit = pa.scalar(time_us, pa.timestamp("us", tz="UTC"))
    for file in files:
        for batch in change_batches(store, file, ("_gsn", "_commit_ts"), after, to):
            first = pc.min(batch.column("_gsn").filter(pc.greater(batch.column("_commit_ts"), limit))).as_py()
            if first is not None and (found is None or first < found):
                found = first
    return found


def _u64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


class StoredFiles:
    """Columns of files with one schema, as an Arrow stream that DuckDB can read repeatedly. For object stores.

    An Arrow dataset would deadlock: it starts its scan while it holds the GIL, and waits for threads that need the GIL
    to read through Python. Here the files are read one after the other, and small ones are prefetched.
    """

    def __init__(self, store: Store, files: Sequence[File], schema: pa.Schema) -> None:
        self._store = store
        self._files = tuple(files)
        self._schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        names = self._schema.names
        with ThreadPoolExecutor(FILES_AHEAD) as pool:
            ahead = deque(pool.submit(self._fetch, file) for file in self._files[:FILES_AHEAD])
            for number, file in enumerate(self._files):
                fetched = ahead.popleft().result()
                if number + FILES_AHEAD < len(self._files):
                    ahead.append(pool.submit(self._fetch, self._files[number + FILES_AHEAD]))
                for batch in row_batches(self._store if fetched is None else _Fetched(fetched), file, names):
                    batch = batch.select(names)
                    yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)

    def _fetch(self, file: File) -> bytes | None:
        """The content of a small file; None for a large one, which is read by ranges later."""
        if file.bytes > FETCHED_BYTES_MAX:
            return None
        try:
            with self._store.open(file.path) as raw:
                return raw.read()
        except NotThereError as error:
            raise damaged(file.path, "it is not there") from error


class _Fetched:
    """An Opener that returns the content of one prefetched file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._data)
