"""The database as the capture of its redo sees it: asked over a connection, or only by the files that lie there."""

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
from lowwater_extractor.sources.oracle.thread_snapshot import Look, Start, Thread

#: of a view that cannot ask for the current SCN: nothing is held back by it
SCN_MAX = (1 << 64) - 1


class DatabaseView:
    def __init__(self, discovery: Discovery, config: OracleConfig, source: str) -> None:
        self._discovery = discovery
        found = discovery.identity()
        self.identity = Identity(found.dbid, found.resetlogs_id)
        self.files: LogFiles = DatabaseLogs(discovery, config, source, found.resetlogs_scn)

    def incarnation(self) -> str:
        return self._discovery.incarnation()

    def look(self) -> Look:
        return self._discovery.look()

    def start(self) -> Start:
        return self._discovery.start()


class FileView:
    """Nobody can be asked: the threads are those that the config names, all of them open.

    No thread can be found later, so nothing holds the marks back but the logs. Capture begins with the oldest logs
    that are there; a transaction that began before them cannot be told, and stops the source when its rows come.
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
                f"the directories {where} hold logs of {len(databases) or 'no'} databases: {sorted(databases)}",
                source=self._source,
                hint="give `redo.online` and `redo.archive` the directories of one database",
            )
        # its number is a time; its SCN can be below that of the one before, after a restore to before that
        return max(heads, key=lambda head: head.resetlogs).identity

    def incarnation(self) -> str:
        return str(self.identity)

    def look(self) -> Look:
        threads = {}
        for number in self._numbers:
            sequence = self.files.current_sequence(number)
            if sequence is None:
                raise SourceError(
                    f"no log of thread {number} is there", source=self._source, thread=number, hint="check `threads`"
                )
            threads[number] = Thread(number, ThreadState.OPEN, True, sequence, 0, 0, "")
        return Look(SCN_MAX, threads)

    def start(self) -> Start:
        look = self.look()
        # no log begins below 0: the oldest from which on all are there
        oldest = [log_with(self.files, number, look, -1)[1] for number in look.threads]
        return Start(0, max(oldest) - 1, [])
