"""Complete transactions that wait for the watermark.

An extractor publishes each thread's transactions in commit order, so the transactions of one thread in one partition
arrive in order. They form a lane. The next transaction of a source is the lowest head of its lanes; the tails may be on
disk.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from lowwater.records.positions import Order
from lowwater_merger.core.assemble import TRANSACTION_OVERHEAD_BYTES, Buffer, memory_bytes
from lowwater_merger.core.watermark import PartitionMark

#: enough buckets that each stays short while millions of transactions wait for a stalled thread
_BUCKET_BITS = 16
_BUCKET_MASK = (1 << _BUCKET_BITS) - 1
_REST_MASK = (1 << 32) - 1


class ReleaseKey(NamedTuple):
    """The total order inside a source: also defined for equal commit SCNs on two threads."""

    generation: int
    order: Order
    thread: int
    txid: str


class Waiting:
    """One complete transaction that waits for release."""

    __slots__ = (
        "buffer", "clock_us", "commit", "commit_offset", "commit_ts_us", "count", "id_hash", "key",
        "memory_bytes", "size_bytes", "skip",
    )  # fmt: skip

    def __init__(
        self, key: ReleaseKey, buffer: Buffer, commit: bytes, clock_us: int, commit_ts_us: int, id_hash: int,
        count: int, commit_offset: int, skip: str | None,
    ) -> None:  # fmt: skip
        self.key = key
        self.buffer = buffer
        self.commit = commit
        self.clock_us = clock_us
        self.commit_ts_us = commit_ts_us
        self.id_hash = id_hash
        self.count = count
        self.commit_offset = commit_offset
        #: the operator's reason, if the transaction is to be skipped
        self.skip = skip
        self.memory_bytes = memory_bytes(buffer.values) + TRANSACTION_OVERHEAD_BYTES
        self.size_bytes = self.memory_bytes + (buffer.spooled.size_bytes if buffer.spooled else 0)


class ManyIds:
    """A set of 48-bit hashes of transaction ids: about 5 bytes per id, against about 100 in a Python set."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}

    def __contains__(self, id_hash: int) -> bool:
        bucket = self._buckets.get(id_hash & _BUCKET_MASK)
        return bucket is not None and id_hash >> _BUCKET_BITS & _REST_MASK in bucket

    def add(self, id_hash: int) -> None:
        bucket = self._buckets.setdefault(id_hash & _BUCKET_MASK, array("I"))
        bucket.append(id_hash >> _BUCKET_BITS & _REST_MASK)

    def discard(self, id_hash: int) -> None:
        if id_hash in self:
            self._buckets[id_hash & _BUCKET_MASK].remove(id_hash >> _BUCKET_BITS & _REST_MASK)


class SpooledLane(Protocol):
    """The tail of a lane on disk, first in first out."""

    count: int

    def append(self, entries: list[Waiting]) -> None: ...

    def take(self) -> list[Waiting]: ...

    def scan(self) -> Iterator[Waiting]: ...

    def drop(self) -> None: ...


class Lane:
    """Waiting transactions of one thread in one partition."""

    __slots__ = ("head", "memory_bytes", "size_bytes", "spooled", "tail_key", "tail_offset")

    def __init__(self) -> None:
        self.head: deque[Waiting] = deque()
        self.spooled: SpooledLane | None = None
        self.memory_bytes = 0
        self.size_bytes = 0
        self.tail_key: ReleaseKey | None = None
        self.tail_offset = -1

    def __len__(self) -> int:
        return len(self.head) + (self.spooled.count if self.spooled else 0)

    def append(self, entry: Waiting) -> None:
        # a skipped late transaction must not lower the key that later ones are checked against
        if self.tail_key is None or entry.key > self.tail_key:
            self.tail_key = entry.key
        self.tail_offset = entry.buffer.first_offset
        self.size_bytes += entry.size_bytes
        if self.spooled is not None and self.spooled.count:
            self.spooled.append([entry])
            return
        self.head.append(entry)
        self.memory_bytes += entry.memory_bytes

    def pop(self) -> Waiting:
        entry = self.head.popleft()
        self.memory_bytes -= entry.memory_bytes
        self.size_bytes -= entry.size_bytes
        if not self.head and self.spooled is not None and self.spooled.count:
            self.head.extend(self.spooled.take())
            self.memory_bytes = sum(e.memory_bytes for e in self.head)
        return entry

    def spill(self, target: SpooledLane) -> None:
        """Move all but the first to disk. Does nothing while transactions of this lane are on disk: those are later
        than the ones in memory."""
        if self.spooled is not None and self.spooled.count:
            return
        self.spooled = target
        first, *rest = self.head
        target.append(rest)
        self.head = deque((first,))
        self.memory_bytes = first.memory_bytes

    def scan(self) -> Iterator[Waiting]:
        yield from self.head
        if self.spooled is not None:
            yield from self.spooled.scan()

    def drop(self) -> None:
        for entry in self.head:
            entry.buffer.drop()
        if self.spooled is not None:
            self.spooled.drop()


class Lanes:
    """All lanes of a source, with a heap of their heads."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, int], Lane] = {}
        self._heads: list[tuple[ReleaseKey, tuple[int, int]]] = []
        #: by partition: first offsets of transactions that began before an earlier one of their lane
        self._stragglers: dict[int, list[int]] = {}
        self.count = 0

    def lane(self, partition: int, thread: int) -> Lane:
        place = (partition, thread)
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = Lane()
        return lane

    def append(self, partition: int, entry: Waiting) -> None:
        place = (partition, entry.key.thread)
        lane = self.lane(*place)
        was_empty = not lane.head
        if not was_empty and entry.buffer.first_offset < lane.tail_offset:
            self._stragglers.setdefault(partition, []).append(entry.buffer.first_offset)
        lane.append(entry)
        self.count += 1
        if was_empty:
            heapq.heappush(self._heads, (entry.key, place))

    def first(self) -> Waiting | None:
        return self.lanes[self._heads[0][1]].head[0] if self._heads else None

    def pop(self) -> Waiting:
        _, place = self._heads[0]
        lane = self.lanes[place]
        entry = lane.pop()
        self.count -= 1
        if lane.head:
            heapq.heapreplace(self._heads, (lane.head[0].key, place))
        else:
            heapq.heappop(self._heads)
        stragglers = self._stragglers.get(place[0])
        if stragglers and entry.buffer.first_offset in stragglers:
            stragglers.remove(entry.buffer.first_offset)
        return entry

    def clock_min(self) -> int | None:
        """The lowest clock of the lanes' heads. Later transactions of a lane are released after its head."""
        clocks = [lane.head[0].clock_us for lane in self.lanes.values() if lane.head]
        return min(clocks) if clocks else None

    def oldest(self, partition: int) -> tuple[int, PartitionMark | None] | None:
        """The lowest first offset of all waiting transactions of this partition, and the mark before it."""
        best: tuple[int, PartitionMark | None] | None = None
        for (where, _), lane in self.lanes.items():
            if where == partition and lane.head:
                buffer = lane.head[0].buffer
                if best is None or buffer.first_offset < best[0]:
                    best = (buffer.first_offset, buffer.mark)
        stragglers = self._stragglers.get(partition)
        if best is not None and stragglers and min(stragglers) < best[0]:
            return self._oldest_by_scan(partition)
        return best

    def _oldest_by_scan(self, partition: int) -> tuple[int, PartitionMark | None]:
        buffers = (
            entry.buffer for (where, _), lane in self.lanes.items() if where == partition for entry in lane.scan()
        )
        lowest = min(buffers, key=lambda b: b.first_offset)
        return lowest.first_offset, lowest.mark

    def find(self, partition: int, generation: int, thread: int, txid: str) -> Waiting | None:
        for entry in self.lane(partition, thread).scan():
            if entry.key.txid == txid and entry.key.generation == generation:
                return entry
        return None

    @property
    def memory_bytes(self) -> int:
        return sum(lane.memory_bytes for lane in self.lanes.values())

    @property
    def size_bytes(self) -> int:
        return sum(lane.size_bytes for lane in self.lanes.values())

    def drop(self) -> None:
        for lane in self.lanes.values():
            lane.drop()
