"""The watermark: the minimum of the marks of a source's threads, and the thread that holds it.

A thread's commits are spread over all partitions, so each mark is written to every partition and covers only the
records before it in that partition. A thread's mark is therefore the lowest over all partitions, and a partition
without marks holds the source.

A source that is captured from scratch publishes under a higher generation, and its log may have lower positions than
before. Generations are therefore compared first: a partition whose last mark is of the old generation holds the source
there. Once all partitions have marks of the new one, all transactions of the old one are below the watermark.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from lowwater.errors import MarkWentBackError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Mark, MarkedThread


class PartitionMark:
    """The combined marks of one partition up to some offset."""

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
        """Whether this mark is at least as high as the other in clock and in all threads, and higher in one of them.

        Two marks are never ahead of each other, so at least one partition is never ahead of another.
        """
        return other is None or (self._covers(other) and not other._covers(self))

    def _covers(self, other: PartitionMark) -> bool:
        if self.generation != other.generation:
            return self.generation > other.generation
        orders = self.orders
        return self.clock_us >= other.clock_us and all(
            orders.get(thread, ORDER_MIN) >= order for thread, order in other.orders.items()
        )

    def followed_by(self, mark: Mark, source: str, partition: int) -> PartitionMark:
        """This mark combined with the next one of the partition. Raises MarkWentBackError if that is lower.

        The first marks of a new epoch may be lower: the last Kafka transaction of the previous epoch may have been
        committed without confirmation to the extractor. Its marks remain valid, so the higher of both is used; `epoch`
        stays at the old one until the new epoch's marks have caught up, because until then they may be lower.

        A new generation reads another log: only the clock continues, and it may start lower for the same reason.
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
        """The first difference in which `new` is lower than this mark: the thread, and a description."""
        for thread, order in self.orders.items():
            if thread not in new.orders:
                return thread, "a mark without this thread after marks with it"
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
        hint="if two extractors with different logs run under one source name, stop one, then restart the merger",
    )


class Watermark(NamedTuple):
    """The order up to which a source may be released, and the thread and partition that hold it there."""

    order: Order
    thread: int | None
    partition: int | None
    generation: int = 0


def lowest_generation(partitions: list[PartitionMark | None]) -> int:
    """The lowest generation of all marks. A partition with a later one does not hold transactions of this one."""
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
    """The minimum over all threads that are not excluded. A thread in the marks of one partition counts in all."""
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
    """The lowest clock over the partitions' marks; None while a partition has no mark."""
    clocks = [mark.clock_us for mark in partitions if mark is not None]
    return min(clocks) if len(clocks) == len(partitions) else None
