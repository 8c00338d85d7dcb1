"""Buffers on disk for values that exceed the memory limit. Not durable: after a restart Kafka is read again.

Values read back are released, so every block has a checksum. It starts with a random salt of this session: blocks
written by another process do not match, even if they are intact.
"""

from __future__ import annotations

import marshal
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from lowwater.records.positions import Order
from lowwater.runtime.scratch import Scratch, damaged, disk_errors
from lowwater_merger.core.assemble import Buffer
from lowwater_merger.core.lanes import ReleaseKey, Waiting
from lowwater_merger.core.watermark import PartitionMark

#: bytes of a transaction that are read back at once
BLOCK_BYTES = 1 << 20
#: size of one file of a lane: a file is deleted once it has been read back
SEGMENT_BYTES = 32 << 20
#: header of each entry of a lane: size and checksum
_HEAD = struct.Struct("<QI")
_WORD = (1 << 32) - 1


class DiskSpool:
    """A directory used by this session only.

    Files of transactions are open only while they are written or read: thousands of large transactions may wait, and
    the number of open files of a process is limited.
    """

    def __init__(self, parent: Path, name: str) -> None:
        self._scratch = Scratch(parent, name)
        self.directory = self._scratch.path
        #: initial value of every checksum
        self.salt = secrets.randbits(32)
        self._next = 0
        self._writers: set[BinaryIO] = set()
        self.size_bytes = 0
        self.written_bytes_total = 0

    def new_path(self) -> Path:
        self._next += 1
        return self.directory / f"{self._next:08d}.spool"

    def open_writer(self, path: Path) -> BinaryIO:
        with disk_errors(path):
            file = path.open("ab", buffering=0)
        self._writers.add(file)
        return file

    def close_writer(self, file: BinaryIO) -> None:
        self._writers.discard(file)
        file.close()

    def grew(self, size: int) -> None:
        self.size_bytes += size
        if size > 0:
            self.written_bytes_total += size

    def values(self) -> DiskValues:
        return DiskValues(self)

    def lane(self) -> DiskLane:
        return DiskLane(self)

    def close(self) -> None:
        """Delete the directory at the end of a session."""
        for file in self._writers:
            file.close()
        self._writers.clear()
        self._scratch.close()


class DiskValues:
    """The values of one large transaction."""

    def __init__(self, spool: DiskSpool) -> None:
        self._spool = spool
        self._path = spool.new_path()
        #: offset in the file, size, checksum
        self._blocks: list[tuple[int, int, int]] = []
        self.size_bytes = 0

    def append(self, values: list[bytes]) -> None:
        with disk_errors(self._path), self._path.open("ab", buffering=0) as file:
            block: list[bytes] = []
            size = 0
            for value in values:
                block.append(value)
                size += len(value)
                if size >= BLOCK_BYTES:
                    self._write(file, block)
                    block, size = [], 0
            if block:
                self._write(file, block)

    def _write(self, file: BinaryIO, block: list[bytes]) -> None:
        data = marshal.dumps(block)
        write_all(file, data)
        self._blocks.append((self.size_bytes, len(data), crc32(data, self._spool.salt)))
        self.size_bytes += len(data)
        self._spool.grew(len(data))

    def blocks(self) -> Iterator[list[bytes]]:
        with disk_errors(self._path):
            file = self._path.open("rb")
        with file:
            for offset, size, checksum in self._blocks:
                with disk_errors(self._path):
                    file.seek(offset)
                    data = file.read(size)
                if len(data) != size or crc32(data, self._spool.salt) != checksum:
                    raise damaged(self._path, f"the block at {offset} differs from what was written")
                yield marshal.loads(data)

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)
        self._spool.grew(-self.size_bytes)
        self.size_bytes = 0


class _Segment:
    """One file of a lane. Keeps only the offset of the first unread entry in memory: there may be millions of them."""

    __slots__ = ("count", "file", "large", "path", "read_at", "size", "taken")

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = 0
        self.read_at = 0
        self.count = 0
        self.taken = 0
        #: by entry number: values of a large transaction that are in a separate file
        self.large: dict[int, DiskValues] = {}


class DiskLane:
    """Waiting transactions, first in first out, in files that are deleted once read."""

    def __init__(self, spool: DiskSpool) -> None:
        self._spool = spool
        self._segments: list[_Segment] = []
        self.count = 0

    def append(self, entries: list[Waiting]) -> None:
        for start in range(0, len(entries), 1000):
            self._append(entries[start : start + 1000])

    def _append(self, entries: list[Waiting]) -> None:
        if not self._segments or self._segments[-1].size >= SEGMENT_BYTES:
            self._begin_segment()
        segment = self._segments[-1]
        parts: list[bytes] = []
        place = segment.size
        for number, entry in enumerate(entries, start=segment.count):
            data = marshal.dumps(_flat(entry))
            parts += (_HEAD.pack(len(data), crc32(data, self._spool.salt ^ (place & _WORD))), data)
            place += _HEAD.size + len(data)
            if isinstance(entry.buffer.spooled, DiskValues):
                segment.large[number] = entry.buffer.spooled
        written = b"".join(parts)
        with disk_errors(segment.path):
            write_all(segment.file, written)
        segment.size += len(written)
        segment.count += len(entries)
        self.count += len(entries)
        self._spool.grew(len(written))

    def _begin_segment(self) -> None:
        if self._segments:
            self._spool.close_writer(self._segments[-1].file)
        path = self._spool.new_path()
        self._segments.append(_Segment(path, self._spool.open_writer(path)))

    def take(self) -> list[Waiting]:
        """Remove and return the first entries, about BLOCK_BYTES of them."""
        segment = self._segments[0]
        taken: list[Waiting] = []
        size = 0
        for entry, its_size in _entries(segment, self._spool.salt):
            taken.append(entry)
            size += its_size
            segment.large.pop(segment.taken, None)
            segment.taken += 1
            if size >= BLOCK_BYTES:
                break
        segment.read_at += size
        self.count -= len(taken)
        if segment.taken == segment.count:
            self._remove(self._segments.pop(0))
        return taken

    def scan(self) -> Iterator[Waiting]:
        for segment in self._segments:
            for entry, _ in _entries(segment, self._spool.salt):
                yield entry

    def drop(self) -> None:
        for segment in self._segments:
            for values in segment.large.values():
                values.drop()
            self._remove(segment)
        self._segments = []
        self.count = 0

    def _remove(self, segment: _Segment) -> None:
        self._spool.close_writer(segment.file)
        segment.path.unlink(missing_ok=True)
        self._spool.grew(-segment.size)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of `data`: an unbuffered write may be partial, for example just before the disk is full."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _entries(segment: _Segment, salt: int) -> Iterator[tuple[Waiting, int]]:
    """Entries not taken yet, each with its size in the file. Read one at a time, because the file may be large."""
    with disk_errors(segment.path):
        file = segment.path.open("rb")
        file.seek(segment.read_at)
    place = segment.read_at
    with file:
        for number in range(segment.taken, segment.count):
            with disk_errors(segment.path):
                head = file.read(_HEAD.size)
                size, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
                # a damaged size could exceed the memory, so it is checked before the read
                data = file.read(size) if 0 < size <= segment.size - place else b""
            if len(data) != size or not data or crc32(data, salt ^ (place & _WORD)) != checksum:
                raise damaged(segment.path, f"the entry at {place} differs from what was written")
            yield _entry(marshal.loads(data), segment.large.get(number)), _HEAD.size + size
            place += _HEAD.size + size


def _flat(entry: Waiting) -> tuple[Any, ...]:
    buffer = entry.buffer
    mark = buffer.mark
    flat_mark = None
    if mark is not None:
        threads = [(t, *order, mark.states[t]) for t, order in mark.orders.items()]
        flat_mark = (mark.epoch, mark.clock_us, threads, mark.generation)
    return (
        entry.key.generation, tuple(entry.key.order), entry.key.thread, entry.key.txid, entry.commit, entry.clock_us,
        entry.commit_ts_us, entry.id_hash, entry.count, entry.commit_offset, entry.skip, buffer.source,
        buffer.partition, buffer.first_offset, flat_mark, buffer.values, buffer.count, buffer.checksum,
    )  # fmt: skip


def _entry(flat: tuple[Any, ...], spooled: DiskValues | None) -> Waiting:
    (
        generation, order, thread, txid, commit, clock_us, commit_ts_us, id_hash, count, commit_offset, skip, source,
        partition, first_offset, flat_mark, values, spooled_count, checksum,
    ) = flat  # fmt: skip
    mark = None
    if flat_mark is not None:
        epoch, mark_clock_us, threads, mark_generation = flat_mark
        orders = {t: Order(major, minor) for t, major, minor, _ in threads}
        states = {t: state for t, _, _, state in threads}
        mark = PartitionMark(epoch, mark_clock_us, orders, states, mark_generation)
    buffer = Buffer(source, partition, first_offset, mark)
    buffer.values, buffer.count, buffer.checksum, buffer.spooled = values, spooled_count, checksum, spooled
    key = ReleaseKey(generation, Order(*order), thread, txid)
    return Waiting(key, buffer, commit, clock_us, commit_ts_us, id_hash, count, commit_offset, skip)
