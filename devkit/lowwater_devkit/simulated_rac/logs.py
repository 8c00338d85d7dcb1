"""The SCN clock, the instances with their logs, and the lists of open and committed transactions.

Every event is the result of a call, one after the other, so a script (or a seed) writes the same files each time. The
simulation gives the guarantees of the database that the reader depends on:

- The SCN never decreases; the SCNs of a thread's records do not decrease, and no record after an LWN has an SCN below
  the LWN's upper bound; a commit gets a new SCN (two threads may share one: `commit_together`).
- A change after one of the same transaction in another thread has a higher SCN, because messages between instances
  carry the SCN.
- Opening a thread allocates a new SCN: all its redo is above every SCN that was current before.
- A transaction is in the control file's list from its begin until its end is in a log.
- Records of a transaction that another instance writes come after all its records in its own thread's log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lowwater_devkit.simulated_rac.history import Branch, Committed, Transaction, history_line
from lowwater_devkit.simulated_rac.instance import Flushed, Instance
from lowwater_devkit.simulated_rac.layout import Layout, OpenTransaction, replace_file
from lowwater_devkit.simulated_rac.redo.pairs import CONTAINER

TIME_START_US = 1_700_000_000_000_000


class Logs:
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
        self.layout = Layout(Path(directory))
        for name in ("online", "archive"):
            (self.layout.root / name).mkdir(parents=True, exist_ok=True)
        self.scn = first_scn
        self.groups, self.log_bytes, self.lwn_bytes = groups, log_bytes, lwn_bytes
        self.database, self.resetlogs, self.resetlogs_scn = database, 1, first_scn
        self._now_us = now_us
        self._time_us = TIME_START_US
        #: store the changes of transactions: for the history, and for rollback to a savepoint
        self.keep_history = keep_history
        self._history_in_memory = history_in_memory
        self._history_file = self.layout.history.open("a") if history_file else None
        #: every committed transaction that changed something and whose commit is in the log
        self.history: list[Committed] = []
        self.open: dict[int, Transaction] = {}
        self._branches: dict[int, Branch] = {}
        #: undo segment and slot of open transactions
        self._slots: set[int] = set()
        self._places: dict[tuple[int, int], OpenTransaction] = {}
        self.instances: dict[int, Instance] = {}

    # --- clocks and files

    def now_us(self) -> int:
        if self._now_us is not None:
            self._time_us = max(self._time_us, self._now_us())
        else:
            self._time_us += 1000
        return self._time_us

    def advance(self, by: int = 1) -> int:
        """Advance the SCN clock, and return the new SCN."""
        self.scn += by
        return self.scn

    def write_control(self) -> None:
        """Write the state that V$DATABASE, V$THREAD and GV$TRANSACTION would show."""
        state = {
            "database": self.database,
            "resetlogs": self.resetlogs,
            "resetlogs_scn": self.resetlogs_scn,
            "current_scn": self.scn,
            "container": CONTAINER,
            "threads": {number: instance.info()._asdict() for number, instance in self.instances.items()},
            "open": [entry._asdict() for entry in self._open_now()],
        }
        replace_file(self.layout.control, json.dumps(state).encode())

    def _open_now(self) -> list[OpenTransaction]:
        """Open transactions, including those that began in a buffer, and the first undo records in other threads."""
        begun = [
            OpenTransaction(branch.xid, branch.thread, branch.segment.begin_scn)
            for branch in self._branches.values()
            if branch.segment.begin_scn >= 0
        ]
        return begun + [each for each in self._places.values() if self._branches[each.xid].thread != each.thread]

    def close(self) -> None:
        for instance in self.instances.values():
            instance.shut()
        if self._history_file is not None:
            self._history_file.close()

    def running(self, thread: int) -> Instance:
        instance = self.instances[thread]
        if not instance.alive:
            raise ValueError(f"instance {thread} is not running")
        return instance

    # --- logs

    def flush(self, thread: int | None = None) -> None:
        """Write the log buffers as LWNs; a full log is switched first."""
        for number in [thread] if thread else list(self.instances):
            instance = self.instances[number]
            if not instance.alive or not instance.buffered:
                continue
            if instance.full():
                # the SCN does not advance: a record in the buffer may have exactly the next log's first SCN
                instance.switch(instance.buffered_scn)
            flushed = instance.flush(self.now_us())
            if flushed is not None:
                self._note(number, flushed)
        self.write_control()

    def _note(self, thread: int, flushed: Flushed) -> None:
        for xid, scn in flushed.xids.items():
            if xid in self._branches and (xid, thread) not in self._places:
                self._places[xid, thread] = OpenTransaction(xid, thread, scn)
        for xid in flushed.closed:
            self._closed(self._branches[xid])

    def _closed(self, branch: Branch) -> None:
        """The branch's end is in the log: add it to the history if it committed."""
        assert branch.closing is not None
        thread, scn, time_us, committed = branch.closing
        transaction = branch.owner
        for number in self.instances:
            self._places.pop((branch.xid, number), None)
        self._forget(branch)
        if not transaction.branches:
            self._gone(transaction)
        changes = [change for number, change in transaction.changes if number == branch.thread]
        if committed and changes:
            self._remember(Committed(branch.xid, thread, scn, time_us, transaction.system, changes))

    def _remember(self, entry: Committed) -> None:
        if self._history_in_memory:
            self.history.append(entry)
        if self._history_file is not None:
            self._history_file.write(history_line(entry))
            self._history_file.flush()

    def _forget(self, branch: Branch) -> None:
        del branch.owner.branches[branch.thread]
        del self._branches[branch.xid]
        self._slots.discard(branch.xid >> 32)

    def _gone(self, transaction: Transaction) -> None:
        del self.open[transaction.xid]
        self._slots.discard(transaction.xid >> 32)

    def switch(self, thread: int) -> None:
        """Switch the log. The next log's first record may have exactly its first SCN: a change does not advance it."""
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
        """Write only a part of this thread's next LWN, until the next flush."""
        self.instances[thread].tear(self._time_us, keep)

    def delete_archives(self, thread: int, below: int) -> None:
        for path in (self.layout.root / "archive").glob(f"thread_{thread}_seq_*.log"):
            if int(path.stem.rpartition("_")[2]) < below:
                path.unlink()

    def delete_acknowledged(self) -> None:
        """Delete the archived logs that the extractor has acknowledged."""
        if self.layout.acknowledged.exists():
            for thread, sequence in json.loads(self.layout.acknowledged.read_bytes()).items():
                self.delete_archives(int(thread), int(sequence))
