"""The copies of a source's tables, as its extractor sees them: planned, then landed by Spark, then readable.

A table's rows that are older than the log come from the database itself. The extractor opens a view of the database
and plans chunks (one copy for each table); Spark's tasks read and land them; the ledger topic tells which have
landed. Once all chunks of a copy are there and the marks have passed its `high`, `Copied` is published as a
transaction of its own: from its gsn on the table can be read.

Under a snapshot `low` and `high` are its place in the log. Without one a chunk holds what was there when it was read:
`low` is the mark when it was planned, and `high` the end of the log as the database tells it when all chunks have
landed. A row may so be newer than `low`; the changes above `low` carry whole rows, and lie over it by key.

What was planned and what is readable lies beside the source's position, and is written in the same Kafka transaction as
the chunks and as `Copied`. A view does not outlive the process: what had not landed by then is planned again.

A table that has to be copied is `Stale` until then, because the log does not tell its rows: that is published first, in
front of all that the log has after it was known. A copy that an operator asked for replaces one that is right.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from lowwater.codec.avro import avro_columns, avro_key
from lowwater.codec.table import REST, TableSchema
from lowwater.control.commands import ALL_TABLES
from lowwater.errors import SourceLostError
from lowwater.records.positions import ORDER_MAX, ORDER_MIN, U64_MAX, Order
from lowwater.records.types import Chunk, Copied, CopiedChunk, CopyRequest, Stale, TableCopy
from lowwater.records.wire import schema_id_of
from lowwater_extractor.api import (
    Frame,
    PlannedTable,
    SeenVersions,
    Source,
    SourceTransaction,
    StaleTable,
    Stream,
    TableView,
    ThreadMark,
    WindowStream,
)
from lowwater_extractor.encoders import RegisteredEncoders
from lowwater_extractor.snapshot.copy_rules import LandedSet, given_up_tables, needs_copy, wanted_tables
from lowwater_extractor.snapshot.stale import PendingStale, control_frame

STEP_SECONDS = 0.2
#: the chunks of a copy that is not to be finished
NEVER_WHOLE = (1 << 31) - 1
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
        headers: Mapping[str, bytes],
        schema_of: Callable[[int], str],
        generation: int,
    ) -> None:
        """`headers`: of our own records. `copies`: as the position has them, of this generation or of one before."""
        self._name = name
        self._source = source
        self._landed = landed
        self._encoders = encoders
        self._copied_header = headers[Copied.__name__]
        self._schema_of = schema_of
        self._generation = generation
        self.pending_stale = PendingStale(headers[Stale.__name__])
        self.copies: dict[str, TableCopy] = {c.table: c for c in copies if c.generation == generation}
        tables = source.tables_to_copy()
        self._wanted: dict[str, str] = dict.fromkeys(wanted_tables(tables, self.copies, landed), "")
        for table in self._wanted:
            if table not in self.copies:
                self.pending_stale.add(table, "it has not been copied yet")
        there = {table.full_name for table in tables}
        for copy in copies:
            # nothing of this generation will ever say so
            if copy.generation != generation and copy.table not in there:
                self.pending_stale.add(copy.table, "it was gone when the source began again")
        #: tables whose copy will not be finished, because they are gone or are not to be copied any more
        self._given_up = given_up_tables(tables, self.copies, landed)
        #: tables that are not to be planned before the marks are there: see `look_at_versions`
        self._not_before: dict[str, Order] = {}
        #: an operator's words about tables that are not there
        self._refused: set[str] = set()
        #: by request: the tables that one for all tables is for
        self._all_tables: dict[str, list[str]] = {}
        self._views: list[_Open] = []
        #: of copies without a snapshot that have landed whole: the question where the log ended then
        self._ends: dict[str, Callable[[], Order | None]] = {}
        #: each table's version in the stream that was compared with its copy
        self._looked_at: dict[str, TableSchema] = {}
        #: tables whose copy is no longer right, as far as that was seen to
        self._stale: dict[str, Order] = {}
        #: those that were named as stale
        self._announced: dict[str, Order] = {}
        self._stepped_at = 0.0
        #: whose chunks are not to be read any more: by an operator's command, or because the source was reset
        self._cancelled: list[TableCopy] = [c for c in copies if c.generation != generation and not c.is_over]
        #: `copies` has something that the position does not have yet
        self.is_changed = False

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._stepped_at < STEP_SECONDS:
            return False
        self._stepped_at = now
        return True

    # -- what is to be copied ----------------------------------------------------------------------------

    def request(self, requests: Iterable[CopyRequest]) -> None:
        """An operator's words, or those of a lake that is new; each is answered once."""
        for word in self._by_table(requests):
            copy = self.copies.get(word.table)
            if word.request in self._refused or (copy is not None and copy.request == word.request):
                continue
            if word.is_cancel:
                self._cancel(word, copy)
            elif self._wanted.get(word.table) != word.request:
                self._want(word.table, word.reason, word.request, is_stale=False)

    def _by_table(self, requests: Iterable[CopyRequest]) -> list[CopyRequest]:
        """A request for all tables as one for each that has none of its own. What there is is asked for only once."""
        found = list(requests)
        own = {word.table for word in found}
        for word in [word for word in found if word.table == ALL_TABLES]:
            if word.request not in self._all_tables:
                self._all_tables[word.request] = [table.full_name for table in self._source.tables_to_copy()]
            found += (replace(word, table=name) for name in self._all_tables[word.request] if name not in own)
        return [word for word in found if word.table != ALL_TABLES]

    def _cancel(self, word: CopyRequest, copy: TableCopy | None) -> None:
        """What was readable before stays so; one that never was begins anew only by another word."""
        _log.info("copy cancelled", source=self._name, table=word.table, why=word.reason)
        self._wanted.pop(word.table, None)
        if copy is None:
            copy = TableCopy(
                word.table, "", 0, 0, ORDER_MIN, ORDER_MIN, is_copied=False, is_cancelled=True,
                generation=self._generation,
            )  # fmt: skip
        elif not copy.is_copied and not copy.is_cancelled:
            self._cancelled.append(copy)
            copy = replace(copy, is_cancelled=True)
        self.copies[word.table] = replace(copy, request=word.request)
        self.is_changed = True

    def look_at_versions(self, seen: Mapping[str, TableSchema], at: Order) -> None:
        """`seen`: each table's last version in the stream, which has been read up to `at`.

        Changes before the statement that made a version are rows without what it gave them: a copy whose `low` is
        below them would have them lie over its rows. So none is planned before the marks are at `at`.
        """
        versions = seen.take() if isinstance(seen, SeenVersions) else seen.items()
        for table, version in versions:
            if self._looked_at.get(table) is version:
                continue
            self._looked_at[table] = version
            copy = self.copies.get(table)
            if copy is None:
                self._look_at_new(table, at)
                continue
            new = int(schema_id_of(self._encoders.encoder(version).header))
            last = copy.seen_schema_id or copy.schema_id
            # 0: cancelled before it was ever planned
            if last in (0, new):
                continue
            why = self._why_copy(table, last, new)
            if why and (copy.is_over or copy.low < at):
                self._not_before[table] = at
                self._want(table, why)
                continue
            if why:
                # the copy that is under way has what the statement did, the one before it has not
                self.pending_stale.add(table, why)
            self.copies[table] = replace(copy, seen_schema_id=new)
            self.is_changed = True

    def _why_copy(self, table: str, last: int, new: int) -> str:
        """Empty where the log tells all that the new version does to the rows."""
        before, after = (avro_columns(self._schema_of(schema_id)) for schema_id in (last, new))
        if avro_key(self._schema_of(last)) != avro_key(self._schema_of(new)):
            return "its key was changed"
        # columns that grow from documents are never dropped
        if REST not in after and (returned := sorted(self._encoders.returned_columns(last, new))):
            return f"column {returned[0]} was dropped and added again"
        if needs_copy(before, after, self._source.filled_columns(table)):
            return "its rows were changed together with its columns"
        return ""

    def _look_at_new(self, table: str, at: Order) -> None:
        """Made since this session began. Some of its rows may be in no log: those that it was made with."""
        if table in self._wanted:
            self._not_before[table] = at
        elif any(known.full_name == table for known in self._source.tables_to_copy()):
            self._not_before[table] = at
            self._want(table, "it is new")

    def announce_stale(self, stale: Mapping[str, StaleTable]) -> None:
        """Published with the next records, whether the table can be copied yet or not."""
        for table, found in stale.items():
            copy = self.copies.get(table)
            # one that is under way is not what is read now
            is_right = copy is not None and copy.is_copied and copy.low >= found.order
            if not is_right and self._announced.get(table) != found.order:
                self._announced[table] = found.order
                self.pending_stale.add(table, found.reason)

    def look_at_stale(self, stale: Mapping[str, StaleTable], mark: Order) -> None:
        """Once the marks are there: a copy that was planned before would be no better."""
        for table, (order, reason) in stale.items():
            copy = self.copies.get(table)
            if order <= mark and self._stale.get(table) != order and (copy is None or copy.low < order):
                # once: a table that is gone by now is none to copy
                self._stale[table] = order
                self._want(table, reason, is_stale=self._announced.get(table) != order)

    def _want(self, table: str, why: str, request: str = "", *, is_stale: bool = True) -> None:
        """`is_stale`: nobody has been told yet that its state is not known."""
        _log.info("to be copied again", source=self._name, table=table, why=why)
        self._wanted[table] = request
        if is_stale:
            self.pending_stale.add(table, why)
            self._take_back(table)

    def _take_back(self, table: str) -> None:
        """Its copy is not right any more. The position says so, too: a new session copies it, whatever it is shown."""
        copy = self.copies.get(table)
        if copy is None:
            return
        if copy.is_copied:
            self._wanted[table] = self._wanted[table] or copy.request
            del self.copies[table]
        else:
            # also one that was cancelled: what was readable instead of it is not right any more
            self.copies[table] = replace(copy, chunks=NEVER_WHOLE, is_cancelled=False)
        self.is_changed = True

    # -- planning ----------------------------------------------------------------------------------------

    def plan(self, mark: Order, *, is_at_end: bool) -> list[Chunk]:
        """Chunks to publish now, with `copies` as the position then has them.

        `mark`: the lowest of the threads' marks. What lies at or below it can be seen by every read from now on.
        `is_at_end`: all that the log had then was read, and no transaction was open.
        """
        self._landed.poll()
        for open_ in list(self._views):
            self._look_after(open_)
        waiting = {table for open_ in self._views for table in open_.waiting}
        is_early = {t for t, at in self._not_before.items() if mark < at or (mark == at and not is_at_end)}
        if new := [table for table in self._wanted if table not in waiting and table not in is_early]:
            _log.info("a view of the database is opened", source=self._name, tables=len(new))
            self._views.append(_Open(self._source.begin_view(new), set(new)))
        found: list[Chunk] = []
        for open_ in self._views:
            # a table that is not wanted any more was cancelled after the view had been asked for it
            found_tables = open_.view.plan(TABLES_PER_STEP)
            # one that is altered since the view was asked for it, or has become stale, is left to another view
            is_late = is_early | {p.table.full_name for p in found_tables if self._was_stale_after(p, mark)}
            open_.waiting -= {planned.table.full_name for planned in found_tables} & is_late
            tables = [p for p in found_tables if p.table.full_name in self._wanted.keys() - is_late]
            self._encoders.announce([self._encoders.versioned(planned.table) for planned in tables if planned.chunks])
            for planned in tables:
                name = planned.table.full_name
                found += self._chunks(open_, planned, mark) if planned.chunks else self._gone(open_, name)
        given_up, self._given_up = self._given_up, []
        cancelled, self._cancelled = self._cancelled, []
        found += [self._closing(copy) for copy in cancelled]
        return found + [self._closing(self.copies.pop(table)) for table in given_up]

    def _was_stale_after(self, planned: PlannedTable, mark: Order) -> bool:
        """A copy that begins before that could never be readable."""
        stale = self._stale.get(planned.table.full_name, ORDER_MIN)
        return bool(planned.chunks) and (mark if planned.at is None else planned.at) < stale

    def _gone(self, open_: _Open, table: str) -> list[Chunk]:
        _log.warning("there is no such table to copy", source=self._name, table=table)
        self._refused.add(self._wanted.pop(table))
        self._not_before.pop(table, None)
        open_.waiting.discard(table)
        before = self.copies.pop(table, None)
        return [] if before is None or before.is_over else [self._closing(before)]

    def _closing(self, copy: TableCopy) -> Chunk:
        """A copy of no chunks: nothing of the one that it replaces is waited for any more."""
        _log.info("copy given up", source=self._name, table=copy.table, copy=copy.copy)
        new = uuid.uuid4().hex[:16]
        return Chunk(self._name, new, copy.table, 0, 0, copy.schema_id, b"", copy.low, copy.high, 0, copy.copy)

    def _chunks(self, open_: _Open, planned: PlannedTable, mark: Order) -> list[Chunk]:
        table = self._encoders.versioned(planned.table)
        name, count = table.full_name, len(planned.chunks)
        low, high = (mark, ORDER_MAX) if planned.at is None else (planned.at, planned.at)
        schema_id = int(schema_id_of(self._encoders.encoder(table).header))
        before = self.copies.get(name)
        is_replaced = before is not None and before.is_copied
        copy = uuid.uuid4().hex[:16]
        self._not_before.pop(name, None)
        request = self._wanted.pop(name) or (before.request if before else "")
        self.copies[name] = TableCopy(
            name, copy, count, schema_id, low, high, is_copied=False, request=request, generation=self._generation,
            # the stream may still be before the statement that made this version. Without a snapshot one that rewrites
            # rows makes the copy once more; with one, what is readable until then is stale from that statement on
            seen_schema_id=self._shown_schema_id(name, before) if planned.at is None or is_replaced else 0,
        )  # fmt: skip
        open_.waiting.discard(name)
        open_.copies.add(copy)
        _log.info("copy planned", source=self._name, table=name, copy=copy, chunks=count)
        replaces = "" if before is None or before.is_over else before.copy
        return [
            Chunk(self._name, copy, name, number, count, schema_id, bounds, low, high, rows, replaces)
            for number, (bounds, rows) in enumerate(planned.chunks, 1)
        ]

    def _shown_schema_id(self, table: str, before: TableCopy | None) -> int:
        """Of the last version that the stream has shown, in this session or to the copy before; 0: none."""
        shown = self._looked_at.get(table)
        if shown is not None:
            return int(schema_id_of(self._encoders.encoder(shown).header))
        return before.seen_schema_id or before.schema_id if before is not None and before.is_copied else 0

    def _look_after(self, open_: _Open) -> None:
        unfinished = [c for c in self.copies.values() if c.copy in open_.copies and not self._landed.has_all(c)]
        unfinished = [c for c in unfinished if not c.is_cancelled]
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
                self._want(copy.table, "what was planned can no longer be read", is_stale=False)
                open_.copies.discard(copy.copy)

    def _close(self, open_: _Open) -> None:
        open_.view.close()
        self._views.remove(open_)

    # -- becoming readable -------------------------------------------------------------------------------

    @property
    def is_any_whole(self) -> bool:
        """One that has landed whole, and is not readable yet."""
        return any(not c.is_over and self._landed.has_all(c) for c in self.copies.values())

    def ask_ends(self, stream: Stream) -> None:
        """The `high` of copies that have landed whole without a snapshot. A new session asks again, and later."""
        for copy in [c for c in self.copies.values() if c.high == ORDER_MAX and self._landed.has_all(c)]:
            if copy.copy not in self._ends:
                assert isinstance(stream, WindowStream), "a copy without a snapshot asks the stream for the log's end"
                self._ends[copy.copy] = stream.end_of_log()
            if (high := self._ends[copy.copy]()) is not None:
                del self._ends[copy.copy]
                self.copies[copy.table] = replace(copy, high=high)

    def announcement(
        self, marks: Mapping[int, ThreadMark], published: Callable[[int], Order], now_us: int
    ) -> SourceTransaction | None:
        """A transaction of ours: what is stale, and copies that are readable now, being whole and below the marks.

        Its order comes right after its thread's mark, below everything that can still come; so there are no more for
        each mark of the log's own than it has free orders. It is a mark itself, until the log has gone on.
        """
        thread, mark = min(marks.items(), key=lambda item: item[1].order)
        ready = [c for c in self.copies.values() if not c.is_over and self._landed.has_all(c)]
        ready = [c for c in ready if mark.order >= c.high and c.table not in self._wanted]
        # one that began before its table became stale again would end that too soon
        ready = [c for c in ready if c.low >= self._announced.get(c.table, ORDER_MIN)]
        order = Order(mark.order.major + 1, 0)
        if mark.order.minor != U64_MAX:
            # of the announcement before this one
            order = Order(mark.order.major, mark.order.minor + 1)
        has_any = ready or self.pending_stale
        if not has_any or order.minor >= mark.free_orders or order <= published(thread):
            return None
        frames = [*self.pending_stale.take(), *(self._frame(copy) for copy in ready)]
        size = sum(len(header) + len(body) for header, body in frames)
        for copy in ready:
            self.copies[copy.table] = replace(copy, is_copied=True)
        if ready:
            _log.info("copied", source=self._name, tables=[c.table for c in ready][:10], count=len(ready))
        txid = f"copied-{ready[0].copy}" if ready else f"stale-{uuid.uuid4().hex[:16]}"
        return SourceTransaction(thread, txid, order, now_us, frames, size, len(frames))

    def _frame(self, copy: TableCopy) -> Frame:
        # all chunks of a view have one `low`: one line for the table is enough
        chunk = CopiedChunk(copy.table, 1, copy.low, copy.high)
        return control_frame(self._copied_header, Copied(0, copy.copy, (copy.table,), (chunk,)))

    def status(self) -> dict[str, int]:
        done = sum(copy.is_copied for copy in self.copies.values())
        tables = sum(not copy.is_cancelled for copy in self.copies.values())
        return {"tables": tables, "copied": done, "waiting": len(self._wanted)}

    def close(self) -> None:
        for open_ in list(self._views):
            self._close(open_)
        self._landed.close()
