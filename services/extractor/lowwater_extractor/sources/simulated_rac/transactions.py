"""Transactions of the simulated RAC database: one SCN clock, N instances that write the log files.

Everything happens when a caller says so, one step after the other, so that a script (or a seed) gives the
same files each time. What the database promises, and the reader rests on:

- the SCN never falls; a thread's records have SCNs that do not fall; a commit takes a new SCN (two threads may
  share one: `commit_together`)
- a change that follows one of the same transaction in another thread has a higher SCN, as the message between
  the instances carries it
- opening a thread takes a new SCN: all its redo lies above every SCN that was current before
- a transaction is in the control file's list until its closing record is in the log
- before a transaction that is in several threads is closed, its records in the others are in their logs
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lowwater.codec.table import TableSchema
from lowwater_extractor.sources.simulated_rac import log
from lowwater_extractor.sources.simulated_rac.history import Committed, LoggedChange, Transaction, history_line
from lowwater_extractor.sources.simulated_rac.instance import Flushed, Instance
from lowwater_extractor.sources.simulated_rac.rows import Row, RowCodec, table_to_json

TIME_START_US = 1_700_000_000_000_000


class Transactions:
    """All but the coming and going of instances, which is `Cluster`'s."""

    #: an XA transaction with records in several threads is one transaction with one xid
    joins_branches = True

    def __init__(
        self,
        directory: Path | str,
        *,
        groups: int = 3,
        log_bytes: int = 1 << 20,
        lwn_bytes: int = 1 << 18,
        first_scn: int = 1000,
        database: int = 4711,
        now_us: Callable[[], int] | None = None,
        keep_history: bool = True,
        history_file: bool = False,
        history_in_memory: bool = True,
    ) -> None:
        if groups < 2:
            raise ValueError("a thread needs at least two log groups")
        self.layout = log.Layout(Path(directory))
        for name in ("online", "archive"):
            (self.layout.root / name).mkdir(parents=True, exist_ok=True)
        self.scn = first_scn
        self.groups, self.log_bytes, self.lwn_bytes = groups, log_bytes, lwn_bytes
        self.database, self.resetlogs = database, 1
        self._now_us = now_us
        self._time_us = TIME_START_US
        #: transactions remember their changes: for the history, and for rollback to a savepoint
        self.keep_history = keep_history
        self._history_in_memory = history_in_memory
        self._history_file = self.layout.history.open("a") if history_file else None
        #: every committed transaction that changed something and whose commit is in the log
        self.history: list[Committed] = []
        self.open: dict[int, Transaction] = {}
        self._places: dict[tuple[int, int], log.OpenTransaction] = {}
        self._codecs: dict[str, tuple[int, RowCodec]] = {}
        self._tables: dict[int, dict[str, Any]] = {}
        self._xids: dict[int, int] = {}
        self.instances: dict[int, Instance] = {}

    # --- what the others need

    def now_us(self) -> int:
        if self._now_us is not None:
            self._time_us = max(self._time_us, self._now_us())
        else:
            self._time_us += 1000
        return self._time_us

    def advance(self, by: int = 1) -> int:
        """The SCN clock goes on, as it does with time."""
        self.scn += by
        return self.scn

    def add_table(self, table: TableSchema) -> None:
        number = len(self._tables) + 1
        self._codecs[table.full_name] = (number, RowCodec(table))
        self._tables[number] = table_to_json(table)
        if self.instances:
            self.write_control()

    def write_control(self) -> None:
        control = log.Control(
            database=self.database,
            resetlogs=self.resetlogs,
            current_scn=self.scn,
            groups=self.groups,
            threads={number: instance.info() for number, instance in self.instances.items()},
            open=list(self._places.values()),
            tables=self._tables,
        )
        log.write_control(self.layout, control)

    def close(self) -> None:
        for instance in self.instances.values():
            instance.shut()
        if self._history_file is not None:
            self._history_file.close()

    # --- transactions

    def _new_xid(self, thread: int) -> int:
        number = self._xids.get(thread, 0) + 1
        self._xids[thread] = number
        # undo segment, slot, wrap: an undo segment belongs to one instance, so no two share an xid
        return (thread * 16 + number % 16) << 48 | (number // 16 % 32) << 32 | (number // 512 + 1)

    def begin(self, thread: int, *, system: bool = False, xa: bool = False) -> Transaction:
        xid = self._new_xid(thread)
        transaction = Transaction(xid, thread, system, xa, [])
        self.open[xid] = transaction
        self._join(transaction, thread)
        return transaction

    def _join(self, transaction: Transaction, thread: int) -> None:
        flags = (log.FLAG_SYSTEM if transaction.system else 0) | (log.FLAG_XA if transaction.xa else 0)
        self._record(transaction, thread, log.BEGIN | flags, b"\0")

    def insert(self, transaction: Transaction, table: str, row: Row, thread: int | None = None) -> None:
        self._change(transaction, thread, log.ROW_INSERT, table, None, row)

    def update(self, transaction: Transaction, table: str, before: Row, after: Row, thread: int | None = None) -> None:
        self._change(transaction, thread, log.ROW_UPDATE, table, before, after)

    def delete(self, transaction: Transaction, table: str, row: Row, thread: int | None = None) -> None:
        self._change(transaction, thread, log.ROW_DELETE, table, row, None)

    def _change(
        self,
        txn: Transaction,
        thread: int | None,
        code: int,
        table: str,
        before: Row | None,
        after: Row | None,
    ) -> None:
        thread = thread or txn.home
        if thread not in txn.threads:
            if not txn.xa:
                raise ValueError("only an XA transaction changes rows in several threads")
            self._join(txn, thread)
        number, codec = self._codecs[table]
        code |= number
        images = b"".join(codec.pack(row) for row in (before, after) if row is not None)
        self._record(txn, thread, code, code.to_bytes(4, "little") + images)
        if self.keep_history:
            old, new = (None if row is None else tuple(row) for row in (before, after))
            change = LoggedChange(log.OPERATIONS[code & log.OPERATION], table, old, new)
            txn.changes.append((thread, change))

    def savepoint(self, transaction: Transaction) -> int:
        return len(transaction.changes)

    def rollback_to(self, transaction: Transaction, savepoint: int) -> None:
        """Each change behind the savepoint is cancelled by an undo record, the newest first."""
        if not self.keep_history:
            raise ValueError("rollback to a savepoint needs keep_history")
        while len(transaction.changes) > savepoint:
            thread, _ = transaction.changes.pop()
            self._record(transaction, thread, log.UNDO | thread, b"\0")

    def prepare(self, transaction: Transaction) -> None:
        """From here on an XA transaction outlives its instances: all its redo is in the logs."""
        for thread in transaction.threads:
            self._record(transaction, thread, log.PREPARE, b"\0")
            self.flush(thread)
        transaction.prepared = True

    def commit(self, transaction: Transaction, *, thread: int | None = None, flush: bool = True) -> int:
        """Returns the commit SCN. Without `flush` the commit waits in the log buffer and may be lost."""
        self.advance()
        self._close(transaction, thread or transaction.home, log.COMMIT, flush)
        return self.scn

    def commit_together(self, transactions: Iterable[Transaction]) -> int:
        """Commits on several threads with the same SCN."""
        self.advance()
        for transaction in transactions:
            self._close(transaction, transaction.home, log.COMMIT, flush=False)
        self.flush()
        return self.scn

    def rollback(self, transaction: Transaction, *, thread: int | None = None, flush: bool = True) -> None:
        """`thread` writes it where the transaction's own instance is dead."""
        closer = thread or transaction.home
        self.advance()
        for member in tuple(transaction.threads):
            writer = member if self.instances[member].alive else closer
            standing = sum(each.waiting(transaction.xid, member) for each in self.instances.values())
            for _ in range(standing):
                self._record(transaction, writer, log.UNDO | member, b"\0")
        self._close(transaction, closer, log.ROLLBACK, flush)

    def _close(self, txn: Transaction, thread: int, code: int, flush: bool) -> None:
        others = [other for other in txn.threads if other != thread]
        for other in others:
            self.flush(other)
        time_us = self.now_us()
        data = log.TIME.pack(time_us)
        if others:
            code |= log.FLAG_CROSS
            data += b"".join(other.to_bytes(2, "little") for other in others)
        closing = (thread, self.scn, time_us, code & log.OPERATION == log.COMMIT)
        self._record(txn, thread, code, data, closing)
        if flush:
            self.flush(thread)

    def _record(
        self,
        txn: Transaction,
        thread: int,
        code: int,
        data: bytes,
        closing: tuple[int, int, int, bool] | None = None,
    ) -> None:
        instance = self.instances[thread]
        if not instance.alive:
            raise ValueError(f"instance {thread} is not running")
        if txn.closing is not None:
            raise ValueError(f"transaction {txn.xid:016x} is closed")
        txn.closing = closing
        if closing is None:
            if txn.last_thread not in (0, thread):
                self.scn += 1
            txn.last_thread = thread
            if thread not in txn.threads:
                txn.threads.append(thread)
        instance.record(self.scn, txn.xid, code, data)
        if instance.buffered >= self.lwn_bytes:
            self.flush(thread)

    # --- logs

    def flush(self, thread: int | None = None) -> None:
        """The log buffers become LWNs; a full log is switched first."""
        for number in [thread] if thread else list(self.instances):
            instance = self.instances[number]
            if not instance.alive or not instance.buffered:
                continue
            if instance.full():
                # the SCN stays as it is: a record in the buffer may carry exactly the next log's first SCN
                instance.switch(instance.buffered_scn)
            flushed = instance.flush(self.now_us())
            if flushed is not None:
                self._note(number, flushed)
        self.write_control()

    def _note(self, thread: int, flushed: Flushed) -> None:
        for xid, scn in flushed.xids.items():
            if xid in self.open and (xid, thread) not in self._places:
                place = log.OpenTransaction(xid, thread, flushed.sequence, flushed.offset, scn)
                self._places[xid, thread] = place
        for xid in flushed.closed:
            self._closed(self.open[xid])

    def _closed(self, txn: Transaction) -> None:
        """Its closing record is in the log: now it counts."""
        assert txn.closing is not None
        thread, scn, time_us, committed = txn.closing
        del self.open[txn.xid]
        for number, instance in self.instances.items():
            self._places.pop((txn.xid, number), None)
            for member in txn.threads:
                instance.forget(txn.xid, member)
        if committed and txn.changes:
            changes = [change for _, change in txn.changes]
            entry = Committed(txn.xid, thread, scn, time_us, txn.system, changes)
            if self._history_in_memory:
                self.history.append(entry)
            if self._history_file is not None:
                self._history_file.write(history_line(entry))
                self._history_file.flush()

    def switch(self, thread: int) -> None:
        """The next log's first record may carry exactly the next SCN: a change does not move the clock."""
        self.flush(thread)
        self.instances[thread].switch(self.advance())
        self.write_control()

    def heartbeat(self, thread: int | None = None) -> None:
        for number in [thread] if thread else list(self.instances):
            instance = self.instances[number]
            if instance.alive:
                self.flush(number)
                instance.heartbeat(self.advance(), self.now_us())
        self.write_control()

    def tear(self, thread: int, keep: int) -> None:
        """The next LWN of this thread is half written, until the next flush."""
        self.instances[thread].tear(self._time_us, keep)

    def delete_archives(self, thread: int, below: int) -> None:
        for path in (self.layout.root / "archive").glob(f"thread_{thread}_seq_*.log"):
            if int(path.stem.rpartition("_")[2]) < below:
                path.unlink()

    def delete_acknowledged(self) -> None:
        """What the extractor has acknowledged is let go of."""
        if self.layout.acknowledged.exists():
            for thread, sequence in json.loads(self.layout.acknowledged.read_bytes()).items():
                self.delete_archives(int(thread), int(sequence))
