"""One thread's log, read without ever waiting: the next LWN, the end of a log, or nothing for now."""

from __future__ import annotations

import os
from typing import NamedTuple

from lowwater.errors import IncarnationError, LogCorruptError, LogGapError
from lowwater_extractor.sources.simulated_rac.log import (
    BLOCK,
    LWN_HEAD_BYTES,
    Control,
    FileHeader,
    Layout,
    Lwn,
    LwnDamage,
    Place,
    Where,
    read_control,
    unpack_header,
    unpack_lwn,
)

#: at the end of the log there is mostly nothing: look at little there
_SLICE_MIN = 1 << 14
#: a header that is being rewritten does not check; it is there again at once
_HEADER_TRIES = 50


class LogEnd(NamedTuple):
    """The log is read to its end; the next one begins at `next_scn`."""

    sequence: int
    next_scn: int


class ThreadReader:
    def __init__(
        self, source: str, layout: Layout, thread: int, control: Control, start: Place, slice_max: int
    ) -> None:
        self._source = source
        self._layout = layout
        self._thread = thread
        self._database = control.database
        self._resetlogs = control.resetlogs
        self._groups = control.groups
        self.sequence = start.sequence
        #: of the next LWN
        self.offset = start.offset
        self._slice_max = slice_max
        self._slice = slice_max
        self._fd = -1
        self._archived = False
        #: end of the log once it is closed, else 0
        self._end = 0
        self._next_scn = 0
        self._buffer = b""
        self._at = 0

    @property
    def place(self) -> Place:
        return Place(self.sequence, self.offset)

    def next(self) -> Lwn | LogEnd | None:
        """What comes next in this thread; None if it is not there yet."""
        found = self._parse()
        while isinstance(found, LwnDamage):
            if not self._fill(found.wanted):
                return None
            if self._end and self.offset == self._end:
                return self._next_log()
            found = self._parse()
            if isinstance(found, LwnDamage) and found.wanted <= len(self._buffer):
                self._not_whole(found)
                return None
        size = LWN_HEAD_BYTES + len(found.entries) + len(found.data)
        self._at += size
        self.offset += size
        return found

    def _not_whole(self, damage: LwnDamage) -> None:
        if self._end:
            raise LogCorruptError(f"closed log: {damage.why}", **self._where())
        # half written, or an earlier round's rest: it is read again
        self._buffer, self._at, self._slice = b"", 0, _SLICE_MIN

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- the bytes

    def _parse(self) -> Lwn | LwnDamage:
        return unpack_lwn(self._buffer, self._at, self.sequence, self.offset)

    def _fill(self, wanted: int) -> bool:
        """Read a slice from `offset`. False: the log is not there yet, or holds less than wanted."""
        if self._fd < 0 and not self._open():
            return False
        # a torn header may want any length: there is never more to be had than the file holds
        there = os.fstat(self._fd).st_size - self.offset
        size = max(wanted, self._slice)
        data = os.pread(self._fd, min(size, max(0, there)), self.offset)
        if not self._archived:
            # The header is looked at behind the data: if it is still this log's, the data is too,
            # because a group that is reused gets its new header first.
            head = self._head_of(self._fd)
            if head is None or (head.sequence, head.resetlogs) != (self.sequence, self._resetlogs):
                self.close()
                return self._fill(wanted)
            if head.closed and not self._end:
                # the data was read before the log was closed, so it may lack the last LWNs
                self._note(head)
                return self._fill(wanted)
        if self._end:
            data = data[: max(0, self._end - self.offset)]
        self._slice = min(self._slice_max, size * 2) if len(data) == size else _SLICE_MIN
        self._buffer, self._at = data, 0
        if len(data) >= wanted or (self._end and self.offset == self._end):
            return True
        if self._end:
            raise LogCorruptError("closed log: it ends inside an LWN", **self._where())
        self._buffer = b""
        return False

    def _next_log(self) -> LogEnd:
        end = LogEnd(self.sequence, self._next_scn)
        self.close()
        self.sequence += 1
        self.offset = BLOCK
        self._end, self._archived = 0, False
        self._buffer, self._at, self._slice = b"", 0, self._slice_max
        return end

    # --- the files

    def _open(self) -> bool:
        """The log `sequence`, online or from the archive. False: the database has not begun it yet."""
        if self._find():
            return True
        control = read_control(self._layout)
        info = control.threads.get(self._thread)
        if control.resetlogs != self._resetlogs:
            raise IncarnationError(
                f"the database was opened with resetlogs ({self._resetlogs} → {control.resetlogs})",
                hint="logs of two incarnations are never mixed: begin capture anew",
                **self._where(),
            )
        if info is None or self.sequence >= info.sequence:
            return False
        # it may have gone from online to the archive while we looked
        if self._find():
            return True
        raise LogGapError(
            f"log {self.sequence} of thread {self._thread} is neither online nor archived",
            hint=f"restore {self._layout.archive(self._thread, self.sequence).name} to the archive",
            **self._where(),
        )

    def _find(self) -> bool:
        group = self.sequence % self._groups
        for path, archived in (
            (self._layout.online(self._thread, group), False),
            (self._layout.archive(self._thread, self.sequence), True),
        ):
            try:
                fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            head = self._head_of(fd)
            if head is not None and not archived and head.sequence != self.sequence:
                os.close(fd)
                continue
            self._fd, self._archived = fd, archived
            self._check(head, archived)
            return True
        return False

    def _head_of(self, fd: int) -> FileHeader | None:
        for _ in range(_HEADER_TRIES):
            head = unpack_header(os.pread(fd, BLOCK, 0))
            if head is not None:
                return head
        return None

    def _check(self, head: FileHeader | None, archived: bool) -> None:
        if head is None:
            raise LogCorruptError("the log's header does not check", **self._where())
        if (head.database, head.resetlogs) != (self._database, self._resetlogs):
            raise IncarnationError(
                f"the log is of database {head.database}.{head.resetlogs}, not of {self._database}.{self._resetlogs}",
                hint="the database was restored or replaced: reset the source's position to capture it anew",
                **self._where(),
            )
        if (head.thread, head.sequence) != (self._thread, self.sequence) or (archived and not head.closed):
            raise LogGapError(
                f"the file of log {self.sequence} holds log {head.sequence} of thread {head.thread}",
                hint="restore the right log to the archive",
                **self._where(),
            )
        self._note(head)

    def _note(self, head: FileHeader) -> None:
        if head.closed:
            self._end, self._next_scn = head.end, head.next_scn

    def _where(self) -> Where:
        return {"source": self._source, "thread": self._thread, "position": str(self.place)}


def log_there(layout: Layout, groups: int, thread: int, sequence: int) -> bool:
    """Is this log to be had, online or from the archive?"""
    online = layout.online(thread, sequence % groups)
    if online.exists():
        with online.open("rb") as file:
            head = unpack_header(file.read(BLOCK))
        if head is not None and head.sequence == sequence:
            return True
    return layout.archive(thread, sequence).exists()
