"""The simulated cluster: its tables, and the start, stop and recovery of its instances.

    cluster = Cluster(directory, threads=2, tables=BANK)
    txn = cluster.begin(1)
    cluster.insert(txn, "BANK.ACCOUNTS", row)
    cluster.commit(txn)                       # in the log, in the control file, in cluster.history
    cluster.switch(2); cluster.heartbeat()    # every call is one step

| event | call | state in the control file |
|---|---|---|
| an instance shuts down | `close_thread` | closed |
| it starts | `open_thread` | open |
| it crashes | `stop` | still open, and no more redo |
| … and restarts | `restart` | open; its dead transactions are rolled back in its own thread |
| … or another instance recovers it | `recover` | closed; they are rolled back in the other instance's thread |
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lowwater.codec.table import TableSchema
from lowwater_devkit.simulated_rac.history import Committed, LoggedChange, Transaction
from lowwater_devkit.simulated_rac.instance import Database, Instance
from lowwater_devkit.simulated_rac.layout import replace_file
from lowwater_devkit.simulated_rac.redo.log import Form
from lowwater_devkit.simulated_rac.redo.pairs import CONTAINER
from lowwater_devkit.simulated_rac.redo.rows import PIECE_BYTES_MAX, RedoTable
from lowwater_devkit.simulated_rac.transactions import Transactions
from lowwater_extractor.sources.oracle.dictionary import file as dictionary_file
from lowwater_extractor.sources.oracle.dictionary.dictionary import ALL, PRIMARY_KEY, Dictionary, TableVersion
from lowwater_extractor.sources.oracle.scn import Scn

__all__ = ["Cluster", "Committed", "LoggedChange", "Transaction"]

_SUPPLEMENTAL = {"all": (ALL,), "key": (PRIMARY_KEY,), "none": ()}
#: added to a table's number for the number of its twin
_TWINS = 1 << 16


class Cluster(Transactions):
    def __init__(
        self,
        directory: Path | str,
        threads: int = 2,
        *,
        tables: Iterable[TableSchema] = (),
        form: Form | None = None,
        supplemental: str = "all",
        piece_bytes_max: int = PIECE_BYTES_MAX,
        migrate_bytes: int = 0,
        noise: int = 0,
        **options: Any,
    ) -> None:
        """`supplemental`, `piece_bytes_max`, `migrate_bytes`: see `RedoTable`.

        `noise`: one unrelated record is written after this number of changes (0: none).
        """
        super().__init__(directory, form=form or Form(), noise=noise, **options)
        self._supplemental = supplemental
        self._row_options = {"piece_bytes_max": piece_bytes_max, "migrate_bytes": migrate_bytes}
        self._dictionary = Dictionary()
        self._tables: dict[str, RedoTable] = {}
        #: tables that system transactions change instead
        self._twins: dict[str, RedoTable] = {}
        for table in tables:
            self._add(table)
        self._write_dictionary()
        for thread in range(1, threads + 1):
            self.add_thread(thread)

    # --- tables

    def add_table(self, table: TableSchema) -> None:
        self._add(table)
        self._write_dictionary()

    def _add(self, table: TableSchema) -> None:
        redo = self._tables[table.full_name] = self._new_table(table, len(self._tables) + 1)
        version = TableVersion(
            source="",
            owner=table.namespace,
            table=table.table,
            object_id=redo.segment.object_id,
            columns=tuple(redo.columns),
            container=CONTAINER,
            from_scn=Scn(self.scn if self.instances else 0),
            key=table.key,
            data_object_ids=(redo.segment.data_object_id,),
            supplemental=_SUPPLEMENTAL[self._supplemental],
        )
        self._dictionary.add(version)

    def _new_table(self, table: TableSchema, number: int) -> RedoTable:
        return RedoTable(self.form, table, number, supplemental=self._supplemental, **self._row_options)

    def _write_dictionary(self) -> None:
        described = dictionary_file.to_json(self._dictionary)
        replace_file(self.layout.dictionary, json.dumps(described).encode())

    def table_of(self, transaction: Transaction, name: str) -> RedoTable:
        """The table that a transaction changes: system transactions use a twin that is not captured."""
        if not transaction.system:
            return self._tables[name]
        if name not in self._twins:
            number = _TWINS + list(self._tables).index(name)
            self._twins[name] = self._new_table(self._tables[name].schema, number)
        return self._twins[name]

    # --- threads

    def add_thread(self, thread: int, *, opened: bool = True) -> None:
        """Add a new thread. Its first SCN is a new SCN."""
        if thread in self.instances:
            raise ValueError(f"thread {thread} exists")
        self.instances[thread] = self._new_instance(thread, opened)
        self.write_control()

    def _new_instance(self, thread: int, opened: bool) -> Instance:
        self._new_session.add(thread)
        instance = Instance(
            self.layout,
            thread,
            Database(self.database, self.resetlogs, self.resetlogs_scn),
            self.groups,
            self.log_bytes,
            form=self.form,
            lwn_bytes=self.lwn_bytes,
            clock_us=lambda: self._time_us,
            heartbeat=self._noise.written,
        )
        instance.enabled_scn = self.advance()
        instance.switch(self.scn)
        if opened:
            instance.state, instance.alive, instance.opened_scn = "open", True, self.scn
        return instance

    def close_thread(self, thread: int) -> None:
        """A clean shutdown: open transactions are rolled back first.

        Prepared transactions stay in doubt, and those that are also in a crashed instance wait for its recovery.
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
        self.instances[thread].close_thread(self.scn)
        self.write_control()

    def open_thread(self, thread: int) -> None:
        """Open a thread with a new SCN and a new log: its redo is above every SCN while it was closed."""
        instance = self.instances[thread]
        if instance.state == "open":
            raise ValueError(f"thread {thread} is open")
        instance.switch(self.advance())
        instance.state, instance.alive, instance.opened_scn = "open", True, self.scn
        self._new_session.add(thread)
        self.write_control()

    def stop(self, thread: int, *, torn: int = 0) -> None:
        """The instance crashes: its log buffer is lost, except for the first `torn` bytes of an LWN.

        The thread stays open in the control file.
        """
        instance = self.instances[thread]
        if torn:
            self.tear(thread, torn)
        instance.lose_buffer()
        instance.alive = False
        for transaction in list(self.open.values()):
            lost = [each for each in transaction.branches.values() if each.closing and each.closing[0] == thread]
            for branch in lost:
                branch.closing = transaction.closing = None
            if lost or thread in {transaction.home, *transaction.threads}:
                self._cut_off(transaction, thread)

    def _cut_off(self, transaction: Transaction, thread: int) -> None:
        if not transaction.prepared:
            transaction.doomed_by.add(thread)
        branch = transaction.branches.get(thread)
        if branch is not None and (branch.xid, thread) not in self._places:
            # none of its records is in this log
            transaction.threads.remove(thread)
            self._forget(branch)
        if not transaction.threads:
            self._gone(transaction)

    def dead(self, thread: int) -> list[Transaction]:
        """Transactions that the crash of this thread's instance has ended; prepared ones are not among them."""
        return [
            transaction
            for transaction in self.open.values()
            if thread in transaction.doomed_by and transaction.closing is None
        ]

    def restart(self, thread: int) -> None:
        """The crashed instance restarts, switches its log and rolls back its dead transactions."""
        instance = self._stopped(thread)
        instance.switch(self.advance())
        instance.alive, instance.opened_scn = True, self.scn
        self.write_control()
        for transaction in self.dead(thread):
            self.rollback(transaction, thread=thread)

    def recover(self, thread: int, by: int) -> None:
        """Another instance closes the thread, and then rolls back the dead transactions in its own log."""
        self._stopped(thread).state = "closed"
        self.advance()
        self.write_control()
        for transaction in self.dead(thread):
            self.rollback(transaction, thread=by)

    def _stopped(self, thread: int) -> Instance:
        instance = self.instances[thread]
        if instance.alive or instance.state != "open":
            raise ValueError(f"instance {thread} has not crashed")
        return instance

    def reset_logs(self) -> None:
        """ALTER DATABASE OPEN RESETLOGS: a new incarnation, sequences start again."""
        self.resetlogs_scn = self.advance()
        self.resetlogs += 1
        for kept in (self.open, self._branches, self._slots, self._places):
            kept.clear()
        for thread, old in list(self.instances.items()):
            old.shut()
            self.instances[thread] = self._new_instance(thread, opened=True)
        self.write_control()
