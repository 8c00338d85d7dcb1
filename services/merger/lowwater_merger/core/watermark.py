"""The watermark: the minimum of the marks of a source's threads, and who holds it.

A mark goes to every partition, because a thread's commits are spread over all of them: it speaks only for
what lies before it in its own partition. So a thread's mark is the lowest over the partitions, and a
partition that is silent holds everything.

A source whose capture started from scratch publishes under a higher generation, and its log may have lower positions
than the one before. So the generation leads: a partition that still has the old one holds the source there, and once
all partitions have the new one, everything of the old one is below the watermark.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from lowwater.errors import MarkWentBackError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Mark, MarkedThread


class PartitionMark:
    """What one partition's marks have said up to some offset."""

    __slots__ = ("clock_us", "epoch", "generation", "orders", "states")

    def __init__(
        self, epoch: int, clock_us: int, orders: dict[int, Order], states: dict[int, str], generation: int = 0
    ) -> None:
        self.epoch = epoch
        self.generation = generation
        self.clock_us = clock_us
        self.orders = orders
        self.states = states

    @classmethod
    def of(cls, mark: Mark) -> PartitionMark:
        orders = {t.thread: t.order for t in mark.threads}
        states = {t.thread: t.state for t in mark.threads}
        return cls(mark.epoch, mark.clock_us, orders, states, mark.generation)

    def record(self) -> Mark:
        threads = (MarkedThread(t, order, self.states[t]) for t, order in sorted(self.orders.items()))
        return Mark(self.epoch, self.clock_us, tuple(threads), self.generation)

    def is_ahead_of(self, other: PartitionMark | None) -> bool:
        """All that the other has said was said here too, and more. Never both ways: so one is always behind."""
        return other is None or (self._covers(other) and not other._covers(self))

    def _covers(self, other: PartitionMark) -> bool:
        if self.generation != other.generation:
            return self.generation > other.generation
        orders = self.orders
        return self.clock_us >= other.clock_us and all(
            orders.get(thread, ORDER_MIN) >= order for thread, order in other.orders.items()
        )

    def followed_by(self, mark: Mark, source: str, partition: int) -> PartitionMark:
        """The next mark of this partition.

        A new epoch may begin lower: its predecessor's last Kafka transaction may have become visible although
        it was never told so. What that one said still holds, so the higher of both counts; and `epoch` stays the
        one that said it until the new one has said as much, because until then its marks may be lower.

        A new generation reads another log: only the clock goes on, and may begin lower for the same reason.
        """
        if mark.generation < self.generation:
            raise _went_back(source, None, partition, f"generation {mark.generation} after {self.generation}")
        new = PartitionMark.of(mark)
        if mark.generation > self.generation:
            if new.clock_us < self.clock_us:
                new.clock_us, new.epoch = self.clock_us, mark.epoch - 1
            return new
        if mark.epoch < self.epoch:
            raise _went_back(source, None, partition, f"epoch {mark.epoch} after {self.epoch}")
        lower = self._lower_in(new)
        if lower is None:
            return new
        thread, what = lower
        if mark.epoch == self.epoch:
            raise _went_back(source, thread, partition, what)
        orders = {t: max(order, self.orders.get(t, order)) for t, order in {**self.orders, **new.orders}.items()}
        clock_us = max(self.clock_us, new.clock_us)
        return PartitionMark(self.epoch, clock_us, orders, {**self.states, **new.states}, self.generation)

    def _lower_in(self, new: PartitionMark) -> tuple[int | None, str] | None:
        """The first thing in which another mark is lower than this one: the thread, and what."""
        for thread, order in self.orders.items():
            if thread not in new.orders:
                return thread, "a mark that no longer names this thread"
            if new.orders[thread] < order:
                return thread, f"mark {new.orders[thread]} after {order}"
        if new.clock_us < self.clock_us:
            return None, f"clock {new.clock_us} after {self.clock_us}"
        return None


def _went_back(source: str, thread: int | None, partition: int, what: str) -> MarkWentBackError:
    return MarkWentBackError(
        f"partition {partition}: {what}",
        source=source,
        thread=thread,
        hint="two extractors with different logs behind one source name? stop one, then restart the merger",
    )


class Watermark(NamedTuple):
    """How far a source may be released, and the thread and partition that hold it there."""

    order: Order
    thread: int | None
    partition: int | None
    generation: int = 0


def lowest_generation(partitions: list[PartitionMark | None]) -> int:
    """Of the marks that there are. A partition with a later one holds nothing of this one back."""
    return min((mark.generation for mark in partitions if mark is not None), default=0)


def thread_mark(thread: int, partitions: list[PartitionMark | None]) -> tuple[Order, int]:
    """A thread's mark in the lowest generation, and the partition where it is lowest."""
    generation = lowest_generation(partitions)
    lowest: tuple[Order, int] | None = None
    for number, mark in enumerate(partitions):
        if mark is not None and mark.generation > generation:
            continue
        order = ORDER_MIN if mark is None else mark.orders.get(thread, ORDER_MIN)
        if lowest is None or order < lowest[0]:
            lowest = (order, number)
    assert lowest is not None
    return lowest


def watermark(partitions: list[PartitionMark | None], excluded: Set[int]) -> Watermark:
    """The minimum over the threads that count. A thread known to one partition counts in all of them."""
    for number, mark in enumerate(partitions):
        if mark is None:
            return Watermark(ORDER_MIN, None, number)
    generation = lowest_generation(partitions)
    here = [mark for mark in partitions if mark is not None and mark.generation == generation]
    lowest: Watermark | None = None
    for thread in sorted({thread for mark in here for thread in mark.orders} - excluded):
        order, partition = thread_mark(thread, partitions)
        if lowest is None or order < lowest.order:
            lowest = Watermark(order, thread, partition, generation)
    return lowest or Watermark(ORDER_MIN, None, None, generation)


def mark_clock(partitions: list[PartitionMark | None]) -> int | None:
    """The clock that every partition has been marked with; None while one has not."""
    clocks = [mark.clock_us for mark in partitions if mark is not None]
    return min(clocks) if len(clocks) == len(partitions) else None
