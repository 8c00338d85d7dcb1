"""The copies of a source's tables in its extractor: planned, then landed by Spark, then readable.

Rows that are older than the log are read from the database itself. The extractor opens a view of the database and plans
chunks (one copy per table); Spark tasks read and land them; the ledger topic records which chunks have landed. When all
chunks of a copy have landed and the marks have passed its `high`, `Copied` is published as a separate transaction: the
table can be read from the gsn of that transaction on.

With a snapshot, `low` and `high` are the snapshot's position in the log. Without one, a chunk contains the rows as of
the time at which it is read: `low` is the mark when the chunk was planned, and `high` the end of the log when all
chunks have landed. A row may then be newer than `low`; the changes above `low` contain whole rows and replace it by
key.

The state of copies is stored with the source's position, in the same Kafka transaction as the chunks and as `Copied`. A
view ends with its process: copies whose chunks had not all landed by then are planned again.

A table that must be copied is `Stale` until its copy is readable, because the log does not contain its rows. `Stale` is
published before any change that was read after the cause was found. A copy that an operator requested replaces a valid
one, so the table is not stale meanwhile.
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
from lowwater_extractor.change_batch import FrameList
from lowwater_extractor.encoders import RegisteredEncoders
from lowwater_extractor.snapshot.copy_rules import LandedSet, given_up_tables, needs_copy, wanted_tables
from lowwater_extractor.snapshot.stale import PendingStale, control_frame

STEP_SECONDS = 0.2
#: number of chunks of a copy that must not become readable
NEVER_WHOLE = (1 << 31) - 1
#: tables planned in one step: the stream is polled between two steps
TABLES_PER_STEP = 200

_log = structlog.get_logger()


@dataclass
class _Open:
    """An open view, the tables that it has not planned yet, and the copies whose chunks are read under it."""

    view: TableView
    waiting: set[str]
    copies: set[str] = field(default_factory=set)


class Copies:
    """The copies in one session. Nothing here blocks: it is called between polls."""

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
        """`headers`: of lowwater's record types. `copies`: from the position, of this generation or an earlier one."""
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
            # no other record of this generation will report that the table is gone
            if copy.generation != generation and copy.table not in there:
                self.pending_stale.add(copy.table, "it no longer existed when the source was reset")
        #: tables whose copy is cancelled because they were dropped or are no longer configured
        self._given_up = given_up_tables(tables, self.copies, landed)
        #: tables that must not be planned before the marks have reached this order: see `look_at_versions`
        self._not_before: dict[str, Order] = {}
        #: ids of requests for tables that do not exist
        self._refused: set[str] = set()
        #: request for all tables → the tables that existed when it was received
        self._all_tables: dict[str, list[str]] = {}
        self._views: list[_Open] = []
        #: copies without a snapshot whose chunks have all landed → returns the mark of the end of the log at that time
        self._ends: dict[str, Callable[[], Order | None]] = {}
        #: the last version of each table in the stream that was compared with its copy
        self._looked_at: dict[str, TableSchema] = {}
        #: stale tables for which a copy was requested
        self._stale: dict[str, Order] = {}
        #: stale tables that were announced, or are about to be
        self._announced: dict[str, Order] = {}
        self._stepped_at = 0.0
        #: copies whose chunks must not be read any more: an operator cancelled them, or the source was reset
        self._cancelled: list[TableCopy] = [c for c in copies if c.generation != generation and not c.is_over]
        #: `copies` has changes that are not in the position yet
        self.is_changed = False

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._stepped_at < STEP_SECONDS:
            return False
        self._stepped_at = now
        return True

    # -- requests ----------------------------------------------------------------------------------------

    def request(self, requests: Iterable[CopyRequest]) -> None:
        """Handle the requests of an operator or of a new lake; each request is handled once."""
        for request in self._by_table(requests):
            copy = self.copies.get(request.table)
            if request.request in self._refused or (copy is not None and copy.request == request.request):
                continue
            if request.is_cancel:
                self._cancel(request, copy)
            elif self._wanted.get(request.table) != request.request:
                self._want(request.table, request.reason, request.request, is_stale=False)

    def _by_table(self, requests: Iterable[CopyRequest]) -> list[CopyRequest]:
        """Expand a request for all tables to one per table that has no request of its own.

        The tables are listed only once per request.
        """
        found = list(requests)
        own = {request.table for request in found}
        for request in [request for request in found if request.table == ALL_TABLES]:
            if request.request not in self._all_tables:
                self._all_tables[request.request] = [table.full_name for table in self._source.tables_to_copy()]
            found += (replace(request, table=name) for name in self._all_tables[request.request] if name not in own)
        return [request for request in found if request.table != ALL_TABLES]

    def _cancel(self, request: CopyRequest, copy: TableCopy | None) -> None:
        """An earlier readable copy remains readable; a table without one is copied only on another request."""
        _log.info("copy cancelled", source=self._name, table=request.table, why=request.reason)
        self._wanted.pop(request.table, None)
        if copy is None:
            copy = TableCopy(
                request.table, "", 0, 0, ORDER_MIN, ORDER_MIN, is_copied=False, is_cancelled=True,
                generation=self._generation,
            )  # fmt: skip
        elif not copy.is_copied and not copy.is_cancelled:
            self._cancelled.append(copy)
            copy = replace(copy, is_cancelled=True)
        self.copies[request.table] = replace(copy, request=request.request)
        self.is_changed = True

    def look_at_versions(self, seen: Mapping[str, TableSchema], at: Order) -> None:
        """Request copies of tables whose new version changed rows without changes in the log.

        `seen`: the last version of each table in the stream, which has been read up to `at`. Changes before the DDL
        statement do not have the new values, and would replace rows of a copy whose `low` is below them. So no copy is
        planned before the marks have reached `at`.
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
                # the copy in progress contains the effect of the statement, the readable one does not
                self.pending_stale.add(table, why)
            self.copies[table] = replace(copy, seen_schema_id=new)
            self.is_changed = True

    def _why_copy(self, table: str, last: int, new: int) -> str:
        """Return why the new version requires a copy; empty if the log contains all changes of its rows."""
        before, after = (avro_columns(self._schema_of(schema_id)) for schema_id in (last, new))
        if avro_key(self._schema_of(last)) != avro_key(self._schema_of(new)):
            return "its key was changed"
        # columns that are added from documents are never dropped
        if REST not in after and (returned := sorted(self._encoders.returned_columns(last, new))):
            return f"column {returned[0]} was dropped and added again"
        if needs_copy(before, after, self._source.filled_columns(table)):
            return "its rows were changed together with its columns"
        return ""

    def _look_at_new(self, table: str, at: Order) -> None:
        """Copy a table that was created in this session: rows that it was created with may not be in the log.

        If it was dropped again, or was added to the config and dropped before this session, those rows are lost.
        """
        if table in self._wanted:
            self._not_before[table] = at
            return
        tables = {known.full_name for known in self._source.tables_to_copy()}
        if table in tables:
            self._not_before[table] = at
            self._want(table, "it is new")
        elif tables and all(known.full_name != table for known in self._source.discover()):
            self.pending_stale.add(table, "it was dropped before it could be copied")

    def announce_stale(self, stale: Mapping[str, StaleTable]) -> None:
        """Add tables to `pending_stale`, which is published with the next records, even if no copy is possible yet."""
        for table, found in stale.items():
            copy = self.copies.get(table)
            # a copy in progress is not the one that readers use now
            is_right = copy is not None and copy.is_copied and copy.low >= found.order
            if not is_right and self._announced.get(table) != found.order:
                self._announced[table] = found.order
                self.pending_stale.add(table, found.reason)

    def look_at_stale(self, stale: Mapping[str, StaleTable], mark: Order) -> None:
        """Request copies of stale tables once the marks have reached them: a copy planned earlier would be invalid."""
        for table, (order, reason) in stale.items():
            copy = self.copies.get(table)
            if order <= mark and self._stale.get(table) != order and (copy is None or copy.low < order):
                # only once: the table may have been dropped, and then cannot be copied
                self._stale[table] = order
                self._want(table, reason, is_stale=self._announced.get(table) != order)

    def _want(self, table: str, why: str, request: str = "", *, is_stale: bool = True) -> None:
        """`is_stale`: the table is stale, and that was not announced yet."""
        _log.info("to be copied again", source=self._name, table=table, why=why)
        self._wanted[table] = request
        if is_stale:
            self.pending_stale.add(table, why)
            self._take_back(table)

    def _take_back(self, table: str) -> None:
        """Invalidate the table's copy, in the position too, so that a new session copies it in any case."""
        copy = self.copies.get(table)
        if copy is None:
            return
        if copy.is_copied:
            self._wanted[table] = self._wanted[table] or copy.request
            del self.copies[table]
        else:
            # a cancelled copy too: the earlier copy, which remained readable, is no longer valid
            self.copies[table] = replace(copy, chunks=NEVER_WHOLE, is_cancelled=False)
        self.is_changed = True

    # -- planning ----------------------------------------------------------------------------------------

    def plan(self, mark: Order, *, is_at_end: bool) -> list[Chunk]:
        """Return the chunks to publish now; `copies` is then to be stored in the position with them.

        `mark`: the lowest mark of the threads; every read from now on sees all commits at or below it. `is_at_end`: the
        log was read to its end there, and no transaction was open.
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
            # tables that are no longer in `_wanted` were cancelled after the view was opened for them
            found_tables = open_.view.plan(TABLES_PER_STEP)
            # tables that were altered or became stale after the view was opened are left to another view
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
        """Return whether the table became stale after the view: such a copy could never become readable."""
        stale = self._stale.get(planned.table.full_name, ORDER_MIN)
        return bool(planned.chunks) and (mark if planned.at is None else planned.at) < stale

    def _gone(self, open_: _Open, table: str) -> list[Chunk]:
        _log.warning("table to copy does not exist", source=self._name, table=table)
        self._refused.add(self._wanted.pop(table))
        self._not_before.pop(table, None)
        open_.waiting.discard(table)
        before = self.copies.pop(table, None)
        return [] if before is None or before.is_over else [self._closing(before)]

    def _closing(self, copy: TableCopy) -> Chunk:
        """Return the chunk of an empty copy that replaces `copy`, so that no chunk of it is awaited any more."""
        _log.info("copy discarded", source=self._name, table=copy.table, copy=copy.copy)
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
            # the stream may not have reached the DDL statement of this version yet. If that statement rewrites rows, a
            # table without a snapshot is copied again; with one, the earlier copy is stale from that statement on
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
        """Return the schema id of the last version in the stream, in this session or for the last copy; 0: none."""
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
            _log.warning("view lost: its tables are copied again", **error.fields())
            self._close(open_)
            changed = [copy.table for copy in unfinished]
        for copy in unfinished:
            if copy.table in changed and copy.table not in self._wanted:
                self._want(copy.table, "the planned chunks can no longer be read", is_stale=False)
                open_.copies.discard(copy.copy)

    def _close(self, open_: _Open) -> None:
        open_.view.close()
        self._views.remove(open_)

    # -- becoming readable -------------------------------------------------------------------------------

    @property
    def is_any_whole(self) -> bool:
        """Whether there is a copy whose chunks have all landed and that is not readable yet."""
        return any(not c.is_over and self._landed.has_all(c) for c in self.copies.values())

    def ask_ends(self, stream: Stream) -> None:
        """Set `high` of copies without a snapshot whose chunks have all landed.

        After a restart the new session asks again and gets a later end of the log.
        """
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
        """Return a transaction with the stale tables and with the copies that are complete and below the marks.

        Its order is directly after its thread's mark and below all later commits, so each mark of the log allows at
        most `free_orders` such transactions. Its order is the mark of the thread until the log advances.
        """
        thread, mark = min(marks.items(), key=lambda item: item[1].order)
        ready = [c for c in self.copies.values() if not c.is_over and self._landed.has_all(c)]
        ready = [c for c in ready if mark.order >= c.high and c.table not in self._wanted]
        # a copy that began before its table became stale must not end that state
        ready = [c for c in ready if c.low >= self._announced.get(c.table, ORDER_MIN)]
        order = Order(mark.order.major + 1, 0)
        if mark.order.minor != U64_MAX:
            # the mark is that of the last announcement
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
        return SourceTransaction(thread, txid, order, now_us, FrameList(frames), size, len(frames))

    def _frame(self, copy: TableCopy) -> Frame:
        # all chunks of a view have the same `low`: one entry per table is enough
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
