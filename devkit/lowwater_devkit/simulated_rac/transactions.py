"""Transactions of the simulated cluster: branches, changes, rollbacks, commits.

- A transaction begins with its first change: one without a change is not in the log. Only a system transaction has a
  begin record without a change.
- In the log a transaction is in one thread. An XA transaction has a branch in every thread in which it changes rows,
  each with its own xid and commit, all with the same SCN; the history has an entry for each. Branches are prepared
  before they commit. If a branch's instance has crashed, another instance writes its end.
- A rollback writes the reverse of every change, the newest first.
- Commit times are in seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lowwater_devkit.simulated_rac.history import Branch, LoggedChange, Transaction
from lowwater_devkit.simulated_rac.instance import Instance
from lowwater_devkit.simulated_rac.logs import Logs
from lowwater_devkit.simulated_rac.redo.log import Form
from lowwater_devkit.simulated_rac.redo.noise import Noise
from lowwater_devkit.simulated_rac.redo.pairs import DELETE, INSERT, SESSION_SYSTEM, Pair, UndoSegment
from lowwater_devkit.simulated_rac.redo.rows import RedoTable, Row
from lowwater_devkit.simulated_rac.redo.vectors import Vectors

_SECOND_US = 1_000_000
#: added to a thread's number for the file of its undo tablespace
_UNDO_FILE = 100


class Transactions(Logs, ABC):
    """Transactions of a cluster; `Cluster` adds tables and the start and stop of instances."""

    def __init__(self, directory: Path | str, *, form: Form, noise: int, **options: Any) -> None:
        super().__init__(directory, **options)
        self.form = form
        self._vectors = Vectors(form)
        self._noise = Noise(self._vectors)
        self._noise_every, self._changes = noise, 0
        self._xids: dict[int, int] = {}
        #: threads whose next transaction is the first of its session
        self._new_session: set[int] = set()

    @abstractmethod
    def table_of(self, transaction: Transaction, name: str) -> RedoTable: ...

    # --- begin

    def begin(self, thread: int, *, system: bool = False, xa: bool = False) -> Transaction:
        self.running(thread)
        transaction = Transaction(self._new_xid(thread), thread, system, xa)
        self._slots.add(transaction.xid >> 32)
        self.open[transaction.xid] = transaction
        if system:
            self._begin_alone(self._join(transaction, thread))
        return transaction

    def _begin_alone(self, branch: Branch) -> None:
        scn = self._clock(branch.owner, branch.thread)
        session = self._session(branch.thread)
        self._put(branch, branch.thread, scn, self._vectors.begin_alone(branch.segment, scn, session))

    def _new_xid(self, thread: int) -> int:
        """A new xid. A slot is reused only after its last transaction has ended."""
        while True:
            number = self._xids[thread] = self._xids.get(thread, 0) + 1
            # undo segment, slot, wrap: an undo segment belongs to one instance, so no two share an xid
            xid = (thread * 16 + number % 16) << 48 | (number // 16 % 32) << 32 | (number // 512 + 1)
            if xid >> 32 not in self._slots:
                return xid

    def _join(self, transaction: Transaction, thread: int) -> Branch:
        """Create a branch in this thread: the home branch, or another one of an XA transaction."""
        if thread != transaction.home and not transaction.xa:
            raise ValueError("only an XA transaction changes rows in several threads")
        xid = transaction.xid if thread == transaction.home else self._new_xid(thread)
        usn, slot, wrap = xid >> 48, xid >> 32 & 0xFFFF, xid & 0xFFFF_FFFF
        segment = UndoSegment(
            usn=usn,
            slot=slot,
            wrap=wrap,
            file=_UNDO_FILE + thread,
            header_dba=0x80 + 16 * (usn % 16),
            dba=0x400 + usn % 16 * 0x1000 + self._xids[thread] % 0x1000,
            sequence=wrap & 0x7FFF,
            record=0,
            xid=self._vectors.xid(usn, slot, wrap),
            flags=SESSION_SYSTEM if transaction.system else 0,
        )
        branch = Branch(xid, thread, segment, transaction)
        self._slots.add(xid >> 32)
        self._branches[xid] = transaction.branches[thread] = branch
        transaction.threads.append(thread)
        return branch

    def _session(self, thread: int) -> bool:
        if thread not in self._new_session:
            return False
        self._new_session.discard(thread)
        return True

    # --- changes

    def insert(self, transaction: Transaction, table: str, row: Row, thread: int | None = None) -> None:
        pairs = self.table_of(transaction, table).insert(row)
        self._write(transaction, thread, table, pairs, "c", [(None, row)])

    def update(self, transaction: Transaction, table: str, before: Row, after: Row, thread: int | None = None) -> None:
        pairs = self.table_of(transaction, table).update(before, after)
        self._write(transaction, thread, table, pairs, "u", [(before, after)])

    def delete(self, transaction: Transaction, table: str, row: Row, thread: int | None = None) -> None:
        pairs = self.table_of(transaction, table).delete(row)
        self._write(transaction, thread, table, pairs, "d", [(row, None)])

    def insert_many(self, transaction: Transaction, table: str, rows: Sequence[Row], thread: int | None = None) -> None:
        """The rows of one statement; those of one block are one change in the log."""
        pairs = self.table_of(transaction, table).insert_many(rows)
        self._write(transaction, thread, table, pairs, "c", [(None, row) for row in rows])

    def delete_many(self, transaction: Transaction, table: str, rows: Sequence[Row], thread: int | None = None) -> None:
        pairs = self.table_of(transaction, table).delete_many(rows)
        self._write(transaction, thread, table, pairs, "d", [(row, None) for row in rows])

    def update_many(self, transaction: Transaction, table: str, rows: Sequence[tuple[Row, Row]]) -> None:
        """One statement on several rows, (before, after), in this order: it may exchange keys between rows."""
        pairs = self.table_of(transaction, table).update_many(rows)
        self._write(transaction, None, table, pairs, "u", rows)

    def truncate(self, transaction: Transaction, table: str, text: str) -> None:
        """`text`: the TRUNCATE statement. In Oracle it has its own transaction."""
        self.ddl(transaction, table, text)
        self.table_of(transaction, table).emptied()

    def ddl(self, transaction: Transaction, table: str, text: str) -> None:
        """Write a DDL statement on a table to a transaction's redo. The caller must update the dictionary."""
        branch = self._branch(transaction, transaction.home)
        if branch.segment.begin_scn < 0:
            self._begin_alone(branch)
        scn = self._clock(transaction, branch.thread)
        object_id = self.table_of(transaction, table).segment.object_id
        self._put(branch, branch.thread, scn, self._vectors.ddl(branch.segment, scn, object_id, text))

    def _write(
        self,
        txn: Transaction,
        thread: int | None,
        table: str,
        pairs: Sequence[Pair],
        op: str,
        rows: Sequence[tuple[Row | None, Row | None]],
    ) -> None:
        thread = thread or txn.home
        instance = self.running(thread)
        branch = txn.branches.get(thread) or self._branch(txn, thread)
        scn = self._clock(txn, thread)
        new = thread in self._new_session and self._session(thread)
        for pair in pairs:
            if instance.buffered >= self.lwn_bytes:
                # one statement can be larger than a log
                self.flush(thread)
                scn = self._clock(txn, thread)
            self._change(branch, instance, scn, pair, new)
        if self._noise_every:
            self._make_noise(branch, instance, scn, table, pairs)
        if self.keep_history:
            for before, after in rows:
                old, now = (None if row is None else tuple(row) for row in (before, after))
                txn.changes.append((thread, LoggedChange(op, table, old, now)))
        if instance.buffered >= self.lwn_bytes:
            self.flush(thread)

    def _change(self, branch: Branch, instance: Instance, scn: int, pair: Pair, new: bool = False) -> None:
        record, undo = self._vectors.change(branch.segment, scn, pair, new)
        branch.undo.append(undo)
        instance.record(scn, branch.xid, record)
        instance.changed(branch.undo)

    def _make_noise(self, branch: Branch, instance: Instance, scn: int, table: str, pairs: Sequence[Pair]) -> None:
        self._changes += 1
        if self._changes % self._noise_every:
            return
        instance.record(scn, None, self._noise.record(scn))
        if pairs[0].code in (INSERT, DELETE) and self._changes // self._noise_every % 2:
            key, where = (4, self._changes.to_bytes(4)), (pairs[0].dba, 0)
            of = self.table_of(branch.owner, table)
            self._change(branch, instance, scn, self._noise.index_entry(of, key, where, pairs[0].code == INSERT))

    # --- rollback

    def savepoint(self, transaction: Transaction) -> int:
        return len(transaction.changes)

    def rollback_to(self, transaction: Transaction, savepoint: int) -> None:
        """Undo each change after the savepoint, the newest first."""
        if not self.keep_history:
            raise ValueError("rollback to a savepoint needs keep_history")
        while len(transaction.changes) > savepoint:
            thread, _ = transaction.changes[-1]
            branch = transaction.branches[thread]
            count = next(undo.changes for undo in reversed(branch.undo) if undo.changes)
            if len(transaction.changes) - count < savepoint:
                raise ValueError("a savepoint cannot be inside a statement")
            self._take_back(branch, thread)
            del transaction.changes[-count:]

    def _take_back(self, branch: Branch, writer: int) -> None:
        """Undo the newest change, with all its pieces and index entries."""
        instance = self.running(writer)
        while branch.undo:
            # each record gets the current SCN: the previous one may have caused a flush
            scn = self._clock(branch.owner, writer)
            undo = branch.undo.pop()
            instance.changed(branch.undo, undo)
            self._put(branch, writer, scn, self._vectors.take_back(branch.segment, scn, undo))
            if undo.changes:
                break

    def rollback(self, transaction: Transaction, *, thread: int | None = None, flush: bool = True) -> None:
        """Roll back. `thread` writes the records if the transaction's own instance has crashed."""
        self.advance()
        for branch in transaction.branches.values():
            writer = self._writer(branch, thread)
            while branch.undo:
                self._take_back(branch, writer)
        self._end(transaction, thread, committed=False, flush=flush)

    # --- prepare and commit

    def prepare(self, transaction: Transaction) -> None:
        """Prepare an XA transaction: all its redo is in the logs, and it survives a crash of its instances."""
        for branch in list(transaction.branches.values()):
            scn = self._clock(transaction, branch.thread)
            self._put(branch, branch.thread, scn, self._vectors.prepare(branch.segment, scn))
            self.flush(branch.thread)
        transaction.prepared = True

    def commit(self, transaction: Transaction, *, thread: int | None = None, flush: bool = True) -> int:
        """Commit, and return the commit SCN. Without `flush` the commit stays in the log buffer and may be lost."""
        self._prepare_branches([transaction])
        self.advance()
        return self._end(transaction, thread, committed=True, flush=flush)

    def commit_together(self, transactions: Iterable[Transaction]) -> int:
        """Commits on several threads with the same SCN."""
        every = list(transactions)
        self._prepare_branches(every)
        # the SCN must be valid for all writers
        writers = {self._writer(branch, None) for each in every for branch in each.branches.values()}
        self.scn = max([self.advance(), *(self.instances[number].floor for number in writers)])
        for transaction in every:
            self._end(transaction, None, committed=True, flush=None)
        self.flush()
        return self.scn

    def _prepare_branches(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            if len(transaction.branches) > 1 and not transaction.prepared:
                self.prepare(transaction)

    def _end(self, transaction: Transaction, thread: int | None, *, committed: bool, flush: bool | None) -> int:
        """End all branches with one SCN. `flush` None: the caller flushes."""
        self._check_open(transaction)
        branches = list(transaction.branches.values())
        writers = [self._writer(branch, thread) for branch in branches]
        for branch, writer in zip(branches, writers, strict=True):
            if writer != branch.thread and self.instances[branch.thread].alive:
                self.flush(branch.thread)
        scn = self.scn = max([self.scn, *[self.running(writer).floor for writer in writers]])
        time_us = self.now_us() // _SECOND_US * _SECOND_US
        transaction.closing = (thread or transaction.home, scn, time_us, committed)
        end = self._vectors.commit if committed else self._vectors.rollback
        for branch, writer in zip(branches, writers, strict=True):
            branch.closing = (writer, scn, time_us, committed)
            record = end(branch.segment, scn, time_us // _SECOND_US)
            self.instances[writer].record(scn, branch.xid, record, closes=True)
        if not branches:
            self._gone(transaction)
        elif flush or (flush is not None and len(branches) > 1):
            for writer in dict.fromkeys(writers):
                self.flush(writer)
        return scn

    def _writer(self, branch: Branch, closer: int | None) -> int:
        """The thread that writes a branch's end: its own if that instance runs, else `closer`."""
        home = branch.owner.home
        if self.instances[branch.thread].alive and (closer is None or closer == home or len(branch.owner.branches) > 1):
            return branch.thread
        return closer or home

    # --- records

    def _check_open(self, transaction: Transaction) -> None:
        if transaction.closing is not None:
            raise ValueError(f"transaction {transaction.txid} is closed")

    def _branch(self, transaction: Transaction, thread: int) -> Branch:
        self._check_open(transaction)
        self.running(thread)
        return transaction.branches.get(thread) or self._join(transaction, thread)

    def _clock(self, txn: Transaction, thread: int) -> int:
        """The SCN of the next record: not below the upper bound of the thread's last LWN, and above the last change of
        the same transaction in another thread."""
        if txn.closing is not None:
            self._check_open(txn)
        if txn.last_thread not in (0, thread):
            self.scn += 1
        txn.last_thread = thread
        floor = self.instances[thread].floor
        if self.scn < floor:
            self.scn = floor
        return self.scn

    def _put(self, branch: Branch, thread: int, scn: int, record: bytes) -> None:
        instance = self.running(thread)
        instance.record(scn, branch.xid, record)
        if instance.buffered >= self.lwn_bytes:
            self.flush(thread)
