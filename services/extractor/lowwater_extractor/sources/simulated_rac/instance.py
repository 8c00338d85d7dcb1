"""One redo thread as its instance writes it: the log buffer, LWNs, log switches, the archive."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from lowwater_extractor.sources.simulated_rac.log import (
    ARGUMENT,
    BLOCK,
    COMMIT,
    ENTRY,
    OPERATION,
    ROLLBACK,
    ROW,
    SCN_NONE,
    UNDO,
    FileHeader,
    Layout,
    ThreadInfo,
    pack_header,
    pack_lwn,
    replace_file,
)


@dataclass(slots=True)
class Flushed:
    """What one write put into the log."""

    sequence: int
    offset: int
    #: the transactions with records in it → the SCN of their first one
    xids: dict[int, int]
    #: the transactions that it closes, in that order
    closed: list[int]


@dataclass(slots=True)
class _Buffer:
    """The next LWN: not in the log yet, lost if the instance dies."""

    scn: int = 0
    entries: bytearray = field(default_factory=bytearray)
    data: bytearray = field(default_factory=bytearray)
    xids: dict[int, int] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    #: by how much the changes that stand (rows less undos) go up or down, by (xid, thread)
    standing: dict[tuple[int, int], int] = field(default_factory=dict)


class Instance:
    def __init__(self, layout: Layout, thread: int, database: int, resetlogs: int, groups: int, log_bytes: int) -> None:
        self.layout = layout
        self.thread = thread
        self.groups = groups
        self.log_bytes = log_bytes
        self.state = "closed"
        #: an instance that stopped without a word is not alive, while its thread is still "open"
        self.alive = False
        self.opened_scn = 0
        self.enabled_scn = 0
        self._head = FileHeader(thread, 0, database, resetlogs, 0, SCN_NONE, 0)
        self._fd = -1
        self._buffer = _Buffer()
        self.offset = BLOCK
        #: changes in the log that stand, by (xid, thread that wrote them)
        self.standing: dict[tuple[int, int], int] = {}

    # --- the log buffer

    @property
    def buffered(self) -> int:
        return len(self._buffer.entries) + len(self._buffer.data)

    @property
    def buffered_scn(self) -> int:
        return self._buffer.scn

    def record(self, scn: int, xid: int, code: int, data: bytes) -> None:
        """`data` has at least one byte: a record's data offset is its place."""
        buffer = self._buffer
        if not buffer.entries:
            buffer.scn = scn
        buffer.data += data
        buffer.entries += ENTRY.pack(scn, xid, code, len(buffer.data))
        if xid not in buffer.xids:
            buffer.xids[xid] = scn
        if code >= ROW:
            key = (xid, self.thread)
            buffer.standing[key] = buffer.standing.get(key, 0) + 1
        elif code & OPERATION == UNDO:
            key = (xid, code & ARGUMENT)
            buffer.standing[key] = buffer.standing.get(key, 0) - 1
        elif code & OPERATION in (COMMIT, ROLLBACK):
            buffer.closed.append(xid)

    def flush(self, time_us: int) -> Flushed | None:
        """The buffer as one LWN at the end of the log."""
        buffer = self._buffer
        if not buffer.entries:
            return None
        flushed = Flushed(self.sequence, self.offset, buffer.xids, buffer.closed)
        self._write(self._packed(time_us))
        for key, by in buffer.standing.items():
            self.standing[key] = self.standing.get(key, 0) + by
        self._buffer = _Buffer()
        return flushed

    def tear(self, time_us: int, keep: int) -> None:
        """Only the first `keep` bytes of the next LWN get into the log for now."""
        if self.buffered:
            lwn = self._packed(time_us)
            keep = min(keep, len(lwn) - 1)
            # one wrong byte behind it: what the group held before could be the right one by chance
            os.pwrite(self._fd, lwn[:keep] + bytes([lwn[keep] ^ 0xFF]), self.offset)

    def heartbeat(self, scn: int, time_us: int) -> None:
        """An LWN without a record: only says that the thread is at this SCN."""
        self._write(pack_lwn(self.sequence, scn, time_us, b"", b""))

    def lose_buffer(self) -> None:
        self._buffer = _Buffer()

    def waiting(self, xid: int, thread: int) -> int:
        """Changes of this thread in the log and in the buffer that stand."""
        key = (xid, thread)
        return self.standing.get(key, 0) + self._buffer.standing.get(key, 0)

    def forget(self, xid: int, thread: int) -> None:
        self.standing.pop((xid, thread), None)

    def _packed(self, time_us: int) -> bytes:
        buffer = self._buffer
        return pack_lwn(self.sequence, buffer.scn, time_us, bytes(buffer.entries), bytes(buffer.data))

    def _write(self, lwn: bytes) -> None:
        os.pwrite(self._fd, lwn, self.offset)
        self.offset += len(lwn)

    # --- logs

    @property
    def sequence(self) -> int:
        return self._head.sequence

    def full(self) -> bool:
        return self.offset + self.buffered + BLOCK > self.log_bytes and self.offset > BLOCK

    def switch(self, next_scn: int) -> None:
        """The next log begins at `next_scn`, which is the last one's next SCN.

        The new header is written first: a reader that finds its log overwritten then finds all of it in
        the archive, because a group is archived before the log behind it ends.
        """
        old, old_fd, end = self._head, self._fd, self.offset
        self._head = old._replace(sequence=old.sequence + 1, first_scn=next_scn, next_scn=SCN_NONE, end=0)
        self.offset = BLOCK
        path = self.layout.online(self.thread, self._head.sequence % self.groups)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(self._fd, pack_header(self._head), 0)
        if old_fd >= 0:
            os.pwrite(old_fd, pack_header(old._replace(next_scn=next_scn, end=end)), 0)
            replace_file(self.layout.archive(self.thread, old.sequence), os.pread(old_fd, end, 0))
            os.close(old_fd)

    def info(self) -> ThreadInfo:
        return ThreadInfo(
            thread=self.thread,
            state=self.state,
            sequence=self.sequence,
            offset=self.offset,
            first_sequence=1,
            enabled_scn=self.enabled_scn,
            opened_scn=self.opened_scn,
        )

    def shut(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
