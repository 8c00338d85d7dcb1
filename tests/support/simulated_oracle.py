"""An Oracle database that is not one: it answers the questions of `sources/oracle` from Python data.

`SimulatedOracle` has redo threads with logs and archives, transactions, and V$LOGMNR_CONTENTS as LogMiner shows it:
only what a session's added logs hold, only inside its SCNs, and only what a thread's log writer has written by now. The
last is what makes a cluster hard: each instance writes when it likes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lowwater.errors import LogGapError, SourceError
from lowwater_extractor.sources.oracle import discovery as d
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.logminer import session as s
from lowwater_extractor.sources.oracle.logminer.contents import Row
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

Rows = list[tuple[Any, ...]]

SOURCE = "conformance"
OPEN_END = (1 << 64) - 1
T0 = dt.datetime(2026, 3, 7, 1, 44, 38)
NO_ROW = "AAAAAAAAAAAAAAAAAA"

ACCOUNTS = TableVersion(
    SOURCE,
    "BANK",
    "ACCOUNTS",
    72726,
    (
        OracleColumn("ID", 1, OracleType.NUMBER, 22, 10, 0, nullable=False),
        OracleColumn("NAME", 2, OracleType.VARCHAR2, 50, charset_form=1, charset="AL32UTF8"),
        OracleColumn("BALANCE", 3, OracleType.NUMBER, 22, 12, 2),
    ),
    key=("ID",),
    partition_ids=(72727,),
)


@dataclass
class SimulatedLog:
    thread: int
    sequence: int
    first: int
    next: int | None = None
    online: bool = True
    archived: bool = False

    @property
    def path(self) -> str:
        return (
            f"/arch/{self.thread}_{self.sequence}.arc" if self.archived else f"/redo/{self.thread}_{self.sequence}.log"
        )


@dataclass
class SimulatedThread:
    number: int
    is_open: bool = True
    is_enabled: bool = True
    enabled: int = 0
    sequence: int = 1
    #: up to here its log writer has written; what has this SCN or a higher one may still come
    written: int = 0
    block: int = 2
    logs: list[SimulatedLog] = field(default_factory=list)


@dataclass
class OpenWork:
    """One transaction that runs."""

    thread: int
    xid: tuple[int, int, int]
    start: int
    changes: list[tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]] = field(default_factory=list)


class SimulatedOracle:
    """Also the `Database` of the tests."""

    def __init__(self, threads: int = 1, scn: int = 1000) -> None:
        self.scn = scn
        self.dbid, self.resetlogs, self.resetlogs_id = 1497016494, 1, 1224959854
        self.threads: dict[int, SimulatedThread] = {}
        self.rows: list[Row] = []
        self.open: dict[tuple[int, int, int], OpenWork] = {}
        #: (thread, txid, commit SCN, changes) in commit order
        self.history: list[tuple[int, str, int, list[Any]]] = []
        self.asked: list[str] = []
        self.gone: set[tuple[int, int]] = set()
        #: threads whose instance is gone, and which nobody has recovered
        self.lost: set[int] = set()
        #: transactions without an instance: prepared, and being rolled back
        self.in_doubt: list[tuple[int, int, int]] = []
        self.dead: list[tuple[int, int, int]] = []
        self.pdb, self.container = "", 0
        self.container_uid, self.pdb_incarnation = 1385559638, 1
        #: further questions → their answers
        self.answers: dict[str, Rows] = {}
        #: what the user may not read or run: parts of statements
        self.denied: set[str] = set()
        self._sequence = 100
        self._slots = 0
        self._added: list[str] = []
        self._range: tuple[int, int] | None = None
        for number in range(1, threads + 1):
            self.add_thread(number)
        self.write_all()

    # --- what happens in it

    def add_thread(self, number: int) -> None:
        self.scn += 1
        log = SimulatedLog(number, 1, self.scn)
        self.threads[number] = SimulatedThread(number, enabled=self.scn, written=self.scn, logs=[log])

    def tick(self) -> int:
        self.scn += 1
        return self.scn

    def write(self, number: int) -> None:
        """The log writer writes all that the thread has: the heartbeat, too."""
        self.threads[number].written = self.tick()

    def write_all(self) -> None:
        for number, thread in self.threads.items():
            if thread.is_open:
                self.write(number)

    def switch(self, number: int, keep_online: int = 2) -> None:
        """A log switch writes all of the log, and archives it."""
        thread = self.threads[number]
        self.write(number)
        thread.logs[-1].next = thread.written
        thread.sequence += 1
        thread.block = 2
        thread.logs.append(SimulatedLog(number, thread.sequence, thread.written))
        for log in thread.logs[:-1]:
            log.archived = True
        for log in thread.logs[:-keep_online]:
            log.online = False

    def close_thread(self, number: int) -> None:
        thread = self.threads[number]
        self.write(number)
        thread.logs[-1].next = thread.written
        thread.logs[-1].archived = True
        thread.is_open = False

    def open_thread(self, number: int) -> None:
        thread = self.threads[number]
        thread.is_open = True
        thread.sequence += 1
        thread.block = 2
        thread.written = self.tick()
        thread.logs.append(SimulatedLog(number, thread.sequence, thread.written))

    def begin(self, thread: int) -> OpenWork:
        self._sequence += 1
        self._slots += 1
        work = OpenWork(thread, (1 + self._slots % 9, self._slots % 34, self._sequence), self.tick())
        self.open[work.xid] = work
        self.put(work, 6)
        return work

    def put(self, work: OpenWork, operation: int, sql: str = "", *, row_id: str = "", **more: Any) -> None:
        """A row of the view; `sql` beyond 4000 characters goes on in further rows."""
        thread = self.threads[more.pop("thread", work.thread)]
        usn, slot, sequence = work.xid
        thread.block += 1
        table = {"owner": "BANK", "table": "ACCOUNTS", "object": 72726} if operation not in (6, 7, 36) else {}
        values: dict[str, Any] = {
            "scn": self.scn, "thread": thread.number, "operation": operation, "usn": usn, "slot": slot,
            "sequence": sequence, "parent_usn": usn, "parent_slot": slot, "parent_sequence": sequence, "rollback": 0,
            "rs_id": f" 0x{thread.sequence:06x}.{thread.block:08x}.0010 ", "ssn": 0, "csf": 0, "status": 0,
            "info": None, "owner": None, "table": None, "object": None, "row_id": row_id or None,
            "time": T0 + dt.timedelta(seconds=self.scn // 10), "sql": sql or None, "container": self.container,
            **table, **more,
        }  # fmt: skip
        pieces = [sql[at : at + 4000] for at in range(0, len(sql), 4000)] or [""]
        for at, piece in enumerate(pieces):
            self.rows.append(Row(**{**values, "sql": piece or None, "csf": int(at < len(pieces) - 1)}))

    def insert(self, work: OpenWork, number: int, name: str | None, balance: str) -> None:
        self.tick()
        values = f"'{number}',{literal(name)},'{balance}'"
        self.put(
            work, 1, f'insert into "BANK"."ACCOUNTS"("ID","NAME","BALANCE") values ({values})', row_id=rowid(number)
        )
        work.changes.append(("c", None, (number, name, balance)))

    def update(self, work: OpenWork, number: int, name: str | None, old: str, new: str) -> None:
        self.tick()
        where = f'"ID" = \'{number}\' and "NAME" {equals(name)} and "BALANCE" = \'{old}\''
        self.put(work, 3, f'update "BANK"."ACCOUNTS" set "BALANCE" = \'{new}\' where {where}', row_id=rowid(number))
        work.changes.append(("u", (number, name, old), (number, name, new)))

    def delete(self, work: OpenWork, number: int, name: str | None, balance: str) -> None:
        self.tick()
        where = f'"ID" = \'{number}\' and "NAME" {equals(name)} and "BALANCE" = \'{balance}\''
        self.put(work, 2, f'delete from "BANK"."ACCOUNTS" where {where}', row_id=rowid(number))
        work.changes.append(("d", (number, name, balance), None))

    def undo(self, work: OpenWork, count: int = 1, *, thread: int | None = None, nameless: bool = False) -> None:
        """The newest changes are taken back, newest first; `nameless`: with no sequence in the transaction's id."""
        for _ in range(count):
            op, before, after = work.changes.pop()
            self.tick()
            row = before or after
            assert row is not None
            more: dict[str, Any] = {"rollback": 1, "row_id": rowid(row[0]), "thread": thread or work.thread}
            if nameless:
                more["sequence"] = 0xFFFF_FFFF
            if op == "c":
                self.put(work, 2, 'delete from "BANK"."ACCOUNTS"', **more)
            elif op == "d":
                values = f"'{row[0]}',{literal(row[1])},'{row[2]}'"
                self.put(work, 1, f'insert into "BANK"."ACCOUNTS"("ID","NAME","BALANCE") values ({values})', **more)
            else:
                assert before is not None
                self.put(work, 3, f'update "BANK"."ACCOUNTS" set "BALANCE" = \'{before[2]}\'', **more)

    def commit(self, work: OpenWork, *, thread: int | None = None) -> None:
        self.tick()
        number = thread or work.thread
        self.put(work, 7, "commit", thread=number)
        del self.open[work.xid]
        if work.changes:
            txid = b"".join(n.to_bytes(w, "little") for n, w in zip(work.xid, (2, 2, 4), strict=True)).hex()
            self.history.append((number, txid, self.scn, list(work.changes)))
        # a commit is on disk before it is answered
        self.write(number)

    def rollback(self, work: OpenWork, *, thread: int | None = None) -> None:
        self.undo(work, len(work.changes), thread=thread)
        self.tick()
        self.put(work, 36, "rollback", thread=thread or work.thread)
        del self.open[work.xid]

    # --- the Database

    def ask(self, sql: str, **binds: Any) -> Rows:
        self.asked.append(sql)
        answers: dict[str, Callable[..., Rows]] = {
            d.SQL_SCN: self._current_scn, d.SQL_DATABASE: self._database, d.SQL_THREADS: self._threads,
            d.SQL_ONLINE: self._online, d.SQL_ARCHIVED: self._archived, d.SQL_ARCHIVED_ONE: self._archived_one,
            d.SQL_ENDED: self._ended, d.SQL_OPEN: self._open, d.SQL_CONTAINER: self._container,
            d.SQL_PDB: self._pdb, d.SQL_PDB_INCARNATION: self._pdb_incarnation,
            d.SQL_INSTANCES: self._instances, d.SQL_IN_DOUBT: self._in_doubt, d.SQL_DEAD: self._dead,
        }  # fmt: skip
        self._check_granted(sql)
        if sql in self.answers:
            return self.answers[sql]
        if sql not in answers and sql.startswith("SELECT 1 FROM"):
            return []
        if sql not in answers:
            raise SourceError(f"SimulatedOracle was not taught to answer {sql!r}")
        return answers[sql](**binds)

    def _check_granted(self, sql: str) -> None:
        if any(f" {name}" in f" {sql} " for name in self.denied):
            raise SourceError("query: ORA-00942: table or view does not exist")

    def _current_scn(self) -> Rows:
        return [(self.tick(),)]

    def _database(self) -> Rows:
        role = ("PRIMARY", "READ WRITE", "Little")
        cdb = "YES" if self.pdb else "NO"
        return [(self.dbid, "FREE", self.resetlogs, self.resetlogs_id, "ARCHIVELOG", cdb, *role)]

    def _threads(self) -> Rows:
        return [
            (t.number, "OPEN" if t.is_open else "CLOSED", "PUBLIC" if t.is_enabled else "DISABLED", t.sequence,
             t.enabled, t.written, f"db{t.number}")
            for t in self.threads.values()
        ]  # fmt: skip

    def _logs(self) -> list[SimulatedLog]:
        return [log for t in self.threads.values() for log in t.logs if (log.thread, log.sequence) not in self.gone]

    def _online(self) -> Rows:
        return [
            (log.thread, log.sequence, log.first, log.next or OPEN_END, "CURRENT" if log.next is None else "INACTIVE",
             f"/redo/{log.thread}_{log.sequence}.log", 512)
            for log in self._logs() if log.online
        ]  # fmt: skip

    def _archived(self, resetlogs: int, low: int, high: int) -> Rows:
        assert resetlogs == self.resetlogs
        return [
            (log.thread, log.sequence, log.first, log.next, log.path, 512)
            for log in self._logs()
            if log.archived and log.next is not None and log.next > low and log.first <= high
        ]

    def _archived_one(self, resetlogs: int, thread: int, sequence: int) -> Rows:
        found = [log for log in self._logs() if log.archived and (log.thread, log.sequence) == (thread, sequence)]
        return [(log.path,) for log in found]

    def _ended(self, resetlogs: int, thread: int, sequence: int) -> Rows:
        return [(log.next,) for log in self.threads[thread].logs if log.sequence == sequence and log.next]

    def _open(self) -> Rows:
        return [(w.thread, *w.xid, w.start, self.container) for w in self.open.values()]

    def _instances(self) -> Rows:
        return [(t.number,) for t in self.threads.values() if t.is_open and t.number not in self.lost]

    def _in_doubt(self) -> Rows:
        return [(".".join(map(str, xid)), self.container) for xid in self.in_doubt]

    def _dead(self) -> Rows:
        return [(*xid, self.container) for xid in self.dead]

    def _pdb(self, name: str) -> Rows:
        return [(self.container_uid, self.container)] if name == self.pdb else []

    def _pdb_incarnation(self, container: int) -> Rows:
        return [(self.pdb_incarnation,)]

    def _container(self, name: str) -> Rows:
        return [(self.container, "READ WRITE")] if name == self.pdb else []

    def run(self, sql: str, **binds: Any) -> None:
        self.asked.append(sql)
        self._check_granted(sql)
        if sql == s.SQL_NEW:
            self._added = [binds["path"]]
        elif sql == s.SQL_ADD:
            assert binds["path"] not in self._added, "ORA-01289: cannot add duplicate log file"
            self._added.append(binds["path"])
        elif sql == s.SQL_START:
            self._range = (binds["low"], binds["high"])
        elif sql == s.SQL_END or "DBMS_LOGMNR.END_LOGMNR;" in sql:
            self._added, self._range = [], None
        else:
            raise SourceError(f"SimulatedOracle was not taught to run {sql!r}")

    def batches(self, sql: str, rows_max: int, **binds: Any) -> Iterator[Rows]:
        if "V$LOGMNR_CONTENTS" not in sql:
            yield from [self.ask(sql, **binds)]
            return
        assert self._range is not None, "ORA-01306: dbms_logmnr.start_logmnr() must be invoked before selecting"
        first, last = self._range
        held = {
            (log.thread, log.sequence) for log in self._logs() if {log.path, self._online_path(log)} & {*self._added}
        }
        found = []
        for row in self.rows:
            log = (row.thread, int(row.rs_id.split(".")[0], 16))
            # what lies in the instance's memory only is not to be seen
            is_written = row.scn < self.threads[row.thread].written or not self.threads[row.thread].is_open
            if first <= row.scn <= last and is_written and log in held and self._is_asked(row, binds):
                found.append(row)
        if not held:
            raise LogGapError("ORA-01291: missing logfile")
        found.sort(key=lambda row: row.scn)
        for at in range(0, len(found), rows_max):
            yield [tuple(row) for row in found[at : at + rows_max]]

    def _is_asked(self, row: Row, binds: dict[str, Any]) -> bool:
        owners = {value for name, value in binds.items() if name.startswith("owner")}
        is_inside = binds["low"] < row.scn <= binds["high"]
        return is_inside and (row.operation in (6, 7, 34, 36) or row.owner in owners or row.owner in (None, "UNKNOWN"))

    def _online_path(self, log: SimulatedLog) -> str:
        return f"/redo/{log.thread}_{log.sequence}.log"

    def frames(self, sql: str, schema: Any, rows_max: int, **binds: Any) -> Iterator[Any]:
        raise SourceError(f"only SimulatedCopies has rows for {sql!r}")

    def close(self) -> None:
        """Nothing is held."""


def literal(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def equals(text: str | None) -> str:
    return "IS NULL" if text is None else f"= {literal(text)}"


def rowid(number: int) -> str:
    return f"AAARwWAAYAAA{number:06d}"[:18].ljust(18, "A")


__all__ = ["ACCOUNTS", "NO_ROW", "SOURCE", "OpenWork", "SimulatedOracle", "literal", "rowid"]
