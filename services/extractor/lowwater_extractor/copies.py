"""The copies of a source's tables, as its extractor sees them: planned, then landed by Spark, then readable.

A table's rows that are older than the log come from the database itself. The extractor opens a view of the database
and plans chunks (one copy for each table); Spark's tasks read and land them; the ledger topic tells which have
landed. Once all chunks of a copy are there and the marks have passed its `high`, `Copied` is published as a
transaction of its own: from its gsn on the table can be read.

What was planned and what is readable lies in the source's position, and is written in the same Kafka transaction as
the chunks and as `Copied`. The view does not outlive the process: what had not landed by then is planned anew.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from lowwater import topics
from lowwater.bus.consumer import AssignedConsumer, read_to_end
from lowwater.codec import generic
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import read_long
from lowwater.codec.wire import schema_id_of
from lowwater.config import KafkaConfig
from lowwater.errors import SourceLostError
from lowwater.positions import Order
from lowwater.record_codec import RecordCodec
from lowwater.records import Chunk, Copied, CopiedChunk, Landed, TableCopy
from lowwater_extractor.source import Encoders, Frame, PlannedTable, Source, SourceTransaction, TableView, ThreadMark

STEP_SECONDS = 0.2
#: tables that are planned in one step: the stream goes on in between
TABLES_PER_STEP = 200

_log = structlog.get_logger()


class LandedChunks:
    """Which chunks have landed, as the ledger topic tells it."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, group: str) -> None:
        self._codec = codec
        self._by_copy: dict[str, set[int]] = {}
        topic = topics.ledger(group)
        messages, end = read_to_end(kafka, topic)
        self._take(messages)
        self._consumer = AssignedConsumer(kafka, "lowwater.copies", {(topic, 0): end})

    def _take(self, messages: Sequence[Any]) -> None:
        for message in messages:
            value = message.value() or b""
            if self._codec.record_type(value) is Landed:
                for chunk in self._codec.decode(value, Landed).chunks:
                    self._by_copy.setdefault(chunk.copy, set()).add(chunk.chunk)

    def poll(self) -> None:
        self._take(self._consumer.consume(1_000, 0.0))

    def has_all(self, copy: TableCopy) -> bool:
        return len(self._by_copy.get(copy.copy, ())) >= copy.chunks

    def close(self) -> None:
        self._consumer.close()


def wanted_tables(tables: Sequence[TableSchema], copies: Mapping[str, TableCopy], landed: LandedChunks) -> list[str]:
    """Those that must be copied, or copied anew: the view of a copy that is not whole is gone with its process."""
    found = []
    for table in tables:
        copy = copies.get(table.full_name)
        if copy is None or not (copy.is_copied or landed.has_all(copy)):
            found.append(table.full_name)
    return found


class Copies:
    """One session's. `step` is called in between polls and never waits."""

    def __init__(
        self,
        name: str,
        source: Source,
        copies: Sequence[TableCopy],
        landed: LandedChunks,
        encoders: Encoders,
        copied_header: bytes,
    ) -> None:
        self._name = name
        self._source = source
        self._landed = landed
        self._encoders = encoders
        self._copied_header = copied_header
        self.copies: dict[str, TableCopy] = {copy.table: copy for copy in copies}
        self._wanted = wanted_tables(source.tables_to_copy(), self.copies, landed)
        self._view: TableView | None = None
        self._view_copies: set[str] = set()
        self._stepped_at = 0.0
        if self._wanted:
            _log.info("tables are to be copied", source=name, tables=len(self._wanted))

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._stepped_at < STEP_SECONDS:
            return False
        self._stepped_at = now
        return bool(self._wanted) or any(not copy.is_copied for copy in self.copies.values())

    # -- planning ----------------------------------------------------------------------------------------

    def plan(self) -> list[Chunk]:
        """Chunks to publish now, with `copies` as the position then has them."""
        self._landed.poll()
        self._look_after_view()
        if not self._wanted:
            return []
        if self._view is None:
            self._view = self._source.begin_view(self._wanted)
        found: list[Chunk] = []
        for planned in self._view.plan(TABLES_PER_STEP):
            found += self._chunks(planned)
            self._wanted.remove(planned.table.full_name)
        return found

    def _chunks(self, planned: PlannedTable) -> list[Chunk]:
        table = self._encoders.versioned(planned.table)
        schema_id = schema_id_of(self._encoders.encoder(table).header)
        before = self.copies.get(table.full_name)
        copy = uuid.uuid4().hex[:16]
        count = len(planned.chunks)
        self.copies[table.full_name] = TableCopy(
            table.full_name, copy, count, planned.low, planned.high, is_copied=False
        )
        self._view_copies.add(copy)
        _log.info("copy planned", source=self._name, table=table.full_name, copy=copy, chunks=count)
        return [
            Chunk(
                source=self._name,
                copy=copy,
                table=table.full_name,
                chunk=number,
                chunks=count,
                schema_id=int(schema_id),
                bounds=bounds,
                low=planned.low,
                high=planned.high,
                rows_estimate=rows,
                replaces="" if before is None or before.is_copied else before.copy,
            )
            for number, (bounds, rows) in enumerate(planned.chunks, 1)
        ]

    def _look_after_view(self) -> None:
        if self._view is None:
            return
        open_ = [c for c in self.copies.values() if c.copy in self._view_copies and not self._landed.has_all(c)]
        if not self._wanted and not open_:
            _log.info("all chunks have landed", source=self._name)
            self._close_view()
            return
        try:
            self._view.keep()
        except SourceLostError as error:
            _log.warning("the view of a copy is lost: its tables are copied anew", **error.fields())
            self._close_view()
            self._wanted += [copy.table for copy in open_ if copy.table not in self._wanted]

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()
        self._view, self._view_copies = None, set()

    # -- becoming readable -------------------------------------------------------------------------------

    def copied(
        self, marks: Mapping[int, ThreadMark], published: Callable[[int], Order], now_us: int
    ) -> SourceTransaction | None:
        """The transaction that makes copies readable, if any is whole and the marks have passed it.

        Its order lies right behind its thread's mark, below everything that can still come; so there is one at most
        for each mark.
        """
        thread, mark = min(marks.items(), key=lambda item: item[1].order)
        ready = [c for c in self.copies.values() if not c.is_copied and self._landed.has_all(c)]
        ready = [c for c in ready if mark.order >= c.high]
        order = Order(mark.order.major + 1, 0)
        if not ready or order <= published(thread):
            return None
        frames = [self._frame(copy) for copy in ready]
        size = sum(len(header) + len(body) for header, body in frames)
        for copy in ready:
            self.copies[copy.table] = replace(copy, is_copied=True)
        _log.info("copied", source=self._name, tables=[c.table for c in ready][:10], count=len(ready))
        txid = f"copied-{ready[0].copy}"
        return SourceTransaction(thread, txid, order, now_us, frames, size, len(frames))

    def _frame(self, copy: TableCopy) -> Frame:
        # all chunks of a view have one `low`: one line for the table is enough
        chunk = CopiedChunk(copy.table, 1, copy.low, copy.high)
        body = generic.encode(Copied(0, copy.copy, (copy.table,), (chunk,)))
        _, behind_seq = read_long(body, 0)
        return self._copied_header, body[behind_seq:]

    def close(self) -> None:
        self._close_view()
        self._landed.close()
