"""The simulated cluster with real redo files: `Cluster(…, format="redo")`.

The same calls and the same history as with the own format, with what real redo does otherwise:

- A transaction begins with its first change, not before: one without a change leaves nothing in the log. Only a
  system transaction says that it begins.
- A transaction is in one thread. An XA transaction has a branch in every thread where it changes something, each with
  an xid of its own and a commit of its own, all with one SCN; the history has an entry for each. Branches are
  prepared before they commit. Where a branch's instance is gone, another one writes its end.
- Every change that is rolled back is written once more the other way round, the newest first.
- Nothing behind an LWN has an SCN below its upper bound: the clock goes on where it would.
- Commit times are in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lowwater.codec.table import TableSchema
from lowwater_extractor.sources.oracle import dictionary_file
from lowwater_extractor.sources.oracle.dictionary import ALL, PRIMARY_KEY, Dictionary, TableVersion
from lowwater_extractor.sources.simulated_rac.history import Transaction
from lowwater_extractor.sources.simulated_rac.log import replace_file
from lowwater_extractor.sources.simulated_rac.redo_format import Form
from lowwater_extractor.sources.simulated_rac.redo_instance import Database, RedoInstance
from lowwater_extractor.sources.simulated_rac.redo_pairs import CONTAINER
from lowwater_extractor.sources.simulated_rac.redo_rows import PIECE_BYTES_MAX, RedoTable
from lowwater_extractor.sources.simulated_rac.redo_transactions import RedoTransaction, RedoTransactions
from lowwater_extractor.sources.simulated_rac.rows import table_to_json

_SUPPLEMENTAL = {"all": (ALL,), "key": (PRIMARY_KEY,), "none": ()}


class RedoCluster(RedoTransactions):
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

        `noise`: after so many changes comes a record of something else (0: none).
        """
        self._supplemental = supplemental
        self._row_options = {"piece_bytes_max": piece_bytes_max, "migrate_bytes": migrate_bytes}
        self._dictionary = Dictionary()
        self._described = '"tables": {}}'
        self._resetlogs_scn = options.get("first_scn", 1000)
        super().__init__(directory, threads, form=form or Form(), noise=noise, tables=tables, **options)

    # --- tables, threads, the control file

    def add_table(self, table: TableSchema) -> None:
        number = len(self._redo_tables) + 1
        redo = RedoTable(self.form, table, number, supplemental=self._supplemental, **self._row_options)
        self._redo_tables[table.full_name] = redo
        self._tables[redo.segment.object_id] = table_to_json(table)
        self._dictionary.add(
            TableVersion(
                source="",
                owner=table.namespace,
                table=table.table,
                object_id=redo.segment.object_id,
                columns=tuple(redo.columns),
                container=CONTAINER,
                from_scn=self.scn if self.instances else 0,
                key=table.key,
                data_object_ids=(redo.segment.data_object_id,),
                supplemental=_SUPPLEMENTAL[self._supplemental],
            )
        )
        described = {"tables": self._tables, "dictionary": dictionary_file.to_json(self._dictionary)}
        self._described = json.dumps(described)[1:]
        if self.instances:
            self.write_control()

    def write_control(self) -> None:
        """As in the own format, and the dictionary beside it."""
        state = {
            "format": "redo",
            "database": self.database,
            "resetlogs": self.resetlogs,
            "resetlogs_scn": self._resetlogs_scn,
            "current_scn": self.scn,
            "groups": self.groups,
            "container": CONTAINER,
            "threads": {number: instance.info()._asdict() for number, instance in self.instances.items()},
            "open": [entry._asdict() for entry in self._places.values()],
        }
        replace_file(self.layout.control, f"{json.dumps(state)[:-1]}, {self._described}".encode())

    def _instance(self, thread: int) -> RedoInstance:  # type: ignore[override]
        self._new_session.add(thread)
        database = Database(self.database, self.resetlogs, self._resetlogs_scn)
        return RedoInstance(
            self.layout,
            thread,
            database,
            self.groups,
            self.log_bytes,
            form=self.form,
            lwn_bytes=self.lwn_bytes,
            clock_us=lambda: self._time_us,
            heartbeat=self._noise.written,
        )

    def close_thread(self, thread: int) -> None:
        super().close_thread(thread)
        self.instances[thread].close_thread(self.scn)

    def open_thread(self, thread: int) -> None:
        super().open_thread(thread)
        self._new_session.add(thread)

    def reset_logs(self) -> None:
        self._resetlogs_scn = self.advance()
        self._branches.clear()
        self._slots.clear()
        super().reset_logs()

    def _cut_off(self, transaction: Transaction, thread: int) -> None:
        assert isinstance(transaction, RedoTransaction)
        if not transaction.prepared:
            transaction.doomed_by.add(thread)
        branch = transaction.branches.get(thread)
        if branch is not None and (branch.xid, thread) not in self._places:
            # not one record of it got into this log
            transaction.threads.remove(thread)
            self._forget(branch)
        if not transaction.threads:
            self._gone(transaction)
