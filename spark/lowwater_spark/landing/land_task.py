"""One Spark task of a landing: checks its part of the ordered topic, writes the rows, and reports to the driver.

A task reads a contiguous range of the topic. The transactions that end in it are complete except for the first, which
may begin in the preceding task. Rows after the last end are returned to the driver, which has the reports of all tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.codec import generic
from lowwater.lake.chain.manifest import CopiedTables, File, SkippedTransaction, StaleTables
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.store.base import Store, open_lake_store
from lowwater.records.positions import Order
from lowwater.records.types import Commit, Copied, Skipped, Stale
from lowwater.records.wire import HEADER_SIZE
from lowwater.runtime.config import LakeConfig
from lowwater.runtime.failpoints import fail_point
from lowwater_spark.landing.decode import OTHER, PLAIN, table_column
from lowwater_spark.landing.files import LakeFiles
from lowwater_spark.landing.plain_decode import PlainDecodeError, plain_changes
from lowwater_spark.landing.rows import Commits, Ints, order_keys, stream_rows, whole_numbers

#: rows of one transaction that a task buffers until its Commit; for a larger one the driver finds the Commit first
CARRY_ROWS_MAX = 50_000
CARRY_BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class TaskParams:
    """Parameters that are sent to the tasks."""

    lake: LakeConfig
    attempt: str
    #: record name → schema id of the control records
    control_ids: dict[str, int]
    #: schema id → Avro schema of the table versions that may have rows
    tables: dict[int, str]
    #: commits of large transactions, found beforehand
    known: dict[int, Commit] = field(default_factory=dict)


@dataclass(frozen=True)
class RowPlace:
    offset: int
    gsn: int
    seq: int
    is_end: bool


@dataclass
class TaskReport:
    first: RowPlace | None = None
    last: RowPlace | None = None
    last_end: RowPlace | None = None
    rows: int = 0
    value_bytes_max: int = 0
    transactions: int = 0
    commit_ts_us: int = 0
    clock_us: int = 0
    files: list[File] = field(default_factory=list)
    skipped: list[SkippedTransaction] = field(default_factory=list)
    copied: list[CopiedTables] = field(default_factory=list)
    stale: list[StaleTables] = field(default_factory=list)
    #: source and generation → its first gsn in this task
    generations: dict[tuple[str, int], int] = field(default_factory=dict)
    #: gsn of transactions that are only partly in this task → number of changes and sum of their checksums
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: the commits of partial transactions that ended in this task
    ended: dict[int, Commit] = field(default_factory=dict)
    #: transactions larger than a task buffers, whose Commit was not known
    too_large: set[int] = field(default_factory=set)
    #: table versions that were not decoded: the landing must be run again with them
    unknown_ids: set[int] = field(default_factory=set)
    #: decoded rows after the last end, as Arrow IPC; the table versions that were decoded; their first place
    carried: bytes = b""
    carried_ids: tuple[int, ...] = ()
    carried_first: RowPlace | None = None
    #: number of the carried rows, and the sum of their checksums
    carried_sums: tuple[int, int] = (0, 0)
    #: error in the records, or ""
    wrong: str = ""


class WrongRecordsError(Exception):
    """Invalid records. Caught at the end of the task and reported; the driver raises LandingError."""


_stores: dict[str, Store] = {}


def _store(config: LakeConfig) -> Store:
    """One store for all tasks of a worker process, which outlives them."""
    return _stores.setdefault(config.model_dump_json(), open_lake_store(config))


def read_header(column: pa.Array) -> Ints:
    """Schema ids from the five-byte headers of the values."""
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, dtype=np.int32, count=1, offset=4 * column.offset)[0])
    raw = np.frombuffer(data, dtype=np.uint8, count=HEADER_SIZE * len(column), offset=start)
    parts = raw.reshape(-1, HEADER_SIZE)
    if parts[:, 0].any():
        raise WrongRecordsError("a value without the Confluent header (magic byte 0)")
    return np.ascontiguousarray(parts[:, 1:]).view(">u4")[:, 0].astype(np.int64)


@dataclass
class Block:
    """Consecutive records, with their key columns as numpy arrays."""

    batch: pa.RecordBatch
    offset: Ints
    gsn: Ints
    seq: Ints
    crc: Ints
    ids: Ints
    is_end: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: pa.RecordBatch, ends: tuple[int, int]) -> Block:
        gsn, seq = order_keys(batch.column("key"))
        ids = read_header(batch.column("header"))
        offset, crc = whole_numbers(batch.column("offset")), whole_numbers(batch.column("crc"))
        return cls(batch, offset, gsn, seq, crc, ids, np.isin(ids, ends))

    def cut(self, start: int, stop: int) -> Block:
        part = slice(start, stop)
        return Block(
            self.batch.slice(start, stop - start),
            self.offset[part],
            self.gsn[part],
            self.seq[part],
            self.crc[part],
            self.ids[part],
            self.is_end[part],
        )

    @classmethod
    def joined(cls, blocks: list[Block]) -> Block:
        if len(blocks) == 1:
            return blocks[0]
        names = ("offset", "gsn", "seq", "crc", "ids", "is_end")
        columns = [np.concatenate([getattr(block, name) for block in blocks]) for name in names]
        return cls(pa.concat_batches([block.batch for block in blocks]), *columns)

    def place(self, row: int) -> RowPlace:
        return RowPlace(int(self.offset[row]), int(self.gsn[row]), int(self.seq[row]), bool(self.is_end[row]))


def check_sequence(before: RowPlace | None, block: Block) -> None:
    """Raises WrongRecordsError unless each record is the next of its transaction, or the first after an end."""
    gsn, seq, is_end = block.gsn, block.seq, block.is_end
    follows = np.where(is_end[:-1], (gsn[1:] == gsn[:-1] + 1) & (seq[1:] == 1), gsn[1:] == gsn[:-1])
    follows &= is_end[:-1] | (seq[1:] == seq[:-1] + 1)
    if not follows.all():
        row = int(np.argmin(follows))
        raise WrongRecordsError(_gap(block.place(row), block.place(row + 1)))
    if before is not None:
        check_follows(before, block.place(0))


def check_follows(before: RowPlace, after: RowPlace) -> None:
    wanted = (before.gsn + 1, 1) if before.is_end else (before.gsn, before.seq + 1)
    if (after.gsn, after.seq) != wanted:
        raise WrongRecordsError(_gap(before, after))


def _gap(before: RowPlace, after: RowPlace) -> str:
    return (
        f"gsn {before.gsn} seq {before.seq} at offset {before.offset} is followed by "
        f"gsn {after.gsn} seq {after.seq} at offset {after.offset}"
    )


class LandTask:
    def __init__(self, params: TaskParams, tag: str) -> None:
        self._params = params
        ids = params.control_ids
        self._ends = (ids[Commit.__name__], ids[Skipped.__name__])
        self._known_ids = np.array([*ids.values(), *params.tables], dtype=np.int64)
        self._files = LakeFiles(_store(params.lake), params.attempt, tag, params.lake.file_bytes)
        self._carried: list[Block] = []
        self._carried_rows = 0
        self._carried_bytes = 0
        self._known = Commits.of(params.known) if params.known else None
        self.report = TaskReport()

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        report = self.report
        try:
            for batch in batches:
                if batch.num_rows:
                    self._take(batch)
            if self._carried and not report.unknown_ids:
                report.carried = _to_ipc([block.batch for block in self._carried])
                report.carried_ids = tuple(self._params.tables)
                report.carried_first = self._carried[0].place(0)
                report.carried_sums = (self._carried_rows, sum(int(block.crc.sum()) for block in self._carried))
        except WrongRecordsError as error:
            report.wrong = str(error)
        fail_point("land.before_files")
        report.files = self._files.close()
        fail_point("land.some_files")
        return report

    def _take(self, batch: pa.RecordBatch) -> None:
        report = self.report
        block = Block.of(batch, self._ends)
        check_sequence(report.last, block)
        report.first = report.first or block.place(0)
        report.last = block.place(-1)
        report.rows += batch.num_rows
        report.value_bytes_max = max(report.value_bytes_max, int(whole_numbers(batch.column("size")).max()))
        self._look_for_unknown(block)
        ends = np.flatnonzero(block.is_end)
        if not len(ends):
            self._carry(block)
            return
        report.last_end = block.place(int(ends[-1]))
        behind = int(ends[-1]) + 1
        self._complete(Block.joined([*self._carried, block.cut(0, behind)]))
        if behind < batch.num_rows:
            self._carry(block.cut(behind, batch.num_rows))

    def _look_for_unknown(self, block: Block) -> None:
        is_known = np.isin(block.ids, self._known_ids)
        if not is_known.all():
            self.report.unknown_ids.update(np.unique(block.ids[~is_known]).tolist())

    def _carry(self, block: Block) -> None:
        """Buffers or writes rows of one transaction whose end has not been read yet."""
        gsn = int(block.gsn[0])
        if gsn in self._params.known:
            self._add_part(gsn, len(block.gsn), int(block.crc.sum()))
            assert self._known is not None
            self._write(block, self._known)
            return
        self._carried.append(block)
        self._carried_rows += len(block.gsn)
        self._carried_bytes += block.batch.get_total_buffer_size()
        is_large = self._carried_rows > CARRY_ROWS_MAX or self._carried_bytes > CARRY_BYTES_MAX
        if is_large or gsn in self.report.too_large:
            self.report.too_large.add(gsn)
            self._drop_carried()

    def _drop_carried(self) -> None:
        self._carried, self._carried_rows, self._carried_bytes = [], 0, 0

    def _add_part(self, gsn: int, rows: int, checksum: int) -> None:
        before = self.report.parts.get(gsn, (0, 0))
        self.report.parts[gsn] = (before[0] + rows, before[1] + checksum)

    def _complete(self, block: Block) -> None:
        """Checks and writes a block that ends with an end: every transaction in it but the first is complete."""
        self._drop_carried()
        self._note_control(block)
        is_commit = block.ids == self._ends[0]
        commits = Commits.of_column(block.gsn[is_commit], block.batch.column(Commit.__name__).flatten())
        self._check(block, commits)
        if len(commits.gsn):
            self.report.commit_ts_us = max(self.report.commit_ts_us, _micros_max(commits.commit_ts))
            self.report.generations = commits.generations() | self.report.generations
            self.report.clock_us = max(self.report.clock_us, _clock_max(block.batch.column(Commit.__name__)))
        if not self.report.unknown_ids:
            self._write(block, commits)

    def _check(self, block: Block, commits: Commits) -> None:
        """Checks count and checksum of each transaction; the driver checks one that began in another task."""
        ends = np.flatnonzero(block.is_end)
        starts = np.concatenate(([0], ends[:-1] + 1))
        sums = np.concatenate(([0], np.cumsum(block.crc)))
        counts, checksums = ends - starts, sums[ends] - sums[starts]
        if block.seq[0] != 1:
            gsn = int(block.gsn[0])
            self._add_part(gsn, int(counts[0]), int(checksums[0]))
            self.report.ended[gsn] = self._commit(block, int(ends[0]))
            ends, counts, checksums = ends[1:], counts[1:], checksums[1:]
        is_commit = block.ids[ends] == self._ends[0]
        wanted = np.searchsorted(commits.gsn, block.gsn[ends[is_commit]])
        good = (counts[is_commit] == commits.changes[wanted]) & (checksums[is_commit] == commits.checksum[wanted])
        if not good.all():
            row = int(np.flatnonzero(is_commit)[np.argmin(good)])
            gsn = int(block.gsn[ends[row]])
            raise WrongRecordsError(
                f"gsn {gsn} has {counts[row]} changes with checksum {checksums[row]}, its Commit says "
                f"{commits.changes[wanted][np.argmin(good)]} and {commits.checksum[wanted][np.argmin(good)]}"
            )
        if counts[~is_commit].any():
            raise WrongRecordsError("a skipped transaction that has changes")

    def _commit(self, block: Block, row: int) -> Commit:
        (found,) = block.batch.column(Commit.__name__)[row].as_py()
        order = Order(int.from_bytes(found["order"]["major"], "big"), int.from_bytes(found["order"]["minor"], "big"))
        names = ("commit_ts_us", "clock_us", "changes", "checksum", "generation")
        return Commit(found["source"], found["thread"], found["txid"], order, *(found[name] for name in names))

    def _note_control(self, block: Block) -> None:
        self.report.transactions += int(block.is_end.sum())
        for row in np.flatnonzero(block.ids == self._ends[1]):
            found = generic.decode(block.batch.column(OTHER)[int(row)].as_py(), Skipped)
            known = {name: getattr(found, name) for name in ("source", "thread", "txid", "reason")}
            self.report.skipped.append(SkippedTransaction(gsn=int(block.gsn[row]), **known))

    def _note_copies(self, block: Block, commits: Commits) -> None:
        """Notes Copied and Stale records when rows are written: the Commit may be in another task or landing."""
        ids = self._params.control_ids
        for row in np.flatnonzero(np.isin(block.ids, (ids[Copied.__name__], ids[Stale.__name__]))):
            gsn, data = int(block.gsn[row]), block.batch.column(OTHER)[int(row)].as_py()
            source, generation = commits.source_of(gsn)
            if block.ids[row] == ids[Copied.__name__]:
                self.report.copied.append(_copied(gsn, source, generation, generic.decode(data, Copied)))
            else:
                stale = generic.decode(data, Stale)
                tables = tuple(f"{source}.{table}" for table in stale.tables)
                self.report.stale.append(StaleTables(gsn=gsn, source=source, tables=tables, reason=stale.reason))

    def _write(self, block: Block, commits: Commits) -> None:
        self._note_copies(block, commits)
        dropped = self.report.too_large
        keep = ~np.isin(block.gsn, list(dropped)) if dropped else None
        names = set(block.batch.schema.names)
        for schema_id in np.unique(block.ids).tolist():
            avro = self._params.tables.get(schema_id)
            if avro is None:
                # a control record: unknown ids are found before
                continue
            is_here = block.ids == schema_id
            name, gsn = table_column(schema_id), block.gsn[is_here]
            if name in names:
                changes = block.batch.column(name).flatten()
            else:
                changes = _plain(avro, block.batch.column(PLAIN).filter(pa.array(is_here)))
            if keep is not None and not keep.all():
                left = keep[is_here]
                changes, gsn = changes.filter(pa.array(left)), gsn[left]
            table = lake_table(avro)
            self._files.add(schema_id, table, stream_rows(table, changes, gsn, commits))

    def write_carried(self, data: bytes, commit: Commit) -> None:
        """In the driver: writes rows from the end of a task whose Commit was in the next task."""
        for batch in pa.ipc.open_stream(data):
            block = Block.of(batch, self._ends)
            self._write(block, Commits.of({int(block.gsn[0]): commit}))

    def close(self) -> list[File]:
        return self._files.close()


def _plain(avro: str, bodies: pa.Array) -> pa.StructArray:
    try:
        return plain_changes(lake_table(avro), bodies.to_pylist())
    except PlainDecodeError as error:
        raise WrongRecordsError(str(error)) from error


def _micros_max(instants: pa.Array) -> int:
    return int(whole_numbers(instants.cast(pa.int64())).max())


def _clock_max(commits: pa.ListArray) -> int:
    return int(whole_numbers(pc.struct_field(commits.flatten(), "clock_us")).max())


def _copied(gsn: int, source: str, generation: int, found: Copied) -> CopiedTables:
    lows: dict[str, Order] = {}
    for chunk in found.chunks:
        lows[chunk.table] = min(chunk.low, lows.get(chunk.table, chunk.low))
    return CopiedTables(
        gsn=gsn,
        source=source,
        copy_id=found.copy,
        generation=generation,
        tables=tuple(f"{source}.{table}" for table in found.tables),
        lows={f"{source}.{table}": f"{low.major}.{low.minor}" for table, low in lows.items()},
    )


def _to_ipc(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())
