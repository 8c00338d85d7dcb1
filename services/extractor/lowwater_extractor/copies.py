"""The copies of a source's tables, as its extractor sees them: planned, then landed by Spark, then readable.

A table's rows that are older than the log come from the database itself. The extractor opens a view of the database
and plans chunks (one copy for each table); Spark's tasks read and land them; the ledger topic tells which have
landed. Once all chunks of a copy are there and the marks have passed its `high`, `Copied` is published as a
transaction of its own: from its gsn on the table can be read.

What was planned and what is readable lies beside the source's position, and is written in the same Kafka transaction as
the chunks and as `Copied`. A view does not outlive the process: what had not landed by then is planned anew.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from lowwater.codec import generic
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import read_long
from lowwater.codec.wire import schema_id_of
from lowwater.errors import SourceLostError
from lowwater.positions import Order
from lowwater.records import Chunk, Copied, CopiedChunk, CopyRequest, TableCopy
from lowwater_extractor.copy_rules import LandedSet, avro_columns, given_up_tables, needs_copy, wanted_tables
from lowwater_extractor.encoders import RegisteredEncoders
from lowwater_extractor.source import Frame, PlannedTable, Source, SourceTransaction, TableView, ThreadMark

STEP_SECONDS = 0.2
#: tables that are planned in one step: the stream goes on in between
TABLES_PER_STEP = 200

_log = structlog.get_logger()


@dataclass
class _Open:
    """A view, the tables that it has not planned yet, and the copies whose chunks are read under it."""

    view: TableView
    waiting: set[str]
    copies: set[str] = field(default_factory=set)


class Copies:
    """One session's. Nothing here waits: it is called in between polls."""

    def __init__(
        self,
        name: str,
        source: Source,
        copies: Sequence[TableCopy],
        landed: LandedSet,
        encoders: RegisteredEncoders,
        copied_header: bytes,
        schema_of: Callable[[int], str],
    ) -> None:
        self._name = name
        self._source = source
        self._landed = landed
        self._encoders = encoders
        self._copied_header = copied_header
        self._schema_of = schema_of
        self.copies: dict[str, TableCopy] = {copy.table: copy for copy in copies}
        tables = source.tables_to_copy()
        self._wanted: dict[str, str] = dict.fromkeys(wanted_tables(tables, self.copies, landed), "")
        #: tables whose copy will not be finished, because they are gone or are not to be copied any more
        self._given_up = given_up_tables(tables, self.copies, landed)
        #: an operator's words about tables that are not there
        self._refused: set[str] = set()
        self._views: list[_Open] = []
        #: each table's version in the stream that was compared with its copy
        self._looked_at: dict[str, TableSchema] = {}
        self._stepped_at = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._stepped_at < STEP_SECONDS:
            return False
        self._stepped_at = now
        return True

    # -- what is to be copied ----------------------------------------------------------------------------

    def request(self, requests: Iterable[CopyRequest]) -> None:
        """An operator's words; each is answered once."""
        for word in requests:
            copy = self.copies.get(word.table)
            if word.request in self._refused:
                continue
            if (copy is None or copy.request != word.request) and self._wanted.get(word.table) != word.request:
                self._want(word.table, f"an operator wants it: {word.reason}", word.request)

    def look_at_versions(self, seen: Mapping[str, TableSchema]) -> None:
        """`seen`: each table's last version in the stream."""
        for table, version in seen.items():
            if self._looked_at.get(table) is version:
                continue
            self._looked_at[table] = version
            copy = self.copies.get(table)
            new = int(schema_id_of(self._encoders.encoder(version).header))
            if copy is None or copy.schema_id == new:
                continue
            before, after = (avro_columns(self._schema_of(schema_id)) for schema_id in (copy.schema_id, new))
            if needs_copy(before, after, self._source.filled_columns(table)):
                self._want(table, "its rows were changed together with its columns")

    def _want(self, table: str, why: str, request: str = "") -> None:
        _log.info("to be copied anew", source=self._name, table=table, why=why)
        self._wanted[table] = request

    # -- planning ----------------------------------------------------------------------------------------

    def plan(self) -> list[Chunk]:
        """Chunks to publish now, with `copies` as the position then has them."""
        self._landed.poll()
        for open_ in list(self._views):
            self._look_after(open_)
        waiting = {table for open_ in self._views for table in open_.waiting}
        if new := [table for table in self._wanted if table not in waiting]:
            _log.info("a view of the database is opened", source=self._name, tables=len(new))
            self._views.append(_Open(self._source.begin_view(new), set(new)))
        found: list[Chunk] = []
        for open_ in self._views:
            tables = open_.view.plan(TABLES_PER_STEP)
            self._encoders.announce([self._encoders.versioned(planned.table) for planned in tables if planned.chunks])
            for planned in tables:
                found += self._chunks(open_, planned) if planned.chunks else self._gone(open_, planned.table.full_name)
        given_up, self._given_up = self._given_up, []
        return found + [self._closing(self.copies.pop(table)) for table in given_up]

    def _gone(self, open_: _Open, table: str) -> list[Chunk]:
        _log.warning("there is no such table to copy", source=self._name, table=table)
        self._refused.add(self._wanted.pop(table))
        open_.waiting.discard(table)
        before = self.copies.pop(table, None)
        return [] if before is None or before.is_copied else [self._closing(before)]

    def _closing(self, copy: TableCopy) -> Chunk:
        """A copy of no chunks: nothing of the one that it replaces is waited for any more."""
        _log.info("copy given up", source=self._name, table=copy.table, copy=copy.copy)
        new = uuid.uuid4().hex[:16]
        return Chunk(self._name, new, copy.table, 0, 0, copy.schema_id, b"", copy.low, copy.high, 0, copy.copy)

    def _chunks(self, open_: _Open, planned: PlannedTable) -> list[Chunk]:
        table = self._encoders.versioned(planned.table)
        name, count, low, high = table.full_name, len(planned.chunks), planned.low, planned.high
        schema_id = int(schema_id_of(self._encoders.encoder(table).header))
        before = self.copies.get(name)
        copy = uuid.uuid4().hex[:16]
        request = self._wanted.pop(name) or (before.request if before else "")
        self.copies[name] = TableCopy(name, copy, count, schema_id, low, high, is_copied=False, request=request)
        open_.waiting.discard(name)
        open_.copies.add(copy)
        _log.info("copy planned", source=self._name, table=name, copy=copy, chunks=count)
        replaces = "" if before is None or before.is_copied else before.copy
        return [
            Chunk(self._name, copy, name, number, count, schema_id, bounds, low, high, rows, replaces)
            for number, (bounds, rows) in enumerate(planned.chunks, 1)
        ]

    def _look_after(self, open_: _Open) -> None:
        unfinished = [c for c in self.copies.values() if c.copy in open_.copies and not self._landed.has_all(c)]
        if not open_.waiting and not unfinished:
            _log.info("all chunks of a view have landed", source=self._name)
            self._close(open_)
            return
        try:
            changed = open_.view.keep([copy.table for copy in unfinished])
        except SourceLostError as error:
            _log.warning("a view is lost: its tables are copied anew", **error.fields())
            self._close(open_)
            changed = [copy.table for copy in unfinished]
        for copy in unfinished:
            if copy.table in changed and copy.table not in self._wanted:
                self._want(copy.table, "what was planned can no longer be read")
                open_.copies.discard(copy.copy)

    def _close(self, open_: _Open) -> None:
        open_.view.close()
        self._views.remove(open_)

    # -- becoming readable -------------------------------------------------------------------------------

    @property
    def is_any_whole(self) -> bool:
        """One that has landed whole, and is not readable yet."""
        return any(not c.is_copied and self._landed.has_all(c) for c in self.copies.values())

    def copied(
        self, marks: Mapping[int, ThreadMark], published: Callable[[int], Order], now_us: int
    ) -> SourceTransaction | None:
        """The transaction that makes copies readable, if any is whole and the marks have passed it.

        Its order lies right behind its thread's mark, below everything that can still come; so there is one at most
        for each mark.
        """
        thread, mark = min(marks.items(), key=lambda item: item[1].order)
        ready = [c for c in self.copies.values() if not c.is_copied and self._landed.has_all(c)]
        ready = [c for c in ready if mark.order >= c.high and c.table not in self._wanted]
        order = Order(mark.order.major + 1, 0)
        if not ready or order <= published(thread):
            return None
        frames = [self._frame(copy) for copy in ready]
        size = sum(len(header) + len(body) for header, body in frames)
        for copy in ready:
            self.copies[copy.table] = replace(copy, is_copied=True)
        _log.info("copied", source=self._name, tables=[c.table for c in ready][:10], count=len(ready))
        return SourceTransaction(thread, f"copied-{ready[0].copy}", order, now_us, frames, size, len(frames))

    def _frame(self, copy: TableCopy) -> Frame:
        # all chunks of a view have one `low`: one line for the table is enough
        chunk = CopiedChunk(copy.table, 1, copy.low, copy.high)
        body = generic.encode(Copied(0, copy.copy, (copy.table,), (chunk,)))
        _, behind_seq = read_long(body, 0)
        return self._copied_header, body[behind_seq:]

    def status(self) -> dict[str, int]:
        done = sum(copy.is_copied for copy in self.copies.values())
        return {"tables": len(self.copies), "copied": done, "waiting": len(self._wanted)}

    def close(self) -> None:
        for open_ in list(self._views):
            self._close(open_)
        self._landed.close()
