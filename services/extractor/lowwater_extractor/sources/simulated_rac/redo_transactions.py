"""Transactions of the simulated cluster in real redo: branches, undo, the ways back, commits. See `redo_cluster`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowwater_extractor.sources.simulated_rac.cluster import Cluster
from lowwater_extractor.sources.simulated_rac.history import Committed, LoggedChange, Transaction, history_line
from lowwater_extractor.sources.simulated_rac.instance import Flushed
from lowwater_extractor.sources.simulated_rac.log import OpenTransaction
from lowwater_extractor.sources.simulated_rac.redo_format import Form
from lowwater_extractor.sources.simulated_rac.redo_instance import RedoInstance
from lowwater_extractor.sources.simulated_rac.redo_noise import Noise
from lowwater_extractor.sources.simulated_rac.redo_pairs import DELETE, INSERT, SESSION_SYSTEM, Pair, Undo, UndoSegment
from lowwater_extractor.sources.simulated_rac.redo_rows import RedoTable
from lowwater_extractor.sources.simulated_rac.redo_vectors import Vectors
from lowwater_extractor.sources.simulated_rac.rows import Row

_SECOND_US = 1_000_000
#: the file of thread t's undo tablespace is this and t
_UNDO_FILE = 100


@dataclass(slots=True, eq=False)
class Branch:
    """A transaction in one thread."""

    xid: int
    thread: int
    segment: UndoSegment
    owner: RedoTransaction
    #: the changes in the log and in the buffer that stand
    undo: list[Undo] = field(default_factory=list)
    #: once its end is in a buffer: (thread, SCN, time, committed)
    closing: tuple[int, int, int, bool] | None = None


@dataclass(slots=True)
class RedoTransaction(Transaction):
    branches: dict[int, Branch] = field(default_factory=dict)


class RedoTransactions(Cluster):
    """All but tables, the control file and the coming and going of instances, which are `RedoCluster`'s."""

    joins_branches = False
    instances: dict[int, RedoInstance]  # type: ignore[assignment]
    open: dict[int, RedoTransaction]  # type: ignore[assignment]

    def __init__(self, directory: Path | str, threads: int, *, form: Form, noise: int, **options: Any) -> None:
        self.form = form
        self._vectors = Vectors(form)
        self._noise = Noise(self._vectors)
        self._noise_every, self._changes = noise, 0
        self._redo_tables: dict[str, RedoTable] = {}
        self._branches: dict[int, Branch] = {}
        #: undo segment and slot of what is open
        self._slots: set[int] = set()
        #: threads whose next transaction is the first of its session
        self._new_session: set[int] = set()
        super().__init__(directory, threads, **options)

    # --- transactions

    def begin(self, thread: int, *, system: bool = False, xa: bool = False) -> RedoTransaction:
        self._running(thread)
        transaction = RedoTransaction(self._new_xid(thread), thread, system, xa, [])
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
        """A slot is taken again only when its last transaction is closed."""
        while (xid := super()._new_xid(thread)) >> 32 in self._slots:
            pass
        return xid

    def _join(self, transaction: Transaction, thread: int) -> Branch:  # type: ignore[override]
        """A branch in this thread: the transaction's own, or a further one of an XA transaction."""
        assert isinstance(transaction, RedoTransaction)
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

    def _forget(self, branch: Branch) -> None:
        del branch.owner.branches[branch.thread]
        del self._branches[branch.xid]
        self._slots.discard(branch.xid >> 32)

    def _gone(self, transaction: Transaction) -> None:
        del self.open[transaction.xid]
        self._slots.discard(transaction.xid >> 32)

    def _session(self, thread: int) -> bool:
        if thread not in self._new_session:
            return False
        self._new_session.discard(thread)
        return True

    def insert(self, transaction: Transaction, table: str, row: Row, thread: int | None = None) -> None:
        pairs = self._redo_tables[table].insert(row)
        self._write(transaction, thread, table, pairs, "c", [(None, row)])

    def update(self, transaction: Transaction, table: str, before: Row, after: Row, thread: int | None = None) -> None:
        pairs = self._redo_tables[table].update(before, after)
        self._write(transaction, thread, table, pairs, "u", [(before, after)])

    def delete(self, transaction: Transaction, table: str, row: Row, thread: int | None = None) -> None:
        pairs = self._redo_tables[table].delete(row)
        self._write(transaction, thread, table, pairs, "d", [(row, None)])

    def insert_many(self, transaction: Transaction, table: str, rows: Sequence[Row], thread: int | None = None) -> None:
        """The rows of one statement; those of one block are one change in the log."""
        pairs = self._redo_tables[table].insert_many(rows)
        self._write(transaction, thread, table, pairs, "c", [(None, row) for row in rows])

    def delete_many(self, transaction: Transaction, table: str, rows: Sequence[Row], thread: int | None = None) -> None:
        pairs = self._redo_tables[table].delete_many(rows)
        self._write(transaction, thread, table, pairs, "d", [(row, None) for row in rows])

    def ddl(self, transaction: Transaction, table: str, text: str) -> None:
        """A DDL statement on a table, in a transaction's redo. The dictionary is the caller's matter."""
        branch = self._branch(transaction, transaction.home)
        if branch.segment.begin_scn < 0:
            self._begin_alone(branch)
        scn = self._clock(transaction, branch.thread)
        object_id = self._redo_tables[table].segment.object_id
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
        assert isinstance(txn, RedoTransaction)
        instance = self._running(thread)
        branch = txn.branches.get(thread) or self._branch(txn, thread)
        scn = self._clock(txn, thread)
        new = thread in self._new_session and self._session(thread)
        for pair in pairs:
            record, undo = self._vectors.change(branch.segment, scn, pair, new)
            branch.undo.append(undo)
            instance.record(scn, branch.xid, record)
            instance.changed(branch.undo)
        if self._noise_every:
            self._make_noise(branch, instance, scn, table, pairs)
        if self.keep_history:
            for before, after in rows:
                old, now = (None if row is None else tuple(row) for row in (before, after))
                txn.changes.append((thread, LoggedChange(op, table, old, now)))
        if instance.buffered >= self.lwn_bytes:
            self.flush(thread)

    def _make_noise(self, branch: Branch, instance: RedoInstance, scn: int, table: str, pairs: Sequence[Pair]) -> None:
        self._changes += 1
        if self._changes % self._noise_every:
            return
        instance.record(scn, None, self._noise.record(scn))
        if pairs[0].code in (INSERT, DELETE) and self._changes // self._noise_every % 2:
            key = (4, self._changes.to_bytes(4))
            entry = self._noise.index_entry(self._redo_tables[table], key, (pairs[0].dba, 0), pairs[0].code == INSERT)
            record, undo = self._vectors.change(branch.segment, scn, entry)
            branch.undo.append(undo)
            instance.record(scn, branch.xid, record)
            instance.changed(branch.undo)

    # --- rollback

    def rollback_to(self, transaction: Transaction, savepoint: int) -> None:
        """Each change behind the savepoint is taken back, the newest first."""
        assert isinstance(transaction, RedoTransaction)
        if not self.keep_history:
            raise ValueError("rollback to a savepoint needs keep_history")
        while len(transaction.changes) > savepoint:
            thread, _ = transaction.changes[-1]
            branch = transaction.branches[thread]
            count = next(undo.changes for undo in reversed(branch.undo) if undo.changes)
            if len(transaction.changes) - count < savepoint:
                raise ValueError("a savepoint cannot lie inside a statement")
            self._take_back(branch, thread)
            del transaction.changes[-count:]

    def _take_back(self, branch: Branch, writer: int) -> None:
        """The newest change, in all its pieces, and what came with it."""
        instance = self._running(writer)
        while branch.undo:
            # each one by the clock: the one before may have filled the buffer, and so an LWN
            scn = self._clock(branch.owner, writer)
            undo = branch.undo.pop()
            instance.changed(branch.undo, undo)
            self._put(branch, writer, scn, self._vectors.take_back(branch.segment, scn, undo))
            if undo.changes:
                break

    def rollback(self, transaction: Transaction, *, thread: int | None = None, flush: bool = True) -> None:
        """`thread` writes it where the transaction's own instance is dead."""
        assert isinstance(transaction, RedoTransaction)
        self.advance()
        for branch in transaction.branches.values():
            writer = self._writer(branch, thread)
            while branch.undo:
                self._take_back(branch, writer)
        self._end(transaction, thread, committed=False, flush=flush)

    # --- prepare and commit

    def prepare(self, transaction: Transaction) -> None:
        """From here on an XA transaction outlives its instances: all its redo is in the logs."""
        assert isinstance(transaction, RedoTransaction)
        for branch in list(transaction.branches.values()):
            scn = self._clock(transaction, branch.thread)
            self._put(branch, branch.thread, scn, self._vectors.prepare(branch.segment, scn))
            self.flush(branch.thread)
        transaction.prepared = True

    def commit(self, transaction: Transaction, *, thread: int | None = None, flush: bool = True) -> int:
        """Returns the commit SCN. Without `flush` the commit waits in the log buffer and may be lost."""
        self._prepare_branches([transaction])
        scn = self.advance()
        self._end(transaction, thread, committed=True, flush=flush)
        return scn

    def commit_together(self, transactions: Iterable[Transaction]) -> int:
        """Commits on several threads with the same SCN."""
        every = list(transactions)
        self._prepare_branches(every)
        scn = self.advance()
        for transaction in every:
            self._end(transaction, None, committed=True, flush=None)
        self.flush()
        return scn

    def _prepare_branches(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            assert isinstance(transaction, RedoTransaction)
            if len(transaction.branches) > 1 and not transaction.prepared:
                self.prepare(transaction)

    def _end(self, transaction: Transaction, thread: int | None, *, committed: bool, flush: bool | None) -> None:
        """All branches end with one SCN. `flush` None: the caller does it."""
        assert isinstance(transaction, RedoTransaction)
        self._check_open(transaction)
        branches = list(transaction.branches.values())
        writers = [self._writer(branch, thread) for branch in branches]
        for branch, writer in zip(branches, writers, strict=True):
            if writer != branch.thread and self.instances[branch.thread].alive:
                self.flush(branch.thread)
        scn = self.scn = max([self.scn, *[self._running(writer).floor for writer in writers]])
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

    def _writer(self, branch: Branch, closer: int | None) -> int:
        """A branch's own instance ends it if that is there, or whichever was told to."""
        home = branch.owner.home
        if self.instances[branch.thread].alive and (closer is None or closer == home or len(branch.owner.branches) > 1):
            return branch.thread
        return closer or home

    # --- records

    def _running(self, thread: int) -> RedoInstance:
        instance = self.instances[thread]
        if not instance.alive:
            raise ValueError(f"instance {thread} is not running")
        return instance

    def _check_open(self, transaction: Transaction) -> None:
        if transaction.closing is not None:
            raise ValueError(f"transaction {transaction.xid:016x} is closed")

    def _branch(self, transaction: Transaction, thread: int) -> Branch:
        assert isinstance(transaction, RedoTransaction)
        self._check_open(transaction)
        self._running(thread)
        return transaction.branches.get(thread) or self._join(transaction, thread)

    def _clock(self, txn: Transaction, thread: int) -> int:
        """The SCN of the next record: above what the thread's last LWN has promised, and above the last change of
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
        instance = self._running(thread)
        instance.record(scn, branch.xid, record)
        if instance.buffered >= self.lwn_bytes:
            self.flush(thread)

    def _note(self, thread: int, flushed: Flushed) -> None:
        for xid, scn in flushed.xids.items():
            if xid in self._branches and (xid, thread) not in self._places:
                place = OpenTransaction(xid, thread, flushed.sequence, flushed.offset, scn)
                self._places[xid, thread] = place
        for xid in flushed.closed:
            self._branch_closed(self._branches[xid])

    def _branch_closed(self, branch: Branch) -> None:
        """Its closing record is in the log: now it counts."""
        assert branch.closing is not None
        thread, scn, time_us, committed = branch.closing
        transaction = branch.owner
        for number in self.instances:
            self._places.pop((branch.xid, number), None)
        self._forget(branch)
        if not transaction.branches:
            self._gone(transaction)
        changes = [change for number, change in transaction.changes if number == branch.thread]
        if not committed or not changes:
            return
        entry = Committed(branch.xid, thread, scn, time_us, transaction.system, changes)
        if self._history_in_memory:
            self.history.append(entry)
        if self._history_file is not None:
            self._history_file.write(history_line(entry))
            self._history_file.flush()
