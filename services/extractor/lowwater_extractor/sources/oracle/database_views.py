"""The two implementations of `RedoView`: over a database connection, and from redo files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lowwater.errors import SourceError
from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.discovery import DatabaseLogs, Discovery
from lowwater_extractor.sources.oracle.position import log_with
from lowwater_extractor.sources.oracle.redo.file_header import Identity, LogHeader
from lowwater_extractor.sources.oracle.redo.files import LogDirectories, LogFiles, read_header
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import Start, Thread, ThreadSnapshot

#: the current SCN of a view that cannot query it: it holds back no mark
SCN_MAX = Scn((1 << 64) - 1)


class DatabaseView:
    def __init__(self, discovery: Discovery, config: OracleConfig, source: str) -> None:
        self._discovery = discovery
        found = discovery.identity()
        self.identity = Identity(found.dbid, found.resetlogs_id)
        self.files: LogFiles = DatabaseLogs(discovery, config, source, found.resetlogs_scn)

    def incarnation(self) -> str:
        return self._discovery.incarnation()

    def look(self) -> ThreadSnapshot:
        return self._discovery.look()

    def start(self) -> Start:
        return self._discovery.start()


class LogFileView:
    """The redo files without a database: the threads are those in the config, and all count as open.

    Threads are not discovered, so only the logs hold the marks back. Capture begins with the oldest available logs. A
    transaction that began before them is unknown: the source stops at its first row.
    """

    def __init__(self, source: str, threads: Sequence[int], online: Sequence[Path], archive: Sequence[Path]) -> None:
        self._source = source
        self._numbers = tuple(threads)
        self.identity = self._newest_identity([*online, *archive])
        self.files: LogFiles = LogDirectories(source, self.identity, online, archive, threads)

    def _newest_identity(self, directories: Sequence[Path]) -> Identity:
        paths = [path for directory in directories if directory.is_dir() for path in sorted(directory.iterdir())]
        heads = [head for path in paths if path.is_file() and isinstance(head := read_header(path), LogHeader)]
        databases = {head.database for head in heads}
        if len(databases) != 1:
            where = ", ".join(map(str, directories))
            raise SourceError(
                f"the directories {where} contain logs of {len(databases) or 'no'} databases: {sorted(databases)}",
                source=self._source,
                hint="give `redo.online` and `redo.archive` the directories of one database",
            )
        # RESETLOGS_ID is a time. The resetlogs SCN can be lower than the previous one, after a point-in-time restore
        return max(heads, key=lambda head: head.resetlogs).identity

    def incarnation(self) -> str:
        return str(self.identity)

    def look(self) -> ThreadSnapshot:
        threads = {}
        for number in self._numbers:
            sequence = self.files.current_sequence(number)
            if sequence is None:
                raise SourceError(
                    f"thread {number} has no logs", source=self._source, thread=number, hint="check `threads`"
                )
            threads[number] = Thread(number, ThreadState.OPEN, True, sequence, Scn(0), Scn(0), "")
        return ThreadSnapshot(SCN_MAX, threads)

    def start(self) -> Start:
        look = self.look()
        # no log begins below 0, so this finds the oldest log after which none is missing
        oldest = [log_with(self.files, number, look, Scn(-1))[1] for number in look.threads]
        return Start(Scn(0), Scn(max(oldest) - 1), [])
