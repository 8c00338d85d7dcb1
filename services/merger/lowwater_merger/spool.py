"""Disk for what memory has no room for. Not durable: after a restart Kafka is read again."""

from __future__ import annotations

import marshal
import shutil
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


class DiskSpool:
    """A directory of the merger's own, emptied at start."""

    def __init__(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._directory = directory
        self._next = 0
        self.size_bytes = 0
        self.written_bytes_total = 0

    def new_file(self) -> tuple[Path, BinaryIO]:
        path = self._directory / f"{self._next:08d}.spool"
        self._next += 1
        return path, path.open("w+b", buffering=0)

    def grew(self, size: int) -> None:
        self.size_bytes += size
        if size > 0:
            self.written_bytes_total += size

    def values(self) -> DiskValues:
        return DiskValues(self)

    def lane(self) -> DiskLane:
        return DiskLane(self)


class DiskValues:
    """The values of one large transaction."""

    def __init__(self, spool: DiskSpool) -> None:
        self._spool = spool
        self._path, self._file = spool.new_file()
        self._blocks: list[tuple[int, int]] = []
        self.size_bytes = 0

    def append(self, values: list[bytes]) -> None:
        block: list[bytes] = []
        size = 0
        for value in values:
            block.append(value)
            size += len(value)
            if size >= BLOCK_BYTES:
                self._write(block)
                block, size = [], 0
        if block:
            self._write(block)

    def _write(self, block: list[bytes]) -> None:
        data = marshal.dumps(block)
        self._blocks.append((self.size_bytes, len(data)))
        self._file.seek(self.size_bytes)
        self._file.write(data)
        self.size_bytes += len(data)
        self._spool.grew(len(data))

    def blocks(self) -> Iterator[list[bytes]]:
        for offset, size in self._blocks:
            self._file.seek(offset)
            yield marshal.loads(self._file.read(size))

    def drop(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._path.unlink()
            self._spool.grew(-self.size_bytes)


class _Segment:
    __slots__ = ("entries", "file", "path", "read_at", "size", "spooled")

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = 0
        self.read_at = 0
        #: (size of the entry's data, its large values if they have a file of their own)
        self.entries: list[tuple[int, DiskValues | None]] = []


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
            self._segments.append(_Segment(*self._spool.new_file()))
        segment = self._segments[-1]
        parts = [marshal.dumps(_flat(entry)) for entry in entries]
        data = b"".join(parts)
        segment.file.seek(segment.size)
        segment.file.write(data)
        segment.size += len(data)
        for part, entry in zip(parts, entries, strict=True):
            spooled = entry.buffer.spooled
            segment.entries.append((len(part), spooled if isinstance(spooled, DiskValues) else None))
        self.count += len(entries)
        self._spool.grew(len(data))

    def take(self) -> list[Waiting]:
        """The first entries, about one block of them."""
        segment = self._segments[0]
        number = size = 0
        while number < len(segment.entries) and size < BLOCK_BYTES:
            size += segment.entries[number][0]
            number += 1
        taken = list(_entries(segment, number))
        segment.read_at += size
        del segment.entries[:number]
        self.count -= number
        if not segment.entries:
            self._remove(self._segments.pop(0))
        return taken

    def scan(self) -> Iterator[Waiting]:
        for segment in self._segments:
            yield from _entries(segment, len(segment.entries))

    def drop(self) -> None:
        for segment in self._segments:
            for _, spooled in segment.entries:
                if spooled is not None:
                    spooled.drop()
            self._remove(segment)
        self._segments = []
        self.count = 0

    def _remove(self, segment: _Segment) -> None:
        segment.file.close()
        segment.path.unlink()
        self._spool.grew(-segment.size)


def _entries(segment: _Segment, number: int) -> Iterator[Waiting]:
    wanted = segment.entries[:number]
    segment.file.seek(segment.read_at)
    data = segment.file.read(sum(size for size, _ in wanted))
    at = 0
    for size, spooled in wanted:
        yield _entry(marshal.loads(data[at : at + size]), spooled)
        at += size


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
