"""A table's changes between two gsn, in order, with at most one batch of each open file in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.errors import LakeError
from lowwater.lake.chain.manifest import File
from lowwater.lake.read.scans import Scans, asking, quoted, sql_type
from lowwater.lake.schema.adapt import CDC_TYPES, adapt, alias, before_alias, file_columns, transport
from lowwater.lake.schema.columns import BEFORE, CDC_FIELDS
from lowwater.lake.schema.union import TableUnion
from lowwater.lake.store.base import Store
from lowwater.lake.store.parquet_files import change_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[int, int]


def overlapping(files: Iterable[File]) -> Iterator[list[File]]:
    """Groups of files: those in a group overlap in gsn, and each group is after the previous one."""
    group: list[File] = []
    end = 0
    for file in sorted(files, key=lambda f: (f.gsn_min, f.gsn_max, f.path)):
        # a transaction may be in two files
        if group and file.gsn_min > end:
            yield group
            group = []
        group.append(file)
        end = max(end, file.gsn_max) if len(group) > 1 else file.gsn_max
    if group:
        yield group


def _place(batch: pa.RecordBatch, row: int) -> Place:
    return batch.column("_gsn")[row].as_py(), batch.column("_seq")[row].as_py()


def _split(batch: pa.RecordBatch, bound: Place) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows at or before the bound, and the rows after it."""
    gsn, seq = batch.column("_gsn"), batch.column("_seq")
    at = pc.and_(pc.equal(gsn, bound[0]), pc.less_equal(seq, bound[1]))
    count = pc.sum(pc.or_(pc.less(gsn, bound[0]), at)).as_py() or 0
    return batch.slice(0, count), batch.slice(count)


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merges sorted streams. All rows up to the lowest of the last positions read are complete: they are sorted and
    returned."""
    heads = [(batch, stream) for stream in streams if (batch := next(stream, None)) is not None]
    while len(heads) > 1:
        bound = min(_place(batch, batch.num_rows - 1) for batch, _ in heads)
        ready, left = [], []
        for batch, stream in heads:
            first, rest = _split(batch, bound)
            if first.num_rows:
                ready.append(first)
            following = rest if rest.num_rows else next(stream, None)
            if following is not None:
                left.append((following, stream))
        heads = left
        table = pa.Table.from_batches(ready)
        if len(ready) > 1:
            table = table.sort_by([("_gsn", "ascending"), ("_seq", "ascending")])
        yield from table.to_batches()
    for batch, stream in heads:
        yield batch
        yield from stream


class Changes:
    """A lazy query for changes: each method reads them again."""

    def __init__(
        self,
        store: Store,
        table: str,
        union: TableUnion,
        files: Sequence[File],
        after_gsn: int,
        to_gsn: int,
        columns: Sequence[str] | None,
    ) -> None:
        self._store, self._union, self._files = store, union, tuple(files)
        self.after_gsn, self.to_gsn = after_gsn, to_gsn
        whole = union.stream_schema
        for name in columns or ():
            if whole.get_field_index(name) < 0:
                raise LakeError(f"{table} has no column {name!r}", hint=f"it has {', '.join(whole.names)}")
        #: schema of the result
        self.schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])

    def _of_file(self, file: File, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        columns = file_columns(self._union, file.schema_id, schema.names)
        for batch in change_batches(self._store, file, columns, self.after_gsn, self.to_gsn):
            yield adapt(batch, self._union, file.schema_id, schema)

    def _read(self) -> Iterator[pa.RecordBatch]:
        places = [field for field in CDC_FIELDS if field.name in ("_gsn", "_seq")]
        more = [field for field in places if self.schema.get_field_index(field.name) < 0]
        schema = pa.schema([*self.schema, *more])
        for group in overlapping(self._files):
            for batch in merged([self._of_file(file, schema) for file in group]):
                yield batch.select(self.schema.names)

    def batches(self) -> pa.RecordBatchReader:
        """Streams the changes, in the order of (`_gsn`, `_seq`)."""
        return pa.RecordBatchReader.from_batches(self.schema, self._read())

    def arrow(self) -> pa.Table:
        return self.batches().read_all()

    def duckdb(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """A relation on your connection, unordered: sort by `_gsn, _seq` if needed.

        Decimals of more than 38 digits are text in it.
        """
        union = self._union
        by_name = {column.name: number for number, column in enumerate(union.columns)}
        cdc = [name for name in self.schema.names if name in CDC_TYPES]
        numbers = [by_name[name] for name in self.schema.names if name in by_name]
        before = list(range(len(union.columns))) if BEFORE in self.schema.names else []
        where = f"_gsn > {self.after_gsn} AND _gsn <= {self.to_gsn}"
        with asking(self._store):
            scans = Scans(con, self._store, union)
            extra = ["_gsn"] if "_gsn" not in cdc else []
            rows = scans.select(self._files, [*cdc, *extra], numbers, before, where)
            items = []
            for field in self.schema:
                if field.name == BEFORE:
                    items.append(f"{_before_item(union)} AS {BEFORE}")
                elif field.name in CDC_TYPES:
                    items.append(field.name)
                else:
                    items.append(f"{alias(by_name[field.name])} AS {quoted(field.name)}")
            return con.sql(f"SELECT {', '.join(items)} FROM ({rows})")

    def spark(self, session: SparkSession) -> DataFrame:
        """An unordered DataFrame."""
        from lowwater.lake.spark.frames import changes_frame

        return changes_frame(
            session, self._store, self._union, self._files, self.after_gsn, self.to_gsn, self.schema.names
        )


def _before_item(union: TableUnion) -> str:
    """SQL of `_before`: null if all of its fields are null. Such a struct is never written, only a null one."""
    fields = ", ".join(f"{quoted(c.name)} := {before_alias(n)}" for n, c in enumerate(union.columns))
    none = " AND ".join(f"{before_alias(n)} IS NULL" for n in range(len(union.columns)))
    whole = pa.struct([pa.field(c.name, transport(c.field.type)) for c in union.columns])
    return f"CASE WHEN {none} THEN CAST(NULL AS {sql_type(whole)}) ELSE struct_pack({fields}) END"
