"""Assembles committed transactions from LogMiner's rows: by xid, over all threads at once.

A session mines all threads together, and the view returns their rows merged by SCN. So a record that belongs to a
transaction of another thread (the rollback of a dead instance, the end of an XA transaction) comes after the rows of
that transaction; no thread has to wait for another.

**After a restart** mining begins at the oldest transaction that was open, and all commits up to `read` have been
emitted before: these commits are skipped, and so are rows of transactions whose begin was not read. After `read`, a row
without a begin is an error: redo is missing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from zoneinfo import ZoneInfo

from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError, SourceError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.oracle import ddl
from lowwater_extractor.sources.oracle.ddl import Ddl, Effect, Name
from lowwater_extractor.sources.oracle.logminer.changes import (
    FRAME_MORE_BYTES,
    ChangeMaker,
    Changes,
    Kept,
    Tables,
    names_row,
    unpack,
)
from lowwater_extractor.sources.oracle.logminer.contents import (
    OPS,
    OWNER_UNKNOWN,
    SEQUENCE_UNKNOWN,
    UNDONE,
    Action,
    Row,
    action_of,
    place_of,
)
from lowwater_extractor.sources.oracle.logminer.sql_redo import Named, parse, parse_locator
from lowwater_extractor.sources.oracle.logminer.transaction_buffer import Open
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import txid_text, without_container
from lowwater_extractor.sources.oracle.transactions.transaction_buffer import spill_largest
from lowwater_extractor.spill import MEMORY_BYTES_MAX, SpillSpace

Out = list[SourceTransaction]

#: a statement that affects only the tables that it names
_ONE = Ddl(Effect.NONE, "")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Assembler:
    def __init__(
        self,
        source: str,
        maker: ChangeMaker,
        tables: Tables,
        space: SpillSpace,
        *,
        zone: ZoneInfo,
        spill_bytes_max: int = MEMORY_BYTES_MAX,
        stale: StaleTables | None = None,
    ) -> None:
        #: tables whose rows are no longer known
        self.stale = StaleTables(source, {}) if stale is None else stale
        self.open: dict[int, Open] = {}
        #: transactions open at the start of capture that are left out by the config; without their container
        self.left_out: set[int] = set()
        #: transactions open before the restart that were not found again yet
        self.expected: set[int] = set()
        #: commits up to this SCN were emitted before, or are before the start of capture
        self.read = 0
        self._source = source
        self._maker = maker
        self._tables = tables
        self._space = space
        self._zone = zone
        self._spill_bytes_max = spill_bytes_max
        #: upper bound of the bytes in memory
        self._held = 0
        #: undo segment and slot → the transaction that is open there
        self._slots: dict[int, int] = {}
        self._last: dict[int, Order] = {}

    def feed(self, rows: Iterable[Row], low: Scn, high: Scn, out: Out) -> None:
        """Process joined rows of the window above `low` up to `high`, in the view's order."""
        for row in rows:
            if not low < row.scn <= high:
                what = f"LogMiner returned SCN {row.scn} for a window above {low} up to {high}"
                raise self._at(MarkBrokenError(what), row)
            try:
                self._row(row, out)
            except SourceError as error:
                raise self._at(error, row) from error
        if self._held > self._spill_bytes_max:
            self._held = spill_largest(self.open.values(), self._space, self._spill_bytes_max)

    def first_open(self) -> int | None:
        """The SCN of the oldest open begin."""
        return min((each.scn for each in self.open.values()), default=None)

    def open_with_changes(self) -> list[int]:
        return [xid for xid, each in self.open.items() if each.count]

    # --- one row

    def _row(self, row: Row, out: Out) -> None:
        operation = row.operation
        if operation in OPS:
            self._change(row)
        elif operation == 6:
            self._begin(row)
        elif operation in (7, 36):
            self._end(row, out, is_commit=operation == 7)
        elif operation == 5:
            self._ddl(row)
        elif self._touches_us(row):
            self._other(row)

    def _touches_us(self, row: Row) -> bool:
        """Whether the row is of a captured table, by name or object number, or of no table but relevant."""
        if row.owner is None or row.table is None or row.owner == "UNKNOWN":
            return action_of_none(row) or (row.object is not None and self._tables.is_captured(row.object))
        return self._number(row) is not None

    def _begin(self, row: Row) -> None:
        xid = row.xid
        known = self.open.get(xid)
        if known is not None:
            if known.count:
                raise LogCorruptError(f"transaction {txid_text(xid)} begins twice")
            return
        self.open[xid] = Open(row.scn)
        self.expected.discard(xid)
        self._slots[xid >> 32] = xid

    def _end(self, row: Row, out: Out, *, is_commit: bool) -> None:
        xid = row.xid
        self.left_out.discard(without_container(xid))
        transaction = self.open.pop(xid, None)
        if transaction is None:
            # it began before the first mined SCN and has no captured change: `_transaction` raises for those
            return
        if self._slots.get(xid >> 32) == xid:
            del self._slots[xid >> 32]
        self._held -= transaction.memory()
        if not is_commit or row.scn <= self.read:
            return
        order = Order(row.scn, place_of(row))
        for statement, names in transaction.ddl:
            for table, why in self._tables.after(names, statement, row.scn).items():
                self.stale.add(table, order, why)
            for name in names:
                owner, _, table = name.partition(".")
                self._maker.meet(owner, table, row.scn)
        if transaction.count:
            self._emit(row, xid, transaction, order, out)

    def _emit(self, row: Row, xid: int, transaction: Open, order: Order, out: Out) -> None:
        if order <= self._last.get(row.thread, ORDER_MIN):
            raise MarkBrokenError(
                f"commit at {order} after one at {self._last[row.thread]}",
                hint="the order of this thread cannot be trusted: report it",
            )
        self._last[row.thread] = order
        time_us = self._micros(row.time)
        count = transaction.count
        size = transaction.bytes + FRAME_MORE_BYTES * count
        changes = Changes(self._maker, transaction.taken(), time_us, row.scn)
        out.append(SourceTransaction(row.thread, txid_text(xid), order, time_us, changes, size, count))

    def _change(self, row: Row) -> None:
        if row.owner is None or row.table is None or row.owner == "UNKNOWN":
            if row.object is not None and self._tables.is_captured(row.object):
                raise LogUnknownError(
                    f"object {row.object} is captured, but is not in LogMiner's dictionary",
                    hint="it was dropped or rebuilt since: capture by redo files, or leave this transaction out",
                )
            return
        number = self._number(row)
        if number is None:
            return
        action_of(row)
        transaction = self._transaction(row)
        if transaction is None:
            return
        op = OPS[row.operation]
        if row.rollback:
            self._undo(row, transaction, number, op)
            return
        self._check_parent(row)
        self._keep(transaction, Kept(op, number, row.row_id or "", (), row.sql or ""))

    def _number(self, row: Row) -> int | None:
        """The number of the row's table version; None: it is not captured.

        The table is found by its object if LogMiner shows a newer name of it.
        """
        assert row.owner is not None
        assert row.table is not None
        known = None if row.object is None else self._tables.name_of(row.object)
        if known is not None and known != (row.owner, row.table):
            return self._maker.number(*known, row.scn)
        return self._maker.number(row.owner, row.table, row.scn)

    def _transaction(self, row: Row) -> Open | None:
        """The row's transaction; None: it is skipped."""
        xid = row.xid
        if row.sequence == SEQUENCE_UNKNOWN:
            # LogMiner shows only segment and slot if the begin is before the session's first SCN
            xid = self._slots.get(xid >> 32, xid)
        found = self.open.get(xid)
        if found is None and row.scn > self.read and not self._is_left_out(xid):
            raise LogGapError(
                f"a row of transaction {txid_text(xid)}, but its begin was not read",
                hint="redo is missing before it; start capture again",
            )
        return found

    def _is_left_out(self, xid: int) -> bool:
        xid = without_container(xid)
        if xid & 0xFFFF_FFFF == SEQUENCE_UNKNOWN:
            return any(each >> 32 == xid >> 32 for each in self.left_out)
        return xid in self.left_out

    def _check_parent(self, row: Row) -> None:
        parent = (row.parent_usn or 0, row.parent_slot or 0, row.parent_sequence or 0)
        if row.parent_sequence and parent != (row.usn, row.slot, row.sequence):
            raise LogUnknownError(
                f"transaction {txid_text(row.xid)} is part of a parallel one ({parent[0]}.{parent[1]}.{parent[2]})",
                hint="LogMiner does not show which part a commit ends: capture by redo files, or without parallel DML",
            )

    def _keep(self, transaction: Open, kept: Kept) -> None:
        raw = kept.pack()
        transaction.rows.append(raw)
        self._held += len(raw)

    # --- undone changes

    def _undo(self, row: Row, transaction: Open, number: int, op: str) -> None:
        wanted = UNDONE[op]
        if names_row(row.row_id):
            found = transaction.cancel(lambda k: (k.op, k.table, k.row_id) == (wanted, number, row.row_id))
        else:
            key = self._key(number, op, row.sql or "")
            found = transaction.cancel(
                lambda k: (k.op, k.table) == (wanted, number) and self._key(number, k.op, k.sql) == key
            )
        if not found:
            raise LogCorruptError(f"transaction {txid_text(row.xid)} undoes a change that it does not have")

    def _key(self, number: int, op: str, sql: str) -> tuple[object, ...]:
        if op == "l":
            return self._maker.key_of(number, parse_locator(sql).where)
        statement = parse(sql)
        named: Named = {**statement.values, **statement.where} if op != "u" else statement.where
        return self._maker.key_of(number, named)

    # --- rows other than row changes

    def _other(self, row: Row) -> None:
        action = action_of(row)
        if action is Action.PASS:
            return
        if row.owner is None or row.table is None or row.owner == "UNKNOWN":
            raise LogUnknownError(f"operation {row.operation} on object {row.object}, which has no name")
        transaction = self._transaction(row)
        if transaction is None:
            return
        if action is Action.LOCATOR:
            self._locator(row, transaction)
        elif not transaction.has_locator:
            raise LogUnknownError(f"operation {row.operation} (a LOB's piece) without the row that it belongs to")

    def _ddl(self, row: Row) -> None:
        """Store a statement for the commit. One that empties or renames a table is also a change."""
        statement = ddl.parse(row.sql or "")
        if statement is None:
            return
        own = [Name(row.owner, row.table)] if row.owner and row.table and row.owner != OWNER_UNKNOWN else []
        if row.object is not None and (known := self._tables.name_of(row.object)) is not None:
            own.append(Name(*known))
        # LogMiner's owner and table are preferred: names in the text have no owner if it is the session's schema
        names = self._tables.named([*(own or statement.tables), statement.other], statement)
        transaction = self._transaction(row) if names else None
        if transaction is None:
            return
        if statement.effect in (Effect.EMPTIED, Effect.RENAMED):
            if not own and statement.tables:
                # it is not certain which table lost its rows
                statement = statement._replace(effect=Effect.ROWS)
            elif own and self._tables.named(own[-1:], _ONE):
                number = self._maker.number(*own[-1], row.scn)
                if number is not None:
                    self._keep(transaction, Kept("t", number, "", (), ""))
        transaction.ddl.append((statement, names))

    def _locator(self, row: Row, transaction: Open) -> None:
        """Mark the column as missing in the previous change, if that is of the same row; else add an update."""
        locator = parse_locator(row.sql or "")
        number = self._maker.number(locator.owner, locator.table, row.scn)
        if number is None:
            raise LogUnknownError(f"a LOB of {locator.owner}.{locator.table} in a row of {row.owner}.{row.table}")
        transaction.has_locator = True
        place = self._maker.place(number, locator.column)
        if place is None:
            return
        last = unpack(transaction.rows[-1]) if transaction.rows else None
        row_id = row.row_id if names_row(row.row_id) else locator.row_id
        if last is not None and last.table == number and last.op in "cul":
            if names_row(row_id) and names_row(last.row_id):
                is_same = last.row_id == row_id
            else:
                is_same = self._key_after(number, last) == self._maker.key_of(number, locator.where)
            if is_same:
                missing = tuple(sorted({*last.missing, place}))
                transaction.rows[-1] = last._replace(missing=missing).pack()
                return
        self._keep(transaction, Kept("l", number, row_id or "", (place,), row.sql or ""))

    def _key_after(self, number: int, kept: Kept) -> tuple[object, ...]:
        if kept.op == "l":
            return self._maker.key_of(number, parse_locator(kept.sql).where)
        statement = parse(kept.sql)
        return self._maker.key_of(number, {**statement.where, **statement.values})

    # --- helpers

    def _micros(self, time: dt.datetime) -> int:
        """Epoch microseconds of a redo time, which has whole seconds and no zone: the host's zone is in the config."""
        return (time.replace(tzinfo=self._zone) - _EPOCH) // dt.timedelta(microseconds=1)

    def _at(self, error: SourceError, row: Row) -> SourceError:
        error.source = error.source or self._source
        error.thread = error.thread if error.thread is not None else row.thread
        error.position = error.position or row.position()
        return error


def action_of_none(row: Row) -> bool:
    """Whether a row of no table is relevant: only missing redo affects all tables."""
    return row.operation == 34
