"""Reads one thread's redo without blocking: the next LWN with events, the end of a log, or None.

**Online logs** are read while they are written. A block that was never written, belongs to an older log or has a wrong
checksum counts as not written yet: it is read again, and its LWN is processed only when it is complete. The header is
read after the data: if it is still this log's, the data is too, because a log that is overwritten gets its new header
first. If the header shows a closed log both before and after the data was read, a bad block is corruption.

**A log switch** is detected by that header. If a log was overwritten before it was read to its end, reading continues
in the archive, at the same offset: an archived log is a copy, block by block.
"""

from __future__ import annotations

import os
from collections import deque
from datetime import UTC, tzinfo
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lowwater.errors import LogCorruptError, LogGapError, SourceError, SourceLostError
from lowwater_extractor.sources.oracle.redo.blocks import BadBlock, Bytes, find_bad
from lowwater_extractor.sources.oracle.redo.events import Captured, EventMaker, Lwn
from lowwater_extractor.sources.oracle.redo.file_header import (
    HEADER_BYTES,
    Identity,
    LogHeader,
    NoHeader,
    check_header,
    check_length,
    cut_short,
    unpack_header,
)
from lowwater_extractor.sources.oracle.redo.files import LogFiles
from lowwater_extractor.sources.oracle.redo.layout import Place, Where
from lowwater_extractor.sources.oracle.redo.scan import Damage, Payload, find_lwns
from lowwater_extractor.sources.oracle.scn import Scn

#: bytes of a read at the end of the log, where mostly little is available
_SLICE_MIN = 1 << 14
#: a header that is being rewritten has a wrong checksum for an instant
_HEADER_TRIES = 50


class LogEnd(NamedTuple):
    """The log was read to its end; the next log begins at `next_scn`."""

    sequence: int
    next_scn: Scn


class ThreadReader:
    def __init__(
        self,
        source: str,
        thread: int,
        identity: Identity,
        files: LogFiles,
        captured: Captured,
        start: Place,
        *,
        slice_max: int = 6 << 20,
        zone: tzinfo = UTC,
    ) -> None:
        self._source = source
        self._thread = thread
        self._identity = identity
        self._files = files
        self._zone = zone
        self._maker = EventMaker(source, thread, captured, zone)
        self.sequence = start.sequence
        #: offset of the next LWN; 0 is the beginning of the log
        self.offset = start.offset
        self._ready: deque[Lwn] = deque()
        self._slice_max = slice_max
        self._slice = slice_max
        self._raw: Bytes = np.zeros(0, np.uint8)
        self._payload: Payload | None = None
        self._fd = -1
        self._archived = False
        self._head: LogHeader | None = None
        self._head_seen: tuple[bytes, LogHeader | NoHeader] = (b"", NoHeader("not read"))

    @property
    def place(self) -> Place:
        return Place(self.sequence, self.offset)

    def next(self) -> Lwn | LogEnd | None:
        """The next LWN or log end of this thread; None if it is not written yet.

        An LWN without events is skipped if the one after it has been read.
        """
        while not self._ready:
            found = self._fill()
            if not isinstance(found, list):
                return found
            self._ready.extend(found)
        lwn = self._ready.popleft()
        self.offset = lwn.end
        return lwn

    def capture(self, captured: Captured, offset: int | None = None) -> None:
        """Change the captured objects, from here on or from the LWN at `offset` of the open log (0: its first one)."""
        self._maker = EventMaker(self._source, self._thread, captured, self._zone)
        self._ready.clear()
        if offset is not None:
            assert self._head is not None
            self.offset = offset or self._head.first_offset

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- the bytes

    def _fill(self) -> list[Lwn] | LogEnd | None:
        """The LWNs from `offset` on that are in one slice."""
        wanted = 0
        while True:
            if self._fd < 0 and not self._open():
                return None
            assert self._head is not None
            end = self._head.end
            if end and self.offset >= end:
                return self._next_log()
            blocks = self._read(wanted)
            if blocks is None:
                # the file is another log by now, or was closed: read again
                continue
            bad = find_bad(blocks, self.offset // self._head.form.block_size, self.sequence, self._head.form)
            good = len(blocks) if bad is None else bad.good
            found = self._take(blocks[:good])
            if isinstance(found, list):
                self._slice = min(self._slice_max, self._slice * 2) if bad is None else _SLICE_MIN
                return found
            if bad is not None or not good:
                self._not_whole(bad)
                return None
            if self.offset + found * self._head.form.block_size > (end or self._file_size()):
                raise self._corrupt(f"an LWN of {found} blocks runs over the end of the log")
            wanted = found

    def _read(self, wanted: int) -> Bytes | None:
        """A slice of whole blocks from `offset`, at least `wanted` of them if the file has them."""
        head = self._head
        assert head is not None
        block_size = head.form.block_size
        size = max(wanted * block_size, self._slice // block_size * block_size, block_size)
        there = (head.end or self._file_size()) - self.offset
        size = min(size, max(0, there) // block_size * block_size)
        if len(self._raw) < size:
            self._raw = np.empty(size, np.uint8)
        got = os.preadv(self._fd, [self._raw[:size].data], self.offset)
        if not self._archived and not self._still_this_log(head):
            return None
        if head.closed and got < size:
            raise cut_short(head, self.offset + got, self._where())
        count = got // block_size
        return self._raw[: count * block_size].reshape(count, block_size)

    def _still_this_log(self, before: LogHeader) -> bool:
        """Check an online log's header after its data was read: False if it was overwritten, or closed meanwhile."""
        head = self._head_of(self._fd)
        if not isinstance(head, LogHeader) or (head.sequence, head.identity) != (self.sequence, self._identity):
            self.close()
            return False
        self._head = head
        return head.closed == before.closed

    def _take(self, blocks: Bytes) -> list[Lwn] | int:
        """The complete LWNs in these good blocks; if there is none, the number of blocks that the first one needs."""
        assert self._head is not None
        if not len(blocks):
            return 1
        form = self._head.form
        found = find_lwns(blocks, form)
        if isinstance(found, Damage):
            block = self.offset // form.block_size + found.at // form.payload
            raise self._corrupt(f"{found.what}: block {block}")
        lwns, wanted = found
        if not len(lwns.start):
            return wanted
        count = int(lwns.stop[-1])
        if self._payload is None or self._payload.form != form or self._payload.blocks_max < count:
            self._payload = Payload(form, max(count, self._slice_max // form.block_size))
        self._payload.load(blocks[:count])
        return self._maker.make(self._payload, lwns, self.sequence, self.offset)

    def _not_whole(self, bad: BadBlock | None) -> None:
        """There is no complete LWN here. In a log that is still written this is normal: it is read again."""
        assert self._head is not None
        if not self._head.closed:
            self._slice = _SLICE_MIN
            return
        raise self._corrupt(f"closed log: {bad}")

    def _next_log(self) -> LogEnd:
        assert self._head is not None
        end = LogEnd(self.sequence, self._head.next_scn)
        self.close()
        self.sequence += 1
        self.offset = 0
        self._slice = self._slice_max
        return end

    # --- the files

    def _open(self) -> bool:
        """Open log `sequence`, online or from the archive. False: the database has not begun it yet."""
        if self._find():
            return True
        current = self._files.current_sequence(self._thread)
        if current is None:
            return False
        # it may have been archived between the two searches, or have just begun
        if self._find():
            return True
        if current <= self.sequence <= current + 1:
            return False
        if self.sequence > current:
            raise LogGapError(
                f"log {self.sequence} of thread {self._thread} is expected, but the database is at {current}",
                hint="the database was restored to an earlier time: reset the source's position",
                **self._where(),
            )
        raise LogGapError(
            f"log {self.sequence} of thread {self._thread} is neither online nor archived",
            hint=f"restore sequence {self.sequence} of thread {self._thread} to the archive",
            **self._where(),
        )

    def _find(self) -> bool:
        online = self._files.find_online(self._thread, self.sequence)
        if online is not None and self._open_file(online, archived=False):
            return True
        archived = self._files.find_archived(self._thread, self.sequence)
        return archived is not None and self._open_file(archived, archived=True)

    def _open_file(self, path: Path, *, archived: bool) -> bool:
        """False: the file is gone, or (online) was overwritten since it was found."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            hint = "give the extractor read permission"
            raise SourceLostError(f"{path} cannot be opened: {error.strerror}", hint=hint, **self._where()) from error
        try:
            return self._begin_file(fd, path, archived)
        finally:
            if self._fd != fd:
                os.close(fd)

    def _begin_file(self, fd: int, path: Path, archived: bool) -> bool:
        head = self._head_of(fd)
        where = self._where()
        if isinstance(head, NoHeader):
            raise LogCorruptError(f"{path}: {head.why}", hint="restore the log", **where)
        if not archived and head.thread == self._thread and head.sequence > self.sequence:
            return False
        check_header(head, self._identity, self._thread, self.sequence, where)
        if archived and not head.closed:
            raise LogGapError(
                f"{path}: the archived log {self.sequence} of thread {self._thread} is not closed",
                hint="it is a copy of a log that was still written: restore the archived log",
                **where,
            )
        check_length(head, os.fstat(fd).st_size, where)
        offset = self.offset or head.first_offset
        if offset % head.form.block_size or offset < head.first_offset or 0 < head.end < offset:
            raise self._corrupt(f"offset {offset} is not in this log, which ends at {head.end or 'none yet'}")
        self._fd, self._archived, self._head, self.offset = fd, archived, head, offset
        return True

    def _head_of(self, fd: int) -> LogHeader | NoHeader:
        head: LogHeader | NoHeader = NoHeader("not read")
        for _ in range(_HEADER_TRIES):
            raw = os.pread(fd, HEADER_BYTES, 0)
            # the header is mostly unchanged since the last slice
            if raw != self._head_seen[0]:
                self._head_seen = (raw, unpack_header(raw))
            head = self._head_seen[1]
            if isinstance(head, LogHeader):
                break
        return head

    def _file_size(self) -> int:
        return os.fstat(self._fd).st_size

    def _corrupt(self, what: str) -> SourceError:
        return LogCorruptError(what, hint="restore the log from the archive or a backup", **self._where())

    def _where(self) -> Where:
        return {"source": self._source, "thread": self._thread, "position": str(self.place)}
