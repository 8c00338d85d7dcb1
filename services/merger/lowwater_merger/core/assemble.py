"""Buffers the values of each open transaction until its Commit. Values are counted and checked, but not decoded."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Protocol
from zlib import crc32

from lowwater.codec.varint import read_long
from lowwater.errors import ChecksumMismatchError, CountMismatchError
from lowwater.records.types import Commit
from lowwater.records.wire import HEADER_SIZE
from lowwater_merger.core.watermark import PartitionMark

#: Python's overhead for a bytes object in a list
VALUE_OVERHEAD_BYTES = 48
#: memory of one open or waiting transaction, without its values
TRANSACTION_OVERHEAD_BYTES = 700


class SpooledValues(Protocol):
    """Values of one transaction on disk."""

    size_bytes: int

    def append(self, values: list[bytes]) -> None: ...

    def blocks(self) -> Iterator[list[bytes]]: ...

    def drop(self) -> None: ...


class Buffer:
    """The values of one transaction read so far: the newest in memory, older ones may be on disk."""

    __slots__ = ("checksum", "count", "first_offset", "mark", "partition", "source", "spooled", "values")

    def __init__(self, source: str, partition: int, first_offset: int, mark: PartitionMark | None) -> None:
        self.source = source
        self.partition = partition
        self.first_offset = first_offset
        #: the partition's last mark before the first value; progress needs it to read the transaction again
        self.mark = mark
        self.values: list[bytes] = []
        self.spooled: SpooledValues | None = None
        # count and checksum of the spooled values
        self.count = 0
        self.checksum = 0

    def blocks(self) -> Iterator[list[bytes]]:
        if self.spooled is not None:
            yield from self.spooled.blocks()
        if self.values:
            yield self.values

    def spool(self, target: SpooledValues) -> int:
        """Append the values in memory to those on disk. Returns the number of bytes of memory freed."""
        freed = memory_bytes(self.values)
        self.spooled = target
        self.count += len(self.values)
        self.checksum += sum(map(crc32, self.values))
        target.append(self.values)
        self.values = []
        return freed

    def drop(self) -> None:
        if self.spooled is not None:
            self.spooled.drop()

    def fits(self, commit: Commit) -> bool:
        return (
            self.count + len(self.values) == commit.changes
            and self.checksum + sum(map(crc32, self.values)) == commit.checksum
        )


def memory_bytes(values: list[bytes]) -> int:
    return sum(map(len, values)) + VALUE_OVERHEAD_BYTES * len(values)


def without_repeats(blocks: Iterable[list[bytes]], commit: Commit) -> Iterator[tuple[list[bytes], int]]:
    """Blocks without identical repeats, each with the number of repeats dropped.

    A Kafka transaction whose end was delayed can leave records that are then published again. They are recognized by
    `seq`: a repeated value with the same bytes is dropped. Raises ChecksumMismatchError if its bytes differ, and
    CountMismatchError if a number is missing.
    """
    seen = array("I")
    for block in blocks:
        kept: list[bytes] = []
        repeats = 0
        for value in block:
            seq, _ = read_long(value, HEADER_SIZE)
            checksum = crc32(value)
            if seq == len(seen) + 1:
                seen.append(checksum)
                kept.append(value)
            elif not 1 <= seq <= len(seen):
                raise _mismatch(CountMismatchError, commit, f"change {len(seen) + 1} is missing before {seq}")
            elif seen[seq - 1] != checksum:
                raise _mismatch(ChecksumMismatchError, commit, f"change {seq} was read twice with different bytes")
            else:
                repeats += 1
        yield kept, repeats
    if len(seen) != commit.changes:
        raise _mismatch(CountMismatchError, commit, f"{len(seen)} changes read, but the commit counts {commit.changes}")
    if sum(seen) != commit.checksum:
        raise _mismatch(
            ChecksumMismatchError, commit, "the number of changes matches the commit, but not their checksum"
        )


def _mismatch(
    error: type[CountMismatchError] | type[ChecksumMismatchError], commit: Commit, what: str
) -> CountMismatchError | ChecksumMismatchError:
    return error(
        f"transaction {commit.txid}: {what}",
        source=commit.source,
        thread=commit.thread,
        position=str(commit.order),
        hint="skip this transaction, or reset the source's position to before it so that it is published again",
    )
