"""Disk for what memory has no room for. Not durable: after a restart Kafka is read again."""

from __future__ import annotations

import marshal
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from lowwater.positions import Order
from lowwater_merger.assemble import Buffer
from lowwater_merger.lanes import ReleaseKey, Waiting
from lowwater_merger.watermark import PartitionMark

#: how much of a transaction is read back at once
BLOCK_BYTES = 1 << 20
#: a lane's file is cut here, so that what has been read back can be removed
SEGMENT_BYTES = 32 << 20
_SIZE = struct.Struct("<Q")


class DiskSpool:
    """A directory of the merger's own, emptied at start.

    Files are open only while they are written or read: what waits may be thousands of large transactions, and a
    process may have only so many files open.
    """

    def __init__(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._directory = directory
        self._next = 0
        self._writers: set[BinaryIO] = set()
        self.size_bytes = 0
        self.written_bytes_total = 0

    def new_path(self) -> Path:
        self._next += 1
        return self._directory / f"{self._next:08d}.spool"

    def open_writer(self, path: Path) -> BinaryIO:
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
        """The end of a session: nothing of it is needed any more."""
        for file in self._writers:
            file.close()
        self._writers.clear()
        shutil.rmtree(self._directory, ignore_errors=True)


class DiskValues:
    """The values of one large transaction."""

    def __init__(self, spool: DiskSpool) -> None:
        self._spool = spool
        self._path = spool.new_path()
        self._blocks: list[tuple[int, int]] = []
        self.size_bytes = 0

    def append(self, values: list[bytes]) -> None:
        with self._path.open("ab", buffering=0) as file:
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
        self._blocks.append((self.size_bytes, len(data)))
        write_all(file, data)
        self.size_bytes += len(data)
        self._spool.grew(len(data))

    def blocks(self) -> Iterator[list[bytes]]:
        with self._path.open("rb") as file:
            for offset, size in self._blocks:
                file.seek(offset)
                yield marshal.loads(file.read(size))

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)
        self._spool.grew(-self.size_bytes)
        self.size_bytes = 0


class _Segment:
    """One file of a lane. Of each entry it knows nothing but where the first one begins: there may be millions."""

    __slots__ = ("count", "file", "large", "path", "read_at", "size", "taken")

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = 0
        self.read_at = 0
        self.count = 0
        self.taken = 0
        #: by number, the large values of entries that have them in a file of their own
        self.large: dict[int, DiskValues] = {}


class DiskLane:
    """Waiting transactions, first in first out, in files that are removed once read."""

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
        for number, entry in enumerate(entries, start=segment.count):
            data = marshal.dumps(_flat(entry))
            parts += (_SIZE.pack(len(data)), data)
            if isinstance(entry.buffer.spooled, DiskValues):
                segment.large[number] = entry.buffer.spooled
        written = b"".join(parts)
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
        """The first entries, about one block of them."""
        segment = self._segments[0]
        taken: list[Waiting] = []
        size = 0
        for entry, its_size in _entries(segment):
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
            for entry, _ in _entries(segment):
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
        segment.path.unlink()
        self._spool.grew(-segment.size)


def write_all(file: BinaryIO, data: bytes) -> None:
    """An unbuffered write may take only a part, as the last one before a full disk does."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _entries(segment: _Segment) -> Iterator[tuple[Waiting, int]]:
    """Those not taken yet, each with its size in the file; one at a time, whatever the file's size."""
    with segment.path.open("rb") as file:
        file.seek(segment.read_at)
        for number in range(segment.taken, segment.count):
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            yield _entry(marshal.loads(file.read(size)), segment.large.get(number)), _SIZE.size + size


def _flat(entry: Waiting) -> tuple[Any, ...]:
    buffer = entry.buffer
    mark = buffer.mark
    flat_mark = None
    if mark is not None:
        threads = [(t, *order, mark.states[t]) for t, order in mark.orders.items()]
        flat_mark = (mark.epoch, mark.clock_us, threads)
    return (
        tuple(entry.key.order), entry.key.thread, entry.key.txid, entry.commit, entry.clock_us, entry.commit_ts_us,
        entry.id_hash, entry.count, entry.commit_offset, entry.skip, buffer.source, buffer.partition,
        buffer.first_offset, flat_mark, buffer.values, buffer.count, buffer.checksum,
    )  # fmt: skip


def _entry(flat: tuple[Any, ...], spooled: DiskValues | None) -> Waiting:
    (
        order, thread, txid, commit, clock_us, commit_ts_us, id_hash, count, commit_offset, skip, source, partition,
        first_offset, flat_mark, values, spooled_count, checksum,
    ) = flat  # fmt: skip
    mark = None
    if flat_mark is not None:
        epoch, mark_clock_us, threads = flat_mark
        orders = {t: Order(major, minor) for t, major, minor, _ in threads}
        mark = PartitionMark(epoch, mark_clock_us, orders, {t: state for t, _, _, state in threads})
    buffer = Buffer(source, partition, first_offset, mark)
    buffer.values, buffer.count, buffer.checksum, buffer.spooled = values, spooled_count, checksum, spooled
    key = ReleaseKey(Order(*order), thread, txid)
    return Waiting(key, buffer, commit, clock_us, commit_ts_us, id_hash, count, commit_offset, skip)
