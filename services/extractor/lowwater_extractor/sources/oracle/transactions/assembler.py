"""Assembles committed transactions from events: by xid, across threads. No clock, and no files except spill files.

A transaction's rows are all in one thread: an undo segment belongs to one instance. Its end can be in another thread:
an instance that recovers a dead one rolls back the dead one's transactions in its own log, and any instance may commit
an in-doubt transaction. This is the case for an end, or an undo, of a transaction that has no begin in its thread.

**Records of another thread's transaction.** Such a record with SCN c in thread t is processed only when all other
threads have been read to c: their marks are at or above c, or they are themselves suspended at a record of SCN ≥ c
(SCNs of a thread do not decrease). Until then t is suspended at the record, and its mark, the LWN's SCN − 1, stays
below c. The suspended thread with the lowest SCN never waits for another suspended thread, so there is no deadlock.

**After a restart** each thread is read from a position at or before the first record of all transactions that were open
in it; the records up to `read_until` are read for the second time. In that range, and only there, records of
transactions that were not open at `read_until` belong to transactions that have ended, and are ignored. **At the start
of capture** the same holds for records at or below `since`: transactions that were open at that SCN began after the
position from which the logs are read, and not below `low`. After both, a record without a begin is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain

from lowwater.codec.table import TableSchema
from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError, SourceError
from lowwater.records.positions import Order
from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.oracle.redo.codes import (
    BEGIN,
    COMMIT,
    DDL,
    HEAD,
    LOAD,
    OPERATION,
    PREPARE,
    ROLLBACK,
    ROW,
    UNDO,
)
from lowwater_extractor.sources.oracle.redo.events import Event, Lwn
from lowwater_extractor.sources.oracle.redo.layout import Place, Where
from lowwater_extractor.sources.oracle.rows.changes import Changes, FrameMaker
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import txid_text
from lowwater_extractor.sources.oracle.transactions.assembler_state import Branch, ThreadAssembly, slot_of
from lowwater_extractor.sources.oracle.transactions.rollback import undone_by
from lowwater_extractor.sources.oracle.transactions.transaction_buffer import spill_largest
from lowwater_extractor.spill import MEMORY_BYTES_MAX, SpillSpace

Out = list[SourceTransaction]

#: `Order(major, minor)` at half the cost; called for each transaction
_order: Callable[[tuple[int, int]], Order] = partial(tuple.__new__, Order)
#: about how many bytes a change has in the log in addition to its values, and its frame in addition to them
_PAIR_MORE_BYTES, _FRAME_MORE_BYTES = 300, 24


class Assembler:
    def __init__(
        self,
        source: str,
        maker: FrameMaker,
        space: SpillSpace,
        *,
        spill_bytes_max: int = MEMORY_BYTES_MAX,
        stale: StaleTables | None = None,
    ) -> None:
        #: tables whose rows are no longer known
        self.stale = StaleTables(source, {}) if stale is None else stale
        self.threads: dict[int, ThreadAssembly] = {}
        #: transactions whose begin is gone and which are left out by the config
        self.left_out: set[int] = set()
        self._source = source
        self._maker = maker
        self._space = space
        self._spill_bytes_max = spill_bytes_max
        #: tables → the open transactions that may have changed them by records that were not captured, and why
        self._doubtful: dict[str, tuple[set[int], str]] = {}
        #: upper bound of the bytes of rows in memory: undone rows are not subtracted at once
        self._held = 0

    # --- called by the stream

    @property
    def seen(self) -> dict[str, TableSchema]:
        return self._maker.seen

    def close(self) -> None:
        self._space.close()

    def feed(self, thread: ThreadAssembly, lwn: Lwn, out: Out) -> bool:
        """Process an LWN. False: suspended at a record that waits for another thread."""
        thread.mark = Scn(max(thread.mark, lwn.scn - 1))
        thread.upper = max(thread.upper, lwn.upper)
        thread.lwn, thread.lwn_place = lwn, Place(lwn.sequence, lwn.offset)
        thread.at, thread.events = 0, iter(lwn.events)
        return self.go_on(thread, out)

    def go_on(self, thread: ThreadAssembly, out: Out) -> bool:
        """Continue from where the thread was suspended to the end of the LWN. All captured rows pass through here."""
        assert thread.lwn is not None
        events, get, floor, held = thread.events, thread.branches.get, thread.mark, 0
        last = -1
        append: Callable[[bytes], None] = _ignore
        thread.waiting, thread.awaited = None, frozenset()
        for event in events:
            scn, xid, code, thread.at, data = event
            if scn <= floor:
                raise self._broken(thread, f"a record of SCN {scn} at or below the thread's mark {floor}")
            if code >= ROW:
                if xid != last:
                    branch = get(xid)
                    last, append = xid, self._stray(thread, scn, xid) if branch is None else branch.append
                append(data)
                held += len(data)
            else:
                last = -1
                if not self._control(thread, event, out):
                    thread.events = chain((event,), events)
                    self._held += held
                    self.reached(thread, thread.here())
                    return False
        thread.lwn = None
        self._held += held
        if self._held > self._spill_bytes_max:
            self._spill()
        return True

    def reached(self, thread: ThreadAssembly, place: Place) -> None:
        """All records before `place` have been processed: ends the second reading if that reaches `read_until`."""
        if thread.caught_up or place < thread.read_until:
            return
        thread.caught_up = True
        thread.mark = Scn(max(thread.mark, thread.mark_then))
        missing = thread.open_then - thread.branches.keys() - thread.touched.keys()
        if missing:
            names = [txid_text(xid) for xid in sorted(missing)]
            raise self._corrupt(thread, f"open transactions were not found again: {', '.join(names)}")
        thread.open_then = set()

    def start(self, thread: ThreadAssembly, read: Place) -> Place:
        """The position from which the thread has to be read after a restart, if it has been read to `read`."""
        return min([read, *thread.first_open()])

    # --- events that are not rows

    def _control(self, thread: ThreadAssembly, event: Event, out: Out) -> bool:
        scn, xid, code, _, data = event
        operation = code & OPERATION
        if operation == BEGIN:
            self._begin(thread, scn, xid)
        elif operation in (COMMIT, ROLLBACK):
            return self._end(thread, event, operation == COMMIT, out)
        elif operation == UNDO:
            return self._undo(thread, scn, xid, data)
        elif operation == DDL:
            self._ddl(thread, event)
        elif operation == LOAD:
            self._load(thread, scn, data)
        elif operation != PREPARE:
            raise LogUnknownError(f"event of code {code:08x}", **self._where(thread))
        return True

    def _begin(self, thread: ThreadAssembly, scn: Scn, xid: int) -> None:
        if scn < thread.low or (self._again(thread) and xid not in thread.open_then):
            return
        if xid in thread.branches:
            raise self._corrupt(thread, f"transaction {txid_text(xid)} begins twice")
        thread.branches[xid] = Branch(thread.lwn_place, scn)
        thread.slots[slot_of(xid)] = xid

    def _ddl(self, thread: ThreadAssembly, event: Event) -> None:
        scn, xid, _, _, data = event
        if self._again(thread) and xid not in thread.open_then:
            return
        is_change, is_followed = self._maker.altered(scn, data)
        if not is_change and not is_followed:
            return
        branch = thread.branches.get(xid)
        if branch is None:
            self._stray(thread, scn, xid)
            return
        if is_change:
            branch.append(data)
        if is_followed:
            branch.ddl.append(data)

    def _undo(self, thread: ThreadAssembly, scn: Scn, slot: int, data: bytes) -> bool:
        """Undo a change. The log has only the undo segment and slot of the transaction."""
        xid = thread.slots.get(slot)
        home = thread
        if xid is None:
            again = self._again(thread)
            if self._is_left_out(slot) or (again and not any(slot_of(each) == slot for each in thread.open_then)):
                return True
            if not self._ready(thread, scn):
                return False
            found = self._elsewhere(slot, scn)
            if found is None or (again and found[1] not in thread.open_then):
                self._stray(thread, scn, slot)
                return True
            home, xid = found
            thread.touched.setdefault(xid, thread.lwn_place)
        undone = undone_by(data)
        if home.branches[xid].undo(undone) is None:
            raise LogCorruptError(
                f"transaction {txid_text(xid)} undoes a change of object {undone[0]} that it does not have",
                hint="a change of it was not read, or not understood: report it with the log, and reset the source",
                **self._where(thread),
            )
        return True

    def _elsewhere(self, slot: int, scn: Scn) -> tuple[ThreadAssembly, int] | None:
        for other in self.threads.values():
            xid = other.open_in_slot(slot, scn)
            if xid is not None:
                return other, xid
        return None

    def _end(self, thread: ThreadAssembly, event: Event, is_commit: bool, out: Out) -> bool:
        scn, xid = event[:2]
        home = thread
        if xid not in thread.branches:
            if self._again(thread) or xid in self.left_out:
                self.left_out.discard(xid)
                return True
            if not self._ready(thread, scn):
                return False
            homes = [other for other in self.threads.values() if xid in other.branches]
            if not homes:
                self._stray(thread, scn, xid)
                return True
            home = homes[0]
        branch = self._close(home, xid)
        for other in self.threads.values():
            other.touched.pop(xid, None)
            # another thread may still be in its second reading, at records after this end
            other.open_then.discard(xid)
        self._held -= branch.memory()
        if not is_commit or scn <= thread.since or self._again(thread):
            for xids, _ in self._doubtful.values():
                xids.discard(xid)
            return True
        if branch.ddl or self._doubtful:
            self._follow(thread, scn, xid, branch.ddl)
        if branch.count:
            if branch.spilled is None and all(self._maker.is_foreign(row, scn) for row in branch.rows):
                return True
            self._emit(thread, event, branch, out)
        return True

    def _close(self, home: ThreadAssembly, xid: int) -> Branch:
        slot = slot_of(xid)
        if home.slots.get(slot) == xid:
            del home.slots[slot]
        return home.branches.pop(xid)

    def _order_of(self, thread: ThreadAssembly, scn: Scn) -> Order:
        """The order of a commit at the record that is being processed."""
        sequence, offset, _ = thread.lwn_place
        return _order((scn, sequence << 40 | offset + thread.at + 1))

    def _follow(self, thread: ThreadAssembly, scn: Scn, xid: int, statements: list[bytes]) -> None:
        """Process committed DDL, and mark tables as stale that this transaction may have changed unnoticed."""
        order = self._order_of(thread, scn)
        for table, (xids, why) in list(self._doubtful.items()):
            if xid in xids:
                xids.discard(xid)
                self.stale.add(table, order, why)
            if not xids:
                del self._doubtful[table]
        for data in statements:
            found = self._maker.followed(scn, data)
            for table, why in found.stale.items():
                self.stale.add(table, order, why)
            for table in found.joined:
                self._doubt(table, order, found.stale.get(table, "its object was not captured before"))

    def verify(self, scn: Scn) -> None:
        """All threads are read up to `scn`: mark tables as stale whose object differs from the database's."""
        found = self._maker.verify(scn)
        if found is not None:
            for table, why in found.stale.items():
                self._doubt(table, Order.mark(scn), why)

    def _load(self, thread: ThreadAssembly, scn: Scn, data: bytes) -> None:
        """Rows were loaded as whole blocks, by an open transaction or one in this LWN: which one is not in the log."""
        if self._again(thread) and not thread.open_then:
            return
        table = self._maker.loaded(scn, data)
        if table is not None:
            self._doubt(table, Order.mark(scn), "a direct load")

    def _doubt(self, table: str, order: Order, why: str) -> None:
        """Mark a table as stale now, and again at the end of each open transaction, which may have changed its rows by
        records that were not captured."""
        upper = Order.mark(max(each.upper for each in self.threads.values()))
        if upper.major > min(each.since for each in self.threads.values()):
            # every copy contains the transactions that ended before the start of capture
            self.stale.add(table, max(order, upper), why)
        xids = {xid for each in self.threads.values() for xid in each.branches}
        known = self._doubtful.get(table)
        self._doubtful[table] = (xids | known[0] if known else xids, why)

    def _emit(self, thread: ThreadAssembly, event: Event, branch: Branch, out: Out) -> None:
        """Emit a transaction that committed after the start of capture and was not emitted before."""
        scn, xid, _, _, data = event
        order = self._order_of(thread, scn)
        if order <= thread.last_order:
            raise self._broken(thread, f"commit at {order} after one at {thread.last_order}")
        thread.last_order = order
        time_us = HEAD.unpack_from(data)[0] * 1_000_000
        changes = Changes(self._maker, branch.taken(), time_us, scn)
        count = branch.changes_max()
        size = max(0, branch.bytes - _PAIR_MORE_BYTES * branch.count) + _FRAME_MORE_BYTES * count
        out.append(SourceTransaction(thread.number, txid_text(xid), order, time_us, changes, size, count))

    # --- rules

    def _again(self, thread: ThreadAssembly) -> bool:
        """Whether this record was processed before the restart."""
        return not thread.caught_up and thread.here() < thread.read_until

    def _is_old(self, thread: ThreadAssembly, scn: Scn) -> bool:
        """Whether a record without a begin belongs to a transaction that ended before capture or the restart."""
        return scn <= thread.since or self._again(thread)

    def _is_left_out(self, xid: int) -> bool:
        """`xid` may be only segment and slot, as in an undo."""
        return xid in self.left_out or any(slot_of(each) == xid for each in self.left_out)

    def _ready(self, thread: ThreadAssembly, scn: Scn) -> bool:
        """Whether all other threads have been read to `scn`; else sets `waiting` and `awaited`."""
        late = [
            other.number
            for other in self.threads.values()
            if other is not thread and other.mark < scn and (other.waiting is None or other.waiting < scn)
        ]
        if late:
            thread.waiting, thread.awaited = scn, frozenset(late)
        return not late

    def _stray(self, thread: ThreadAssembly, scn: Scn, xid: int) -> Callable[[bytes], None]:
        if self._is_old(thread, scn) or self._is_left_out(xid):
            return _ignore
        raise LogGapError(
            f"a record of transaction {txid_text(xid)}, but its begin was not read",
            hint="records are missing before this one; start capture again",
            **self._where(thread),
        )

    def _spill(self) -> None:
        every = (branch for thread in self.threads.values() for branch in thread.branches.values())
        self._held = spill_largest(every, self._space, self._spill_bytes_max)

    def _where(self, thread: ThreadAssembly) -> Where:
        return {"source": self._source, "thread": thread.number, "position": str(thread.here())}

    def _broken(self, thread: ThreadAssembly, what: str) -> SourceError:
        hint = "the order of this thread cannot be trusted: report it with the log"
        return MarkBrokenError(what, hint=hint, **self._where(thread))

    def _corrupt(self, thread: ThreadAssembly, what: str) -> SourceError:
        return LogCorruptError(what, **self._where(thread))


def _ignore(row: bytes) -> None:
    """Discard a row of a transaction that is not captured."""
