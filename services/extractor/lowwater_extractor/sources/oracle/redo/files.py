"""Finds log files for the reader. Files in directories are identified by their headers, not by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from lowwater.errors import IncarnationError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.oracle.redo.file_header import (
    HEADER_BYTES,
    Identity,
    LogHeader,
    NoHeader,
    unpack_header,
)


class LogFiles(Protocol):
    """Finds the files of logs. Every call returns the current state."""

    def find_online(self, thread: int, sequence: int) -> Path | None: ...

    def find_archived(self, thread: int, sequence: int) -> Path | None: ...

    def current_sequence(self, thread: int) -> int | None:
        """The sequence of the newest log of this thread; None if it is unknown."""
        ...


class _Stamp(NamedTuple):
    """Identifies the content of a file that is not written in place."""

    inode: int
    size: int
    modified_ns: int


class LogDirectories:
    """Logs in directories. Files of other databases and of older incarnations are ignored.

    Online logs are written in place, so their headers are read by each call; an archived log's header is read once.
    """

    def __init__(
        self,
        source: str,
        identity: Identity,
        online: Sequence[Path],
        archived: Sequence[Path],
        threads: Sequence[int] = (),
    ) -> None:
        """`threads`: all threads that are read; a log of another thread is refused. Empty: threads are not checked."""
        self._source = source
        self._threads = frozenset(threads)
        self._identity = identity
        self._online = tuple(online)
        self._archived = tuple(archived)
        self._known: dict[Path, tuple[_Stamp, LogHeader | None]] = {}
        #: (thread, sequence) → archived log, as of the last scan of the directories
        self._found: dict[tuple[int, int], Path] = {}

    def find_online(self, thread: int, sequence: int) -> Path | None:
        for path, head in self._look_online(thread):
            if head.sequence == sequence:
                return path
        return None

    def find_archived(self, thread: int, sequence: int) -> Path | None:
        path = self._found.get((thread, sequence))
        if path is None or not path.exists():
            self._look_archived()
            path = self._found.get((thread, sequence))
        return path

    def current_sequence(self, thread: int) -> int | None:
        newest = max((head.sequence for _, head in self._look_online(thread)), default=None)
        if newest is not None:
            return newest
        self._look_archived()
        there = sorted(sequence for number, sequence in self._found if number == thread)
        # archivers run concurrently: a log may be archived before its predecessor, which is not a gap
        if len(there) > 1 and there[-1] - there[-2] > 1:
            return there[-1] - 1
        return there[-1] if there else None

    # --- scans of the directories

    def _look_online(self, thread: int) -> list[tuple[Path, LogHeader]]:
        found, others = [], set()
        for path in _files(self._source, self._online):
            head = read_header(path)
            if isinstance(head, LogHeader) and head.identity == self._identity:
                self._check_thread(path, head)
            if not isinstance(head, LogHeader) or head.thread != thread or head.database != self._identity.database:
                continue
            if head.identity == self._identity:
                found.append((path, head))
            else:
                others.add(head.resetlogs)
        if others and not found:
            raise self._reset(thread, max(others))
        return found

    def _reset(self, thread: int, resetlogs: int) -> IncarnationError:
        return IncarnationError(
            f"the database was opened with resetlogs ({self._identity.resetlogs} → {resetlogs})",
            source=self._source,
            thread=thread,
            hint="logs of two incarnations are never mixed: reset the source",
        )

    def _look_archived(self) -> None:
        known = self._known
        self._known, self._found = {}, {}
        for path in _files(self._source, self._archived):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            stamp = _Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
            entry = known.get(path)
            if entry is None or entry[0] != stamp:
                head = read_header(path)
                is_ours = isinstance(head, LogHeader) and head.database == self._identity.database
                entry = (stamp, head if isinstance(head, LogHeader) and is_ours else None)
            self._known[path] = entry
            found = entry[1]
            if found is None:
                continue
            if found.identity == self._identity:
                self._check_thread(path, found)
                self._choose(path, found, stamp)
            elif found.resetlogs > self._identity.resetlogs:
                # logs of older incarnations are ignored; after a newer one exists, this one gets no more logs
                raise self._reset(found.thread, found.resetlogs)

    def _check_thread(self, path: Path, head: LogHeader) -> None:
        if self._threads and head.thread not in self._threads:
            raise StartRefusedError(
                f"{path} is a log of redo thread {head.thread}, and `threads` names "
                f"{', '.join(map(str, sorted(self._threads)))}: its changes would not be captured",
                source=self._source,
                thread=head.thread,
                hint="name all threads of the database in `threads`",
            )

    def _choose(self, path: Path, head: LogHeader, stamp: _Stamp) -> None:
        """Of several copies of a log, choose a complete one."""
        key = (head.thread, head.sequence)
        if key not in self._found or (head.closed and stamp.size >= head.end):
            self._found[key] = path


def read_header(path: Path) -> LogHeader | NoHeader | None:
    """Read a file's header. None: the file does not exist."""
    try:
        with path.open("rb", buffering=0) as file:
            return unpack_header(file.read(HEADER_BYTES) or b"")
    except FileNotFoundError:
        return None


def _files(source: str, directories: Sequence[Path]) -> Iterator[Path]:
    for directory in directories:
        try:
            names = sorted(entry.name for entry in os.scandir(directory) if entry.is_file())
        except OSError as error:
            raise SourceLostError(
                f"the directory {directory} cannot be read: {error.strerror}",
                source=source,
                hint="mount it, or correct the source's directories",
            ) from error
        for name in names:
            yield directory / name
