"""The simulated cluster: its instances come and go.

    cluster = Cluster(directory, threads=2, tables=BANK)
    txn = cluster.begin(1)
    cluster.insert(txn, "BANK.ACCOUNTS", row)
    cluster.commit(txn)                       # in the log, in the control file, in cluster.history
    cluster.switch(2); cluster.heartbeat()    # and so on, one step after the other

| what happens | call | the control file says |
|---|---|---|
| an instance shuts down | `close_thread` | closed |
| it starts | `open_thread` | open |
| it stops without a word | `stop` | still open, and no more redo |
| … and starts again by itself | `restart` | open; its dead transactions are rolled back in its own thread |
| … and another one recovers it | `recover` | closed; they are rolled back in the other's thread |
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lowwater.codec.table import TableSchema
from lowwater_extractor.sources.simulated_rac.history import Committed, LoggedChange, Transaction
from lowwater_extractor.sources.simulated_rac.instance import Instance
from lowwater_extractor.sources.simulated_rac.transactions import Transactions

__all__ = ["Cluster", "Committed", "LoggedChange", "Transaction"]


class Cluster(Transactions):
    def __new__(cls, *_: Any, format: str = "own", **__: Any) -> Cluster:
        """`format`: "own" is that of `log`, "redo" that of real redo files."""
        if format not in ("own", "redo"):
            raise ValueError(f"a cluster writes in format own or redo, not {format!r}")
        if format == "redo" and cls is Cluster:
            from lowwater_extractor.sources.simulated_rac.redo_cluster import RedoCluster

            return super().__new__(RedoCluster)
        return super().__new__(cls)

    def __init__(
        self,
        directory: Path | str,
        threads: int = 2,
        *,
        tables: Iterable[TableSchema] = (),
        format: str = "own",
        **options: Any,
    ) -> None:
        super().__init__(directory, **options)
        for table in tables:
            self.add_table(table)
        for thread in range(1, threads + 1):
            self.add_thread(thread)

    def add_thread(self, thread: int, *, opened: bool = True) -> None:
        """A thread that was not there before. Its first SCN is a new one."""
        if thread in self.instances:
            raise ValueError(f"thread {thread} exists")
        instance = self._instance(thread)
        instance.enabled_scn = self.advance()
        instance.switch(self.scn)
        self.instances[thread] = instance
        if opened:
            instance.state, instance.alive, instance.opened_scn = "open", True, self.scn
        self.write_control()

    def _instance(self, thread: int) -> Instance:
        return Instance(self.layout, thread, self.database, self.resetlogs, self.groups, self.log_bytes)

    def close_thread(self, thread: int) -> None:
        """A clean shutdown: open transactions are rolled back first.

        Prepared ones stay in doubt, and those that are also in a stopped instance wait for its recovery.
        """
        for transaction in list(self.open.values()):
            members = [self.instances[number] for number in {transaction.home, *transaction.threads}]
            if (
                self.instances[thread] in members
                and not transaction.prepared
                and not transaction.doomed_by
                and transaction.closing is None
                and all(member.alive for member in members)
            ):
                self.rollback(transaction)
        self.flush(thread)
        self.instances[thread].state = "closed"
        self.instances[thread].alive = False
        self.write_control()

    def open_thread(self, thread: int) -> None:
        """A new SCN and a new log: all its redo is above every SCN that was current while it was closed."""
        instance = self.instances[thread]
        if instance.state == "open":
            raise ValueError(f"thread {thread} is open")
        instance.switch(self.advance())
        instance.state, instance.alive, instance.opened_scn = "open", True, self.scn
        self.write_control()

    def stop(self, thread: int, *, torn: int = 0) -> None:
        """The instance is gone: what its buffer held is lost, perhaps but for `torn` bytes of an LWN.

        Nobody says so: the thread stays open in the control file.
        """
        instance = self.instances[thread]
        if torn:
            self.tear(thread, torn)
        instance.lose_buffer()
        instance.alive = False
        for transaction in list(self.open.values()):
            lost_close = transaction.closing is not None and transaction.closing[0] == thread
            if lost_close:
                transaction.closing = None
            if lost_close or thread in {transaction.home, *transaction.threads}:
                self._cut_off(transaction, thread)

    def _cut_off(self, transaction: Transaction, thread: int) -> None:
        if not transaction.prepared:
            transaction.doomed_by.add(thread)
        if thread in transaction.threads and (transaction.xid, thread) not in self._places:
            # not one record of it got into this log
            transaction.threads.remove(thread)
        if not transaction.threads:
            del self.open[transaction.xid]

    def dead(self, thread: int) -> list[Transaction]:
        """Transactions that the stop of this thread's instance has cut off; prepared ones live on."""
        return [
            transaction
            for transaction in self.open.values()
            if thread in transaction.doomed_by and transaction.closing is None
        ]

    def restart(self, thread: int) -> None:
        """The instance comes back, switches its log and rolls back what its end has cut off."""
        instance = self._stopped(thread)
        instance.switch(self.advance())
        instance.alive, instance.opened_scn = True, self.scn
        self.write_control()
        for transaction in self.dead(thread):
            self.rollback(transaction, thread=thread)

    def recover(self, thread: int, by: int) -> None:
        """Another instance closes the thread, and then rolls back in its own log what was cut off."""
        self._stopped(thread).state = "closed"
        self.advance()
        self.write_control()
        for transaction in self.dead(thread):
            self.rollback(transaction, thread=by)

    def _stopped(self, thread: int) -> Instance:
        instance = self.instances[thread]
        if instance.alive or instance.state != "open":
            raise ValueError(f"instance {thread} has not stopped without a word")
        return instance

    def reset_logs(self) -> None:
        """ALTER DATABASE OPEN RESETLOGS: another incarnation, sequences begin anew."""
        self.resetlogs += 1
        self.open.clear()
        self._places.clear()
        for thread, old in list(self.instances.items()):
            old.shut()
            self.instances[thread] = instance = self._instance(thread)
            instance.enabled_scn = self.advance()
            instance.switch(self.scn)
            instance.state, instance.alive, instance.opened_scn = "open", True, self.scn
        self.write_control()
