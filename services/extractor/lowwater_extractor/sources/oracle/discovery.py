"""Queries the database for its identity, threads, logs and open transactions.

**The order of the queries matters.** The views are not consistent with one another: each shows the state at the time
of its own query. Therefore:

- A `ThreadSnapshot` queries the current SCN first and the threads after it. A thread that the snapshot does not show as
  open was opened after that SCN, and opening allocates a new SCN: all its later records are above `scn`. That is why a
  closed thread's mark is this SCN, and why no mark goes above it.
- Online logs are queried first, archived logs last: a log that is switched and overwritten in between is in the first
  result, or in the second, or in both; never in neither.
- At the start of capture the threads are queried first, then the open transactions, then the SCN above which commits
  are captured (`since`). A transaction that commits above `since` either was open when open transactions were queried,
  and then its begin is known; or it began later, and then its first record is after the last record that its thread
  had written at the snapshot.

**Open transactions** are in three views. GV$TRANSACTION has the transactions in the memory of running instances,
whatever their status, including prepared branches of distributed transactions. A transaction that was prepared when its
instance died is in CDB_2PC_PENDING, without the SCN of its begin: it may still commit, so it counts as one whose begin
is gone. All other transactions of a dead instance (GV$FAST_START_TRANSACTIONS) can only be rolled back: leaving them
out loses nothing, but their xids are needed to recognize the records of the rollback. The transactions of an instance
that died and is not recovered yet may be in none of the views: while a thread is open without an instance, capture does
not begin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from lowwater.errors import LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import Database
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import OpenTransaction, Start, Thread, ThreadSnapshot, xid_of

#: NEXT_CHANGE# of a log that is still written: 2**48 − 1 before 12.2, 2**64 − 1 since
OPEN_ENDS = frozenset({(1 << 48) - 1, (1 << 64) - 1})

SQL_VERSION = "SELECT VERSION FROM PRODUCT_COMPONENT_VERSION WHERE PRODUCT LIKE 'Oracle%' AND ROWNUM = 1"
SQL_SCN = "SELECT CURRENT_SCN FROM V$DATABASE"
SQL_DATABASE = """
SELECT DBID, NAME, RESETLOGS_CHANGE#, RESETLOGS_ID, LOG_MODE, CDB, DATABASE_ROLE, OPEN_MODE, ENDIAN_FORMAT
FROM (SELECT d.DBID, d.NAME, d.RESETLOGS_CHANGE#, i.RESETLOGS_ID, d.LOG_MODE, d.CDB, d.DATABASE_ROLE, d.OPEN_MODE,
             (SELECT p.ENDIAN_FORMAT FROM V$TRANSPORTABLE_PLATFORM p WHERE p.PLATFORM_ID = d.PLATFORM_ID) ENDIAN_FORMAT
      FROM V$DATABASE d
      JOIN V$DATABASE_INCARNATION i ON i.STATUS = 'CURRENT')"""
SQL_THREADS = """
SELECT THREAD#, STATUS, ENABLED, SEQUENCE#, NVL(ENABLE_CHANGE#, 0), NVL(LAST_REDO_CHANGE#, 0), INSTANCE
FROM V$THREAD ORDER BY THREAD#"""
SQL_INSTANCES = "SELECT THREAD# FROM GV$INSTANCE"
SQL_ONLINE = """
SELECT l.THREAD#, l.SEQUENCE#, l.FIRST_CHANGE#, l.NEXT_CHANGE#, l.STATUS, f.MEMBER, l.BLOCKSIZE
FROM V$LOG l JOIN V$LOGFILE f ON f.GROUP# = l.GROUP#
WHERE f.TYPE = 'ONLINE' AND NVL(f.STATUS, 'IN USE') = 'IN USE' AND l.STATUS <> 'UNUSED'
ORDER BY l.THREAD#, l.SEQUENCE#, f.MEMBER"""
SQL_ARCHIVED = """
SELECT THREAD#, SEQUENCE#, FIRST_CHANGE#, NEXT_CHANGE#, NAME, BLOCK_SIZE
FROM V$ARCHIVED_LOG
WHERE RESETLOGS_CHANGE# = :resetlogs AND ARCHIVED = 'YES' AND DELETED = 'NO' AND STATUS = 'A'
  AND STANDBY_DEST = 'NO' AND NAME IS NOT NULL AND NEXT_CHANGE# > :low AND FIRST_CHANGE# <= :high
ORDER BY THREAD#, SEQUENCE#, DEST_ID"""
SQL_ARCHIVED_ONE = """
SELECT NAME FROM V$ARCHIVED_LOG
WHERE RESETLOGS_CHANGE# = :resetlogs AND THREAD# = :thread AND SEQUENCE# = :sequence AND ARCHIVED = 'YES'
  AND DELETED = 'NO' AND STATUS = 'A' AND STANDBY_DEST = 'NO' AND NAME IS NOT NULL
ORDER BY DEST_ID"""
SQL_ENDED = """
SELECT NEXT_CHANGE# FROM V$LOG_HISTORY
WHERE RESETLOGS_CHANGE# = :resetlogs AND THREAD# = :thread AND SEQUENCE# = :sequence"""
SQL_OPEN = """
SELECT i.THREAD#, t.XIDUSN, t.XIDSLOT, t.XIDSQN, NVL(t.START_SCN, 0), t.CON_ID
FROM GV$TRANSACTION t JOIN GV$INSTANCE i ON i.INST_ID = t.INST_ID ORDER BY t.START_SCN"""
#: distributed transactions that are in doubt: segment.slot.sequence
SQL_IN_DOUBT = "SELECT LOCAL_TRAN_ID, CON_ID FROM CDB_2PC_PENDING WHERE STATE IN ('collecting', 'prepared')"
#: transactions that are being rolled back for a dead instance or session
SQL_DEAD = "SELECT DISTINCT USN, SLT, SEQ, CON_ID FROM GV$FAST_START_TRANSACTIONS WHERE STATE <> 'RECOVERED'"
#: a PDB that is plugged in or created again has another CON_UID; one that was flashed back has another incarnation
SQL_PDB = "SELECT CON_UID, CON_ID FROM V$PDBS WHERE NAME = :name"
SQL_PDB_INCARNATION = """
SELECT NVL(MAX(INCARNATION_SCN), 0) FROM V$PDB_INCARNATION WHERE STATUS = 'CURRENT' AND CON_ID = :container"""
SQL_CONTAINER = "SELECT CON_ID, OPEN_MODE FROM V$PDBS WHERE NAME = :name"


class Identity(NamedTuple):
    dbid: int
    name: str
    resetlogs_scn: Scn
    resetlogs_id: int
    is_archiving: bool
    is_container: bool
    role: str
    open_mode: str
    is_little_endian: bool

    @property
    def incarnation(self) -> str:
        """DBID and RESETLOGS_ID, as in the logs' headers: it changes with each RESETLOGS."""
        return f"{self.dbid}.{self.resetlogs_id}"


class Log(NamedTuple):
    thread: int
    sequence: int
    first_scn: Scn
    #: None: the log is still being written
    next_scn: Scn | None
    #: the path on the server
    path: str
    is_online: bool
    block_size: int


class Discovery:
    """The queries, over one connection to the root container."""

    def __init__(self, database: Database, config: OracleConfig, source: str) -> None:
        self._database = database
        self._config = config
        self._source = source

    def current_scn(self) -> Scn:
        ((scn,),) = self._database.ask(SQL_SCN)
        return Scn(int(scn))

    def identity(self) -> Identity:
        ((dbid, name, resetlogs, resetlogs_id, mode, cdb, role, opened, endian),) = self._database.ask(SQL_DATABASE)
        return Identity(
            int(dbid),
            name,
            Scn(int(resetlogs)),
            int(resetlogs_id),
            mode == "ARCHIVELOG",
            cdb == "YES",
            role,
            opened,
            endian == "Little",
        )

    def incarnation(self) -> str:
        """The incarnation of the database and, in a container database, of the PDB.

        A PDB's rows can be replaced (flashback, plug-in) while the database's log continues.
        """
        found = self.identity().incarnation
        if not self._config.pdb:
            return found
        asked = self._database.ask(SQL_PDB, name=self._config.pdb)
        if not asked:
            raise self._no_pdb()
        ((number, container),) = asked
        return f"{found}.{int(number)}.{self._pdb_incarnation(int(container))}"

    def _pdb_incarnation(self, container: int) -> int:
        """The SCN of the PDB's incarnation; 0 in 12.1, which cannot flash back a single PDB."""
        try:
            ((scn,),) = self._database.ask(SQL_PDB_INCARNATION, container=container)
        except SourceLostError:
            raise
        except SourceError as error:
            if "ORA-00942" not in error.what:
                raise
            ((version,),) = self._database.ask(SQL_VERSION)
            if tuple(map(int, str(version).split(".")[:2])) < (12, 2):
                return 0
            error.hint = f"GRANT SELECT ON SYS.V_$PDB_INCARNATION TO {self._config.user} CONTAINER=ALL;"
            raise
        return int(scn)

    def _no_pdb(self) -> SourceError:
        return SourceError(
            f"there is no PDB {self._config.pdb}",
            source=self._source,
            hint="connect to the root, and give the PDB's name as in V$PDBS",
        )

    def container(self) -> int:
        """The CON_ID of the captured container: 0 if the database is not a container database."""
        if not self._config.pdb:
            return 0
        found = self._database.ask(SQL_CONTAINER, name=self._config.pdb)
        if not found:
            raise self._no_pdb()
        return int(found[0][0])

    def look(self) -> ThreadSnapshot:
        """Query the SCN first and the threads after it: see the module's docstring."""
        scn = self.current_scn()
        threads = {}
        for number, status, enabled, sequence, enabled_scn, last, instance in self._database.ask(SQL_THREADS):
            state = ThreadState.OPEN if status == "OPEN" else ThreadState.CLOSED
            is_enabled = enabled != "DISABLED"
            threads[int(number)] = Thread(
                int(number), state, is_enabled, int(sequence), Scn(int(enabled_scn)), Scn(int(last)), instance or ""
            )
        self._check_all_there(threads)
        return ThreadSnapshot(scn, threads)

    def _check_all_there(self, threads: dict[int, Thread]) -> None:
        named = set(self._config.threads)
        if named and (left := sorted(n for n, thread in threads.items() if thread.is_enabled and n not in named)):
            raise StartRefusedError(
                f"the database has redo threads {', '.join(map(str, sorted(threads)))}, and `threads` does not name "
                f"{', '.join(map(str, left))}: their changes would not be captured",
                source=self._source,
                thread=left[0],
                hint="leave `threads` out, or name all of them. To exclude a thread that is down from the watermark, "
                "use `lowwater thread exclude`, which is recorded",
            )
        missing = named - threads.keys()
        if missing or not threads:
            names = ", ".join(map(str, sorted(missing))) or "none at all"
            raise SourceError(
                f"the database does not have redo threads that the config names: {names}",
                source=self._source,
                hint="leave `threads` out, and they are discovered",
            )

    def online_logs(self) -> list[Log]:
        """All members of all groups."""
        return [
            Log(int(thread), int(sequence), Scn(int(first)), _next(following), member, True, int(block))
            for thread, sequence, first, following, _, member, block in self._database.ask(SQL_ONLINE)
        ]

    def archived_logs(self, resetlogs_scn: Scn, low: Scn, high: Scn) -> list[Log]:
        """The archived logs that contain redo above `low` and at or below `high`."""
        asked = self._database.ask(SQL_ARCHIVED, resetlogs=resetlogs_scn, low=low, high=high)
        return [
            Log(int(thread), int(sequence), Scn(int(first)), Scn(int(following)), name, False, int(block))
            for thread, sequence, first, following, name, block in asked
        ]

    def archived_names(self, resetlogs_scn: Scn, thread: int, sequence: int) -> list[str]:
        """The names of one log's files, ordered by destination."""
        asked = self._database.ask(SQL_ARCHIVED_ONE, resetlogs=resetlogs_scn, thread=thread, sequence=sequence)
        return [name for (name,) in asked]

    def ended_at(self, resetlogs_scn: Scn, thread: int, sequence: int) -> Scn | None:
        """The SCN at which a log ended, also if its file is gone; None: it is not in V$LOG_HISTORY."""
        found = self._database.ask(SQL_ENDED, resetlogs=resetlogs_scn, thread=thread, sequence=sequence)
        return Scn(int(found[0][0])) if found else None

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that may still commit."""
        rows = [tuple(int(value or 0) for value in row) for row in self._database.ask(SQL_OPEN)]
        found = [OpenTransaction(row[0], row[1], row[2], row[3], Scn(row[4]), row[5]) for row in rows]
        known = {each.xid for each in found}
        for name, container in self._database.ask(SQL_IN_DOUBT):
            usn, slot, sequence = map(int, str(name).split("."))
            each = OpenTransaction(0, usn, slot, sequence, Scn(0), int(container or 0))
            if each.xid not in known:
                found.append(each)
        return [each for each in found if self._is_ours(each.container)]

    def dead_transactions(self) -> list[int]:
        """The xids of the transactions that can only be rolled back."""
        asked = self._database.ask(SQL_DEAD)
        found = [tuple(int(value or 0) for value in row) for row in asked]
        return [xid_of(container, usn, slot, seq) for usn, slot, seq, container in found if self._is_ours(container)]

    def _is_ours(self, container: int) -> bool:
        return not self._config.pdb or container in (0, self.container())

    def _check_recovered(self, look: ThreadSnapshot) -> None:
        running = {int(thread) for (thread,) in self._database.ask(SQL_INSTANCES)}
        for number, thread in look.threads.items():
            if thread.state is ThreadState.OPEN and number not in running:
                raise SourceLostError(
                    f"thread {number} is open, but its instance is not running: its open transactions are unknown",
                    source=self._source,
                    thread=number,
                    hint="retried until another instance has recovered it, or it runs again. If all instances run, "
                    "set PARALLEL_MAX_SERVERS above 0, so that GV$ views show all of them",
                )

    def start(self) -> Start:
        """Where capture has to begin so that every transaction that commits above `since` is complete."""
        look = self.look()
        self._check_recovered(look)
        opened, dead = self.open_transactions(), self.dead_transactions()
        since = self.current_scn()
        written = [thread.last_scn for thread in look.threads.values() if thread.state is ThreadState.OPEN]
        known = [each.start_scn for each in opened if each.start_scn]
        # a thread without LAST_REDO_CHANGE# (0) gives no bound; its transactions are above the snapshot's SCN
        first = min([look.scn, *(scn for scn in written if scn), *known])
        dead = [xid for xid in dead if xid not in {each.xid for each in opened}]
        return Start(first, since, opened, dead)


def _next(scn: Any) -> Scn | None:
    return None if scn is None or int(scn) in OPEN_ENDS else Scn(int(scn))


class DatabaseLogs:
    """Finds redo files by the database's views, and maps their paths to local paths. For the redo reader."""

    def __init__(self, discovery: Discovery, config: OracleConfig, source: str, resetlogs_scn: Scn) -> None:
        self._discovery = discovery
        self._config = config
        self._source = source
        self._resetlogs = resetlogs_scn

    def find_online(self, thread: int, sequence: int) -> Path | None:
        """The first member that exists locally; None: there is none, and the log is read once it is archived."""
        members = [log for log in self._discovery.online_logs() if (log.thread, log.sequence) == (thread, sequence)]
        paths = [self._config.redo.local(log.path) for log in members]
        return next((path for path in paths if path.exists()), None)

    def find_archived(self, thread: int, sequence: int) -> Path | None:
        names = self._discovery.archived_names(self._resetlogs, thread, sequence)
        paths = [self._config.redo.local(name) for name in names]
        found = next((path for path in paths if path.exists()), None)
        if found is None and paths:
            raise LogGapError(
                f"log {sequence} of thread {thread} is archived as {paths[0]}, which cannot be read here",
                source=self._source,
                thread=thread,
                position=str(sequence),
                hint="mount the server's directory, and give its local path in `redo.paths`",
            )
        return found

    def current_sequence(self, thread: int) -> int | None:
        found = self._discovery.look().threads.get(thread)
        return found.sequence if found is not None else None
