"""Which transaction is next: first inside each source, then between the sources of the group.

Inside a source, transactions are released by key (generation, order, thread, txid), up to the source's watermark.
Between sources they are released by clock, because positions of different databases cannot be compared. Each source has
a floor, the lowest clock that it can still release. A transaction is released once its clock is below the floors of all
other sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from lowwater.errors import MergeError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import PartitionProgress, ReleasedThread, Skip, SourceProgress
from lowwater_merger.core.lanes import Lanes, ManyIds, ReleaseKey, Waiting
from lowwater_merger.core.watermark import PartitionMark, Watermark, mark_clock, watermark


class Floor(NamedTuple):
    """Compared as a pair, so that sources with equal clocks have a defined order."""

    clock_us: int
    source: str


class Last(NamedTuple):
    """The last released transaction of a thread."""

    generation: int
    order: Order
    txid: str


class SourceState:
    """The merger's state of one source."""

    def __init__(self, name: str, saved: SourceProgress) -> None:
        self.name = name
        #: by partition: the progress written last; a stopped source is read again from here
        self.saved: dict[int, PartitionProgress] = {p.partition: p for p in saved.partitions}
        self.marks: list[PartitionMark | None] = [
            PartitionMark.of(p.mark) if p.mark else None for p in sorted(saved.partitions, key=lambda p: p.partition)
        ]
        #: by partition: the offset after the last commit or mark read; and the partitions that have not been read up to
        #: that offset again since a restart
        self.heard: dict[int, int] = {p.partition: p.heard for p in saved.partitions}
        self.behind: set[int] = {p.partition for p in saved.partitions if p.heard > p.offset}
        self.lanes = Lanes()
        self.clock_us = saved.clock_us
        self.last_key = ReleaseKey(saved.generation, saved.order, saved.thread, saved.txid)
        #: every thread that was ever in a mark, with its last released transaction
        self.released: dict[int, Last] = {t.thread: Last(t.generation, t.order, t.txid) for t in saved.threads}
        self.excluded: set[int] = set(saved.excluded)
        self.joined_gsn = saved.joined_gsn
        self.topic_id = saved.topic_id
        #: by thread and id: the operator's request, and the waiting transaction that it applies to
        self.skips: dict[tuple[int, str], Skip] = {}
        self.skipping: dict[tuple[int, str], ReleaseKey] = {}
        #: hashes of the ids of all waiting transactions; once there are many, older ones are packed
        self.waiting_ids: set[int] = set()
        self.packed_ids: ManyIds | None = None
        self.error: MergeError | None = None
        self._floor: tuple[Floor, Waiting | None] | None = None
        self._watermark: Watermark | None = None

    def restored(self) -> SourceState:
        """A new state at the last written progress, but with the releases and the `heard` offsets since then."""
        return SourceState(self.name, self.progress({p: s.offset for p, s in self.saved.items()}, keep=True))

    @property
    def threads(self) -> set[int]:
        """All threads that were ever in a mark. Not reduced when the source is reset to its last progress."""
        return set(self.released)

    @property
    def generation(self) -> int:
        """The newest generation that was marked or released."""
        of_marks = (mark.generation for mark in self.marks if mark is not None)
        return max([self.last_key.generation, *of_marks, *(last.generation for last in self.released.values())])

    @property
    def is_out(self) -> bool:
        """Whether all threads of the newest generation are excluded: the group then continues without this source."""
        return bool(self.excluded) and bool(self.released) and self._live_threads() <= self.excluded

    def _live_threads(self) -> set[int]:
        newest = max((mark.generation for mark in self.marks if mark is not None), default=0)
        named = {t for mark in self.marks if mark is not None and mark.generation == newest for t in mark.orders}
        return named | {thread for thread, last in self.released.items() if last.generation >= newest}

    @property
    def is_read(self) -> bool:
        return self.error is None and not self.is_out

    def watermark(self) -> Watermark:
        if self._watermark is None:
            self._watermark = watermark(self.marks, self.excluded)
        return self._watermark

    def marked(self, partition: int, mark: PartitionMark) -> None:
        self.marks[partition] = mark
        for thread in mark.orders:
            self.released.setdefault(thread, Last(mark.generation, ORDER_MIN, ""))
        self._watermark = self._floor = None

    def hear(self, partition: int, offset: int) -> None:
        """Record that the commit or mark at this offset has been read."""
        if offset >= self.heard[partition] - 1:
            self.heard[partition] = offset + 1
            if partition in self.behind:
                self.behind.discard(partition)
                self.touched()

    def reconsider(self) -> None:
        """Compute the watermark again after a change of the excluded threads."""
        self._watermark = self._floor = None

    def touched(self) -> None:
        """Compute the floor again at its next use."""
        self._floor = None

    def floor(self) -> tuple[Floor, Waiting | None]:
        """The lowest clock that this source can still release, and its first transaction if that can be released."""
        if self._floor is None:
            self._floor = self._find_floor()
        return self._floor

    def _find_floor(self) -> tuple[Floor, Waiting | None]:
        lowest = self.clock_us + 1
        # marks of an excluded thread do not hold the watermark: transactions of it that waited before a restart must
        # be read again before a later transaction is released
        if self.error is not None or (self.excluded and self.behind):
            return Floor(lowest, self.name), None
        first = self.lanes.first()
        if first is not None and self._is_below_watermark(first.key):
            return Floor(max(first.clock_us, lowest), self.name), first
        clock = mark_clock(self.marks)
        waiting = self.lanes.clock_min()
        if clock is None:
            return Floor(lowest, self.name), None
        floor = clock + 1 if waiting is None else min(clock + 1, waiting)
        return Floor(max(lowest, floor), self.name), None

    def _is_below_watermark(self, key: ReleaseKey) -> bool:
        watermark = self.watermark()
        return (key.generation, key.order) <= (watermark.generation, watermark.order)

    def was_released(self, key: ReleaseKey) -> bool:
        """Whether the transaction already has a gsn. After the first release of a later generation, all transactions of
        earlier generations count as released."""
        if key.generation < self.last_key.generation:
            return True
        last = self.released.get(key.thread)
        return last is not None and (key.generation, key.order, key.txid) <= last

    def skip_of(self, key: ReleaseKey) -> Skip | None:
        """The operator's request to skip this transaction, or None. One request applies to one transaction."""
        skip = self.skips.get((key.thread, key.txid))
        if skip is None or skip.order not in ("", str(key.order)):
            return None
        return skip if self.skipping.setdefault((key.thread, key.txid), key) == key else None

    def use_skip(self, key: ReleaseKey) -> Skip:
        """Remove and return the request: it does not apply to another transaction with this id."""
        del self.skipping[key.thread, key.txid]
        return self.skips.pop((key.thread, key.txid))

    def is_waiting(self, id_hash: int) -> bool:
        return id_hash in self.waiting_ids or (self.packed_ids is not None and id_hash in self.packed_ids)

    def pack_ids(self, count_max: int) -> None:
        """Pack ids to save memory: millions of transactions may wait for a stalled thread, and their ids stay in memory
        when they are spooled."""
        if len(self.waiting_ids) <= count_max:
            return
        self.packed_ids = self.packed_ids or ManyIds()
        for id_hash in self.waiting_ids:
            self.packed_ids.add(id_hash)
        self.waiting_ids.clear()

    def pop(self, clock_us: int) -> Waiting:
        entry = self.lanes.pop()
        self.waiting_ids.discard(entry.id_hash)
        if self.packed_ids is not None:
            self.packed_ids.discard(entry.id_hash)
            if not self.lanes.count:
                self.packed_ids = None
        self.clock_us = clock_us
        # a skipped late transaction must not lower the last released key
        key = entry.key
        last = Last(key.generation, key.order, key.txid)
        self.released[key.thread] = max(last, self.released.get(key.thread, last))
        self.last_key = max(self.last_key, key)
        self._floor = None
        return entry

    def progress(
        self, positions: Mapping[int, int], open_from: Mapping[int, tuple[int, PartitionMark | None]] | None = None,
        *, keep: bool = False,
    ) -> SourceProgress:  # fmt: skip
        """The progress needed to continue from here. `keep`: with the partition offsets written last."""
        if not keep and self.is_read:
            for partition, mark in enumerate(self.marks):
                needed = [(positions[partition], mark)]
                oldest = self.lanes.oldest(partition)
                if oldest is not None:
                    needed.append(oldest)
                if open_from and partition in open_from:
                    needed.append(open_from[partition])
                offset, before = min(needed, key=lambda n: n[0])
                last = self.saved[partition]
                if offset > last.offset:
                    record = before.record() if before else None
                    self.saved[partition] = PartitionProgress(partition, offset, record, self.heard[partition])
        # `heard` advances even with `keep`: waiting transactions of an excluded thread must be read again before a
        # later transaction is released
        for partition, last in self.saved.items():
            if self.heard[partition] > last.heard:
                self.saved[partition] = replace(last, heard=self.heard[partition])
        threads = (
            ReleasedThread(t, last.order, last.txid, last.generation) for t, last in sorted(self.released.items())
        )
        return SourceProgress(
            source=self.name,
            clock_us=self.clock_us,
            order=self.last_key.order,
            thread=self.last_key.thread,
            txid=self.last_key.txid,
            joined_gsn=self.joined_gsn,
            threads=tuple(threads),
            partitions=tuple(self.saved[p] for p in sorted(self.saved)),
            excluded=tuple(sorted(self.excluded)),
            topic_id=self.topic_id,
            generation=self.last_key.generation,
        )


def lowest(sources: Iterable[SourceState]) -> tuple[Floor, SourceState, Waiting | None] | None:
    """The source with the lowest floor. Its transaction is released next; if it has none ready, it holds the group."""
    best: tuple[Floor, SourceState, Waiting | None] | None = None
    for source in sources:
        if source.is_out:
            continue
        floor, entry = source.floor()
        if best is None or floor < best[0]:
            best = (floor, source, entry)
    return best
