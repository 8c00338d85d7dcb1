"""One instance, which writes one redo thread: the log buffer, LWNs, log switches, the archive."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from lowwater_devkit.simulated_rac.layout import Layout, ThreadInfo, replace_file
from lowwater_devkit.simulated_rac.redo.log import (
    FIRST_BLOCK,
    Form,
    LogHeader,
    LwnBuffer,
    LwnTail,
    pack_block0,
    pack_block1,
)
from lowwater_devkit.simulated_rac.redo.pairs import Undo

_SECOND_US = 1_000_000
#: space in addition to `log_bytes` and the largest LWN: one record
_SPARE_BYTES = 1 << 18


class Database(NamedTuple):
    """The identity of the database in the headers of all logs."""

    database: int
    resetlogs: int
    resetlogs_scn: int
    name: str = "SIMRAC"


class Flushed(NamedTuple):
    """The result of one write to the log."""

    #: the transactions with records in it → the SCN of their first record
    xids: dict[int, int]
    #: the transactions that end in it, in log order
    closed: list[int]


@dataclass(slots=True)
class _Buffer:
    """The next LWN: not in the log yet, lost if the instance crashes."""

    lwn: LwnBuffer
    scn: int = 0
    last_scn: int = 0
    xids: dict[int, int] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    #: (a transaction's undo list, the undone change or None for a new one): reverted if the buffer is lost
    changed: list[tuple[list[Undo], Undo | None]] = field(default_factory=list)


class Instance:
    def __init__(
        self,
        layout: Layout,
        thread: int,
        database: Database,
        groups: int,
        log_bytes: int,
        *,
        form: Form,
        lwn_bytes: int,
        clock_us: Callable[[], int],
        heartbeat: Callable[[int], bytes],
    ) -> None:
        self.layout = layout
        self.thread = thread
        self.groups = groups
        self.form = form
        self.log_bytes = log_bytes
        self.state = "closed"
        #: a crashed instance is not alive, while its thread is still "open"
        self.alive = False
        self.opened_scn = 0
        self.enabled_scn = 0
        #: every later record has this SCN or a higher one
        self.floor = 0
        self._clock_us = clock_us
        self._heartbeat = heartbeat
        # the file is larger than needed: logs are always switched before it is full
        self._blocks = form.blocks_of(log_bytes + lwn_bytes + _SPARE_BYTES) + FIRST_BLOCK
        self._head = self._first_header(database)
        self._fd = -1
        self._buffer = _Buffer(LwnBuffer(form))
        self._block = FIRST_BLOCK

    def _first_header(self, database: Database) -> LogHeader:
        now = self._clock_us() // _SECOND_US
        return LogHeader(
            thread=self.thread,
            sequence=0,
            database=database.database,
            name=database.name,
            activation=database.database + database.resetlogs,
            resetlogs_id=database.resetlogs,
            resetlogs_scn=database.resetlogs_scn,
            first_scn=0,
            first_time=now,
            blocks=self._blocks,
            group=0,
            enabled_scn=0,
            enabled_time=now,
            previous_resetlogs_id=database.resetlogs - 1,
        )

    # --- the log buffer

    @property
    def buffered(self) -> int:
        return len(self._buffer.lwn.data)

    @property
    def buffered_scn(self) -> int:
        return self._buffer.scn

    def record(self, scn: int, xid: int | None, record: bytes, *, closes: bool = False) -> None:
        """Add a record to the buffer. `xid`: its transaction, if it has one."""
        buffer = self._buffer
        if not buffer.lwn.data:
            buffer.scn = scn
        buffer.last_scn = scn
        buffer.lwn.add(record)
        if xid is not None:
            if xid not in buffer.xids:
                buffer.xids[xid] = scn
            if closes:
                buffer.closed.append(xid)

    def changed(self, undo: list[Undo], taken: Undo | None = None) -> None:
        """The last record is a change that was added to `undo`, or the undo of `taken`, which was in it."""
        self._buffer.changed.append((undo, taken))

    def lose_buffer(self) -> None:
        """Discard the buffer, and reset the transactions to their state in the log."""
        for undo, taken in reversed(self._buffer.changed):
            if taken is None:
                undo.pop()
            else:
                undo.append(taken)
        self._buffer = _Buffer(LwnBuffer(self.form))

    def flush(self, time_us: int) -> Flushed | None:
        """Write the buffer as one LWN at the end of the log."""
        buffer = self._buffer
        if not buffer.lwn.data:
            return None
        flushed = Flushed(buffer.xids, buffer.closed)
        self._write(buffer, time_us)
        self._buffer = _Buffer(LwnBuffer(self.form))
        return flushed

    def heartbeat(self, scn: int, time_us: int) -> None:
        """Write an LWN without changes, which advances the thread to this SCN."""
        if self.full():
            self.switch(scn)
        buffer = _Buffer(LwnBuffer(self.form), scn, scn)
        buffer.lwn.add(self._heartbeat(scn))
        self._write(buffer, time_us)

    def tear(self, time_us: int, keep: int) -> None:
        """Write only the first `keep` bytes of the next LWN, until the next flush."""
        if self.buffered:
            lwn = self._packed(self._buffer, time_us)
            keep = min(keep, len(lwn) - 1)
            # followed by one wrong byte: the old content of the group could be right by chance
            os.pwrite(self._fd, lwn[:keep] + bytes([lwn[keep] ^ 0xFF]), self.offset)

    def _packed(self, buffer: _Buffer, time_us: int) -> bytes:
        tail = LwnTail(buffer.scn, buffer.last_scn + 1, time_us // _SECOND_US)
        return buffer.lwn.packed(self.sequence, self._block, tail)

    def _write(self, buffer: _Buffer, time_us: int) -> None:
        os.pwrite(self._fd, self._packed(buffer, time_us), self.offset)
        blocks = buffer.lwn.blocks
        self._block += blocks
        self.floor = max(self.floor, buffer.last_scn + 1)
        if blocks > self._head.lwn_blocks_max:
            self._head = self._head._replace(lwn_blocks_max=blocks)

    # --- logs

    @property
    def sequence(self) -> int:
        return self._head.sequence

    @property
    def offset(self) -> int:
        """The offset of the next LWN."""
        return self._block * self.form.block_bytes

    def full(self) -> bool:
        ahead = max(self._buffer.lwn.blocks, 1) * self.form.block_bytes
        return self.offset + ahead > self.log_bytes and self._block > FIRST_BLOCK

    def switch(self, next_scn: int) -> None:
        """Start the next log at `next_scn`, which is also the next SCN of the previous log.

        The new header is written first: a reader whose log was overwritten finds all of that log in the archive,
        because a group is archived before the log after it ends.
        """
        old, old_fd, used = self._head, self._fd, self._block
        now = self._clock_us() // _SECOND_US
        sequence = old.sequence + 1
        group = sequence % self.groups
        self._head = old._replace(
            sequence=sequence,
            group=group + 1,
            first_scn=next_scn,
            first_time=now,
            enabled_scn=self.enabled_scn,
            thread_closed_scn=next_scn,
            thread_closed_time=now,
            control_sequence=old.control_sequence + 4,
            lwn_blocks_max=0,
        )
        self._block, self.floor = FIRST_BLOCK, max(self.floor, next_scn)
        self._fd = os.open(self.layout.online(self.thread, group), os.O_RDWR | os.O_CREAT)
        os.pwrite(self._fd, pack_block0(self.form, self._blocks) + pack_block1(self.form, self._head), 0)
        size = (self._blocks + 1) * self.form.block_bytes
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        if old_fd >= 0:
            self._archive(old._replace(next_scn=next_scn, next_time=now, used=used), old_fd)
            os.close(old_fd)

    def _archive(self, head: LogHeader, fd: int) -> None:
        """Write the final header of a log that has ended, and copy the log to the archive."""
        form, block1 = self.form, pack_block1(self.form, head)
        os.pwrite(fd, block1, form.block_bytes)
        start = FIRST_BLOCK * form.block_bytes
        redo = os.pread(fd, head.used * form.block_bytes - start, start)
        content = pack_block0(form, head.used - 1) + block1 + redo
        replace_file(self.layout.archive(self.thread, head.sequence), content)

    def close_thread(self, scn: int) -> None:
        """Write the SCN of the thread's closing to the header of the current log."""
        self._head = self._head._replace(thread_closed_scn=scn, thread_closed_time=self._clock_us() // _SECOND_US)
        os.pwrite(self._fd, pack_block1(self.form, self._head), self.form.block_bytes)

    def info(self) -> ThreadInfo:
        return ThreadInfo(
            thread=self.thread,
            state=self.state,
            sequence=self.sequence,
            offset=self.offset,
            enabled_scn=self.enabled_scn,
            opened_scn=self.opened_scn,
        )

    def shut(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
