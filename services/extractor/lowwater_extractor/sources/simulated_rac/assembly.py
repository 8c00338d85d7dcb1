"""From records to committed transactions: by xid, across threads. No clock, no files but the spill's.

Records of one thread come in the log's order. Most transactions live in one thread and need no other. Three
kinds of record belong to a transaction of another thread: the close of an XA transaction, the rollback of a
dead instance's transaction by another instance, and the undo records of that.

**The rule for those.** A record of SCN c in thread t that belongs to a transaction with records in thread u
is processed only when u has been read to c: its mark is at or above c, or it is itself suspended at a record
of SCN ≥ c (SCNs of a thread do not fall, and what follows in another thread carries a higher one). Until then
t is suspended there: it yields, and its mark, the LWN's SCN − 1, stays below c. Of the suspended threads the
one with the lowest SCN never waits for another suspended one, so they cannot wait in a circle.

**After a restart** each thread is read from a place at or before the first record of all that was open in it, up
to `read_until` for the second time. There, and only there, records of transactions that were not open then are
leftovers of closed ones and mean nothing, wherever their begin and their close may be. Behind it a record
without a begin is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError, SourceError
from lowwater.positions import Order
from lowwater_extractor.source import SourceTransaction
from lowwater_extractor.sources.simulated_rac import log
from lowwater_extractor.sources.simulated_rac.branches import Branch, ThreadAssembly
from lowwater_extractor.sources.simulated_rac.changes import FRAME_MORE_BYTES, Changes, FrameMaker, MergedRows
from lowwater_extractor.sources.simulated_rac.log import BEGIN, COMMIT, ENTRY, ROLLBACK, ROW, Lwn, Place
from lowwater_extractor.spill import SpillSpace

Out = list[SourceTransaction]

#: `Order(major, minor)` at half its cost: one for each transaction
_order: Callable[[tuple[int, int]], Order] = partial(tuple.__new__, Order)

_DROPPED = Branch.special(Place(0, 0), kept=False, xa=False)


class Assembler:
    def __init__(
        self,
        source: str,
        maker: FrameMaker,
        space: SpillSpace,
        *,
        include_system: bool = False,
        spill_bytes_max: int = 64 << 20,
    ) -> None:
        self.threads: dict[int, ThreadAssembly] = {}
        #: transactions whose begin is gone and which the operator asked to leave out
        self.left_out: set[int] = set()
        self._source = source
        self._maker = maker
        self._space = space
        self._include_system = include_system
        self._spill_bytes_max = spill_bytes_max
        #: at most the bytes of rows in memory: what is dropped is not taken off at once
        self._held = 0

    # --- what the stream calls

    def feed(self, thread: ThreadAssembly, lwn: Lwn, out: Out) -> bool:
        """Process an LWN. False: suspended at a record that waits for another thread."""
        thread.mark = max(thread.mark, lwn.scn - 1)
        thread.lwn, thread.lwn_place = lwn, Place(lwn.sequence, lwn.offset)
        thread.at, thread.records = 0, ENTRY.iter_unpack(lwn.entries)
        return self.go_on(thread, out)

    def go_on(self, thread: ThreadAssembly, out: Out) -> bool:
        """From where it was suspended to the end of the LWN. All records pass here, so it is written for speed."""
        lwn = thread.lwn
        assert lwn is not None
        data, at, floor, place = lwn.data, thread.at, thread.mark, thread.lwn_place
        branches, records = thread.branches, thread.records
        get = branches.get
        # nothing is read for the second time and nothing is left out: begin and commit mean what they say
        plain = thread.caught_up and not self.left_out
        last, append = -1, _DROPPED.append
        thread.waiting, thread.awaited = None, frozenset()
        for scn, xid, code, end in records:
            if scn <= floor:
                thread.at = at
                raise self._broken(thread, f"a record of SCN {scn} at or below the thread's mark {floor}")
            if code >= ROW:
                if xid != last:
                    branch = get(xid)
                    if branch is None:
                        thread.at = at
                        branch = self._stray(thread, xid)
                    if branch.scns is not None:
                        branch.scns.append(scn)
                        branch.append(data[at:end])
                        at = end
                        continue
                    last, append = xid, branch.append
                append(data[at:end])
            elif plain and code == BEGIN and xid not in branches:
                branches[xid] = Branch(place)
            else:
                last = -1
                thread.at = at
                if not self._control(thread, scn, xid, code, data[at:end], out):
                    thread.records = chain(((scn, xid, code, end),), records)
                    self.reached(thread, thread.here())
                    return False
            at = end
        if at != len(data):
            raise self._corrupt(thread, "the LWN's records do not fill it")
        thread.lwn = None
        self._held += len(data)
        if self._held > self._spill_bytes_max:
            self._spill()
        return True

    def reached(self, thread: ThreadAssembly, place: Place) -> None:
        """All before `place` has been processed: perhaps the restart is over for this thread."""
        if thread.caught_up or place < thread.read_until:
            return
        thread.caught_up = True
        thread.mark = max(thread.mark, thread.mark_then)
        missing = thread.open_then - thread.branches.keys() - thread.touched.keys()
        if missing:
            names = [f"{xid:016x}" for xid in sorted(missing)]
            raise self._corrupt(thread, f"open transactions were not found again: {', '.join(names)}")
        thread.open_then = set()

    def start(self, thread: ThreadAssembly, read: Place) -> Place:
        """From where the thread has to be read after a restart, given how far it is read."""
        return min([read, *thread.first_open()])

    # --- records that are not rows

    def _control(self, thread: ThreadAssembly, scn: int, xid: int, code: int, data: bytes, out: Out) -> bool:
        operation = code & log.OPERATION
        if operation in (COMMIT, ROLLBACK):
            if code & log.FLAG_CROSS:
                return self._close_cross(thread, scn, xid, operation, data, out)
            branch = thread.branches.pop(xid, None)
            if thread.open_then:
                thread.open_then.discard(xid)
            if branch is None:
                self._stray(thread, xid)
                self.left_out.discard(xid)
            elif branch.rows or branch.spilled is not None:
                self._close(thread, scn, xid, operation, data, branch, out)
        elif operation == BEGIN:
            self._begin(thread, xid, code)
        elif operation == log.UNDO:
            return self._undo(thread, scn, xid, code & log.ARGUMENT)
        elif operation == log.PREPARE:
            if xid not in thread.branches:
                self._stray(thread, xid)
        else:
            raise LogUnknownError(f"record with code {code:08x}", **self._where(thread))
        return True

    def _begin(self, thread: ThreadAssembly, xid: int, flags: int) -> None:
        if xid in thread.branches:
            raise self._twice(thread, xid)
        if self._again(thread) and xid not in thread.open_then:
            return
        kept = xid not in self.left_out and (self._include_system or not flags & log.FLAG_SYSTEM)
        xa = bool(flags & log.FLAG_XA)
        thread.branches[xid] = Branch.special(thread.lwn_place, kept=kept, xa=xa)

    def _undo(self, thread: ThreadAssembly, scn: int, xid: int, owner: int) -> bool:
        branches = thread.branches
        if owner != thread.number:
            if self._again(thread) and xid not in thread.open_then:
                return True
            if not self._ready(thread, scn, [owner]):
                return False
            branches = self.threads[owner].branches
        branch = branches.get(xid)
        if branch is None:
            branch = self._stray(thread, xid)
        elif owner != thread.number:
            thread.touched.setdefault(xid, thread.lwn_place)
        if not branch.undo():
            raise self._corrupt(thread, f"undo in transaction {xid:016x}, which has no change left")
        return True

    def _close_cross(self, thread: ThreadAssembly, scn: int, xid: int, operation: int, data: bytes, out: Out) -> bool:
        others = [int.from_bytes(data[at : at + 2], "little") for at in range(log.TIME.size, len(data), 2)]
        if self._again(thread):
            return True
        if not self._ready(thread, scn, others):
            return False
        parts: list[tuple[int, Branch]] = []
        for number in (thread.number, *others):
            member = self.threads[number]
            branch = member.branches.pop(xid, None)
            touched = member.touched.pop(xid, None)
            # it may be that this other thread is still read for the second time, behind the close
            member.open_then.discard(xid)
            if branch is not None:
                parts.append((number, branch))
            elif touched is None and number != thread.number:
                self._stray(thread, xid, f"its records in thread {number} were not read")
        if xid in self.left_out:
            self.left_out.discard(xid)
        elif parts:
            self._close_parts(thread, scn, xid, operation, data, parts, out)
        return True

    def _close(
        self, thread: ThreadAssembly, scn: int, xid: int, operation: int, data: bytes, branch: Branch, out: Out
    ) -> None:
        """A transaction of this thread alone."""
        rows = branch.rows
        size, count = sum(map(len, rows)), len(rows)
        self._held -= size
        whole: Iterable[bytes] = rows
        if branch.spilled is not None:
            size, count, whole = size + branch.spilled.bytes, branch.count, branch.taken()
        if count and operation == COMMIT and scn > thread.since and (thread.caught_up or not self._again(thread)):
            self._emit(thread, scn, xid, data, whole, size, count, out)

    def _close_parts(
        self,
        thread: ThreadAssembly,
        scn: int,
        xid: int,
        operation: int,
        data: bytes,
        parts: list[tuple[int, Branch]],
        out: Out,
    ) -> None:
        """A transaction of several threads."""
        self._held -= sum(branch.memory() for _, branch in parts)
        count = sum(branch.count for _, branch in parts)
        if count and operation == COMMIT and scn > thread.since and not self._again(thread):
            size = sum(branch.bytes for _, branch in parts)
            rows = MergedRows([(number, branch.taken()) for number, branch in parts if branch.count])
            self._emit(thread, scn, xid, data, rows, size, count, out)

    def _emit(
        self,
        thread: ThreadAssembly,
        scn: int,
        xid: int,
        data: bytes,
        rows: Iterable[bytes],
        size: int,
        count: int,
        out: Out,
    ) -> None:
        """Hand over a commit that lies behind the start of capture and was not handed over before."""
        sequence, offset, _ = thread.lwn_place
        order = _order((scn, sequence << 40 | offset + thread.at + 1))
        if order <= thread.last_order:
            raise self._broken(thread, f"commit at {order} behind one at {thread.last_order}")
        thread.last_order = order
        (time_us,) = log.TIME.unpack_from(data)
        changes = Changes(self._maker, rows, time_us)
        size += FRAME_MORE_BYTES * count
        out.append(SourceTransaction(thread.number, f"{xid:016x}", order, time_us, changes, size, count))

    # --- rules

    def _again(self, thread: ThreadAssembly) -> bool:
        """Has this record been processed before the restart?"""
        return not thread.caught_up and thread.here() < thread.read_until

    def _ready(self, thread: ThreadAssembly, scn: int, others: list[int]) -> bool:
        late = []
        for number in others:
            other = self.threads.get(number)
            if other is None or (other.mark < scn and (other.waiting is None or other.waiting < scn)):
                late.append(number)
        if late:
            thread.waiting, thread.awaited = scn, frozenset(late)
        return not late

    def _stray(self, thread: ThreadAssembly, xid: int, why: str = "its begin was not read") -> Branch:
        if self._again(thread) or xid in self.left_out:
            return _DROPPED
        raise LogGapError(
            f"a record of transaction {xid:016x}, but {why}",
            hint="records are missing before this one; capture has to begin anew",
            **self._where(thread),
        )

    def _spill(self) -> None:
        """Down to half of the limit, the largest first."""
        every = [branch for thread in self.threads.values() for branch in thread.branches.values()]
        sizes = sorted(((branch.memory(), at) for at, branch in enumerate(every)), reverse=True)
        self._held = sum(size for size, _ in sizes)
        for size, at in sizes:
            if self._held <= self._spill_bytes_max // 2 or not size:
                break
            every[at].spill(self._space, size)
            self._held -= size

    def _where(self, thread: ThreadAssembly) -> log.Where:
        return {"source": self._source, "thread": thread.number, "position": str(thread.here())}

    def _broken(self, thread: ThreadAssembly, what: str) -> SourceError:
        hint = "the order of this thread cannot be trusted: report it with the log"
        return MarkBrokenError(what, hint=hint, **self._where(thread))

    def _twice(self, thread: ThreadAssembly, xid: int) -> SourceError:
        return self._corrupt(thread, f"transaction {xid:016x} begins twice")

    def _corrupt(self, thread: ThreadAssembly, what: str) -> SourceError:
        return LogCorruptError(what, **self._where(thread))
