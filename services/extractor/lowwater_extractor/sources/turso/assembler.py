"""Assembles rows of the CDC table to whole committed transactions. No I/O, except that large ones spill to disk.

There is one writer at a time, so the changes of a transaction are adjacent and followed by its COMMIT. All visible rows
are committed. But `change_txn_id` does not identify a transaction (see decision 016):

- A statement that fires a trigger or cascades writes a separate COMMIT for these, in the middle of the transaction. So
  a transaction continues after its COMMIT as long as rows with the same `change_txn_id` follow.
- After a checkpoint the next transaction of a connection may have the id of the one before. Two such transactions that
  are read together are returned as one; rows that are read later are never added to a returned transaction.
- A statement that changed nothing writes a COMMIT with the id -1.

So a transaction is identified by the change id of its first change, which is unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from lowwater.errors import CodecError, LogGapError, LogUnknownError, SourceError
from lowwater.records.positions import Order
from lowwater_extractor._native.frames import Frames
from lowwater_extractor._native.row_bytes import take_changes
from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.relations import (
    COMMIT,
    COMMIT_MINOR,
    DELETE,
    INSERT,
    UPDATE,
    Captured,
    MakeBody,
)
from lowwater_extractor.sources.turso.schema.schema_rows import schema_line, table_of
from lowwater_extractor.sources.turso.schema.unlogged import is_another
from lowwater_extractor.sources.turso.tables import SCHEMA, Place, Tables, missing_table
from lowwater_extractor.sources.turso.wire.record import pieces, updated
from lowwater_extractor.sources.turso.wire.rows import WidthError
from lowwater_extractor.spill import SpillSpace
from lowwater_extractor.transaction_buffer import TransactionBuffer

THREAD = 1
#: instead of a `change_txn_id`: no transaction is open
_NONE = 0
#: bytes of changes that are added to the size at once
_COUNTED = 1 << 16

_log = structlog.get_logger()

#: change_id, change_time, change_txn_id, change_type, table_name, id, before, after, updates
LogRow = tuple[int, int, int, int, str, int, bytes | None, bytes | None, bytes | None]


class NowTables(Protocol):
    """Returns the database's tables at a change: their CREATE statements, and their locations in the file."""

    def __call__(self, change_id: int) -> tuple[Mapping[str, str], Mapping[str, Place]]: ...


class Assembler:
    """Takes log rows in order; committed transactions are in `committed`, from which the caller removes them."""

    def __init__(
        self, config: TursoConfig, source: str, tables: Tables, space: SpillSpace, at: int, now_tables: NowTables,
        cuts: Iterable[int] = (), *, is_schema_changed: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`is_schema_changed`: whether the database's schema has changed since it was last compared with the log."""
        self._config = config
        self._source = source
        self._tables = tables
        self._space = space
        self._now_tables = now_tables
        self._is_schema_changed = is_schema_changed
        #: COMMITs at which earlier polls ended: transactions before them may be published, so they end there again
        self._cuts = frozenset(cuts)
        #: the last row that was fed
        self.read_to = at
        #: the last COMMIT after which no row of its transaction can follow: the mark
        self.end = at
        self.committed: list[SourceTransaction] = []
        self.left_out: list[tuple[int, str, str]] = []
        #: change id → time and transaction id of each COMMIT from `end` on
        self.commits: dict[int, tuple[int, int]] = {}
        self._txn = _NONE
        self._committing = _NONE
        self._first = 0
        #: changes of the open transaction; None: no transaction is open
        self._buffer: TransactionBuffer[Frames] | None = None
        #: version 1 has no COMMIT rows: each change is a transaction
        self.alone = False
        #: change_id and time of its last COMMIT; it ends with a row of another transaction, or at the end of the log
        self._commit: tuple[int, int] | None = None

    def feed(self, rows: list[LogRow]) -> None:
        """Process rows: consecutive changes of one table on the fast path, the others one by one."""
        read_to = change_id = self.read_to
        time = size = 0
        frames = Frames() if self._buffer is None else self._buffer.frames
        captured, get = self._tables.captured, self._tables.captured.get
        at = 0
        try:
            while at < len(rows):
                change_id, time, txn, kind, table, rowid, before, after, updates = rows[at]
                if change_id != read_to + 1:
                    raise self._gap(read_to, change_id)
                if kind == COMMIT:
                    read_to, at = change_id, at + 1
                    self._grown(size)
                    size = 0
                    self._committed(change_id, time, txn)
                    if change_id in self._cuts:
                        self.settle()
                    continue
                if txn != self._txn:
                    frames = self._begin(change_id, txn)
                found = get(table)
                if found is not None and (quick := found.quick) is not None:
                    is_rowid_first = not found.definition.key
                    count, grown = take_changes(
                        rows, at, quick.code, quick.columns, is_rowid_first, quick.header, quick.out, quick.room, frames
                    )
                    if count:
                        read_to, at, size = read_to + count, at + count, size + grown
                        if size > _COUNTED:
                            self._grown(size)
                            size = 0
                        continue
                read_to, at = change_id, at + 1
                if found is None:
                    if table in captured:
                        continue
                    if table == SCHEMA:
                        self._schema(change_id, time, kind, rowid, before, after, updates)
                        continue
                    found = self._find(table, change_id)
                    if found is None:
                        continue
                try:
                    body = self._body(found, change_id, kind)(rowid, before, after, updates, time * 1_000_000)
                except (WidthError, CodecError):
                    # decoded again with the database's current columns, if they have changed
                    found = self._wider(table, change_id, after or before or b"")
                    try:
                        body = self._body(found, change_id, kind)(rowid, before, after, updates, time * 1_000_000)
                    except (WidthError, CodecError):
                        if not self._is_schema_changed():
                            raise
                        self._skip_row(table, change_id)
                        continue
                frames.append((found.header, body))
                size += len(body)
                if size > _COUNTED:
                    self._grown(size)
                    size = 0
            self._grown(size)
            if self.alone and self._buffer is not None:
                self._committed(change_id, time, self._txn)
        except (CodecError, SourceError) as error:
            error.source, error.thread = self._source, THREAD
            error.position = error.position or str(read_to)
            raise
        self.read_to = read_to

    def _body(self, found: Captured, change_id: int, kind: int) -> MakeBody:
        if kind == UPDATE:
            return found.update
        if kind == INSERT:
            return found.insert
        if kind == DELETE:
            return found.delete
        raise LogUnknownError(
            f"a change of type {kind}", position=str(change_id), hint="is the writer's Turso newer? update lowwater"
        )

    # -- transactions ------------------------------------------------------------------------------------

    def _begin(self, change_id: int, txn: int) -> Frames:
        if self._buffer is not None and self._commit is not None and txn == self._committing:
            # it continues after the COMMIT of a trigger
            self._txn, self._commit = txn, None
            return self._buffer.frames
        self._end(change_id)
        self._txn, self._first = txn, change_id
        self._buffer = TransactionBuffer(self._space, self._config.spill_bytes_max, Frames())
        return self._buffer.frames

    def _committed(self, change_id: int, time: int, txn: int) -> None:
        if self._buffer is not None and txn == (self._txn or self._committing):
            self._commit, self._committing, self._txn = (change_id, time), txn, _NONE
            self.commits[change_id] = (time, txn)
            return
        self._end(change_id)
        # the COMMIT of a statement that changed nothing
        self.end = change_id
        self.commits[change_id] = (time, txn)

    def _end(self, change_id: int) -> None:
        self.settle()
        if self._buffer is not None:
            self._without_commit(change_id)

    def settle(self) -> None:
        """End the open transaction if its COMMIT was read: another one follows, or the visible rows end here."""
        if self._buffer is None or self._commit is None:
            return
        (change_id, time), buffer, first = self._commit, self._buffer, self._first
        size, count = buffer.bytes, buffer.count
        self._forget()
        self.end = change_id
        if count:
            order, changes = Order(change_id, COMMIT_MINOR), buffer.changes()
            self.committed.append(SourceTransaction(THREAD, str(first), order, time * 1_000_000, changes, size, count))

    def _grown(self, size: int) -> None:
        if self._buffer is not None:
            self._buffer.grown(size)

    def _without_commit(self, change_id: int) -> None:
        what = "its COMMIT is missing: the writer turned capture off before it"
        if self._config.without_commit == "refuse":
            raise LogGapError(
                f"transaction {self._first}: {what}, so some of its changes may not be in the log",
                position=str(change_id),
                hint="reset the source, then its tables are copied again; or set without_commit: leave_out",
            )
        self.left_out.append((THREAD, str(self._first), what))
        self._forget()

    def _forget(self) -> None:
        self._buffer = self._commit = None
        self._txn = _NONE

    # -- tables ------------------------------------------------------------------------------------------

    def _find(self, name: str, change_id: int) -> Captured | None:
        try:
            return self._tables.find(name)
        except KeyError:
            # it was created or renamed without a change in the log
            try:
                return self._tables.adopt_unknown(name, self._now_tables(change_id)[0], change_id)
            except KeyError:
                if self._is_schema_changed():
                    # a name that a table had for a time: under its name of now it is stale
                    _log.warning("a row of an unknown table is skipped", source=self._source, table=name, at=change_id)
                    return None
                raise missing_table(name, self._source, change_id) from None

    def _wider(self, name: str, change_id: int, record: bytes) -> Captured:
        width = len(pieces(record))
        found = self._tables.adopt_wider(name, *self._now_tables(change_id), change_id, width)
        if found is None:
            # decoded again to raise the error
            found = self._tables.captured[name]
        assert found is not None
        return found

    def _skip_row(self, name: str, change_id: int) -> None:
        """Skip a row that does not fit its table, after renames that are not in the log.

        Another table may have had this name for a time. Both are stale, and are copied again.
        """
        known = self._tables.name_of(name)
        self._tables.mark_stale(known, change_id, "another table had its name for a time, without a change in the log")

    def _schema(
        self, change_id: int, time: int, kind: int, rowid: int, before: bytes | None, after: bytes | None,
        updates: bytes | None,
    ) -> None:  # fmt: skip
        was, now = (None if record is None else schema_line(record) for record in (before, after))
        if kind == INSERT and now is None:
            was, now = None, was
        if kind == DELETE and was is None:
            self._unsaid_drop(change_id, time, rowid)
            return
        if kind != DELETE and now is None:
            self._tables.is_unsure = True
            return
        if updates is not None:
            # for ALTER TABLE, the column of the CREATE statement contains the ALTER statement
            _log.info("schema", source=self._source, change_id=change_id, said=list(updated(updates).values()))
        old, new = (table_of(values) for values in (was, now))
        if old is not None and is_another(self._tables.text(old[0]), self._tables.page(old[0]), *old[1:]):
            # its rows were never read under this name, or with these columns
            self._tables.mark_stale(old[0], change_id, "it was altered, or a table got its name, without the log")
        if old is not None and (new is None or new[0] != old[0]):
            self._drop(old[0], change_id, time)
        if new is not None:
            self._tables.define(new[0], new[1], change_id, (rowid, new[2]))

    def _drop(self, name: str, change_id: int, time: int) -> None:
        dropped = self._tables.drop(name, change_id)
        if dropped is not None:
            assert self._buffer is not None
            self._buffer.frames.append(dropped.truncate(time * 1_000_000))

    def _unsaid_drop(self, change_id: int, time: int, rowid: int) -> None:
        """A table or an index was dropped, and the row does not identify it in the writers' capture mode."""
        self._tables.is_unsure = True
        name = self._tables.named_by(rowid)
        if name is not None:
            self._drop(name, change_id, time)

    # -- errors ------------------------------------------------------------------------------------------

    def _gap(self, read_to: int, change_id: int) -> LogGapError:
        return LogGapError(
            f"change {read_to + 1} is missing: {read_to} is followed by {change_id}",
            position=str(read_to),
            hint="only lowwater may delete from the CDC table; reset the source, then all tables are copied again",
        )


def cuts_behind(cuts: Iterable[int], position: int, end: int) -> list[int]:
    """Return the ends of polls after the durable position, with the end of one more poll."""
    return sorted({*(cut for cut in cuts if cut > position), end})
