"""One LogMiner session over all threads: which logs, which window, and the rows.

**The end of a window.** LogMiner returns the redo in the logs, but does not show whether more redo with the same SCNs
is still to be written. Redo is in the memory of each instance until its log writer has written it, independently of
the other instances; so a transaction of thread 2 with SCN 100 may reach the log after thread 1's SCN 200 has been
mined. A window's end must therefore be an SCN up to which every thread's redo is certainly in its logs:

- an open thread: its log writer has written everything below V$THREAD.LAST_REDO_CHANGE# (L). The SCN of its next write
  is a lower bound of all records in it, and is L or above: records with SCN L may still be written, so L − 1 is
  certain. So is the first SCN of its current log − 1; the higher of the two is used.
- a closed thread: all its redo is in its logs. Later records are above the SCN that was current before the snapshot
  that found it closed, because opening allocates a new SCN.
- a thread that is not in the snapshot: the same; it was opened or added later.

So the end is the minimum of the snapshot's SCN and of every open thread's certain SCN. An idle instance advances by its
log writer's heartbeat; one that does not advance holds back the source, and is reported as `holder`. There is no
timeout.

When a window has been mined up to E, no record at or below E can follow in any thread: E is every thread's mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lowwater.errors import LogGapError
from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.connect import Database
from lowwater_extractor.sources.oracle.discovery import Discovery, Log
from lowwater_extractor.sources.oracle.logminer.contents import query
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import Thread, ThreadSnapshot

#: Without COMMITTED_DATA_ONLY: with it a session keeps every open transaction in the server's memory, and starts from
#: the beginning with each window. CONTINUOUS_MINE was removed in 19c: logs are added here.
_OPTIONS = "DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG + DBMS_LOGMNR.NO_ROWID_IN_STMT + DBMS_LOGMNR.NO_SQL_DELIMITER"
SQL_ADD = "BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :path, OPTIONS => DBMS_LOGMNR.ADDFILE); END;"
SQL_NEW = "BEGIN DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :path, OPTIONS => DBMS_LOGMNR.NEW); END;"
SQL_START = f"BEGIN DBMS_LOGMNR.START_LOGMNR(STARTSCN => :low, ENDSCN => :high, OPTIONS => {_OPTIONS}); END;"
SQL_END = "BEGIN DBMS_LOGMNR.END_LOGMNR; END;"


#: thread, sequence → the SCN at which that log ended; None: unknown
EndedAt = Callable[[int, int], int | None]


class Reach(NamedTuple):
    """The SCN up to which all threads can be mined now, and the thread that limits it; None: no thread does."""

    scn: Scn
    holder: int | None


def reach(look: ThreadSnapshot, current: Mapping[int, int]) -> Reach:
    """`current`: the first SCN of each thread's current log."""
    found = Reach(look.scn, None)
    for number, thread in sorted(look.threads.items()):
        if thread.state is ThreadState.OPEN:
            certain = max(thread.last_scn, current.get(number, 0)) - 1
            if certain < found.scn:
                found = Reach(Scn(certain), number)
    return found


def choose_logs(
    source: str, threads: Mapping[int, Thread], logs: Iterable[Log], low: Scn, high: Scn, ended_at: EndedAt
) -> list[Log]:
    """The logs with all redo of these threads above `low` up to `high`, one file of each. Raises if one is missing."""
    by_thread: dict[int, dict[int, Log]] = {number: {} for number in threads}
    for log in logs:
        known = by_thread.get(log.thread)
        # the archived file is preferred to the online one: it is not overwritten while it is read
        if known is not None and (log.sequence not in known or known[log.sequence].is_online):
            known[log.sequence] = log
    chosen: list[Log] = []
    for number, thread in sorted(threads.items()):
        first = _first(source, thread, by_thread[number], low, high, ended_at)
        if first is not None:
            chosen += _from(source, thread, by_thread[number], first, low, high)
    return chosen


def _first(source: str, thread: Thread, logs: dict[int, Log], low: Scn, high: Scn, ended_at: EndedAt) -> int | None:
    """The sequence of the log that contains `low` + 1, or of the first one after it; None: no redo up to `high`."""
    covering = [sequence for sequence, log in logs.items() if log.first_scn <= low + 1]
    if covering:
        return max(covering)
    missing = min(logs, default=thread.sequence + 1) - 1
    if missing > 0 and thread.enabled_scn <= low + 1:
        # the thread existed before: either its previous log ended at or below `low`, or a log is missing
        ended = ended_at(thread.number, missing)
        if ended is None or ended > low:
            raise _gap(source, thread.number, missing, Scn(low + 1))
    return min((sequence for sequence, log in logs.items() if log.first_scn <= high), default=None)


def _from(source: str, thread: Thread, logs: dict[int, Log], sequence: int, low: Scn, high: Scn) -> Iterator[Log]:
    while True:
        log = logs.get(sequence)
        if log is None:
            raise _gap(source, thread.number, sequence, Scn(low + 1))
        if log.next_scn is None or log.next_scn > low + 1:
            yield log
        # there is no log after the one that is being written, or was written last
        if log.next_scn is None or log.next_scn > high or sequence >= thread.sequence:
            return
        sequence += 1


def oldest_scn(threads: Mapping[int, Thread], logs: Iterable[Log]) -> Scn:
    """The SCN from which on no log of any thread is missing."""
    firsts: dict[tuple[int, int], int] = {(log.thread, log.sequence): log.first_scn for log in logs}
    oldest = 0
    for number, thread in threads.items():
        sequence = thread.sequence
        while (number, sequence - 1) in firsts:
            sequence -= 1
        first = firsts.get((number, sequence))
        # a thread has no redo before it was enabled
        if first is not None and first > thread.enabled_scn:
            oldest = max(oldest, first)
    return Scn(oldest)


def _gap(source: str, thread: int, sequence: int, scn: Scn) -> LogGapError:
    return LogGapError(
        f"log {sequence} of thread {thread} is neither online nor archived",
        source=source,
        thread=thread,
        position=f"sequence {sequence}, SCN {scn}",
        hint=f"restore it: RMAN> RESTORE ARCHIVELOG SEQUENCE {sequence} THREAD {thread};",
    )


class MiningSession:
    """A LogMiner session on one connection; its logs stay added until other logs are needed."""

    def __init__(
        self,
        source: str,
        database: Database,
        discovery: Discovery,
        *,
        owners: list[str],
        pdb: str,
        resetlogs_scn: Scn,
        batch_rows: int,
    ) -> None:
        self._source = source
        self._database = database
        self._discovery = discovery
        self._resetlogs = resetlogs_scn
        self._batch_rows = batch_rows
        self._sql, self._binds = query(owners, container=bool(pdb))
        if pdb:
            self._binds["container"] = pdb
        self._added: list[str] = []

    def reach(self, look: ThreadSnapshot) -> Reach:
        """How far can be mined by this snapshot. Online logs are queried after it: they can only raise the result."""
        current = {log.thread: log.first_scn for log in self._discovery.online_logs() if log.next_scn is None}
        return reach(look, current)

    def mine(self, look: ThreadSnapshot, low: Scn, high: Scn) -> Iterator[list[tuple[Any, ...]]]:
        """The view's rows above `low` up to `high`, in batches. The session is started before this returns."""
        # online first, archived last: a log that is switched meanwhile is in one of the two results
        logs = self._discovery.online_logs()
        logs += self._discovery.archived_logs(self._resetlogs, low, high)
        chosen = choose_logs(self._source, look.threads, logs, low, high, self._ended_at)
        self._add([log.path for log in chosen])
        if not chosen:
            return iter(())
        self._database.run(SQL_START, low=low + 1, high=high)
        return self._database.batches(self._sql, self._batch_rows, low=low, high=high, **self._binds)

    def _ended_at(self, thread: int, sequence: int) -> int | None:
        return self._discovery.ended_at(self._resetlogs, thread, sequence)

    def _add(self, paths: list[str]) -> None:
        if paths == self._added:
            return
        self._added = []
        for at, path in enumerate(paths):
            self._database.run(SQL_ADD if at else SQL_NEW, path=path)
        self._added = paths

    def close(self) -> None:
        if self._added:
            self._added = []
            self._database.run(SQL_END)
