"""Rules that look right and are not, planted into the core or the extractor: the checker must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

import pytest

from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import SourceProgress
from lowwater_merger import spool
from lowwater_merger.core import merger as core
from lowwater_merger.core import release
from lowwater_merger.core.lanes import ReleaseKey, Waiting
from lowwater_merger.core.merger import Merger
from lowwater_merger.core.release import Floor, Last, SourceState
from lowwater_merger.core.watermark import PartitionMark, Watermark, mark_clock, watermark

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class WrongRule:
    test_name: str
    plant: Plant
    #: this one is the extractor's
    lwn_scn_is_mark: bool = False


def _without_late_check(patch: pytest.MonkeyPatch) -> None:
    """So that it is the order itself that gives the rule away, not the core's own guard."""
    patch.setattr(core, "check_place", lambda *_: None)


def _nothing(_patch: pytest.MonkeyPatch) -> None:
    pass


def _silent_partition_ignored(patch: pytest.MonkeyPatch) -> None:
    """A mark seen in any partition is taken to speak for all of them."""

    def wrong(partitions: list[PartitionMark | None], excluded: Set[int]) -> Watermark:
        heard = [mark for mark in partitions if mark is not None]
        threads = {thread for mark in heard for thread in mark.orders} - excluded
        highest = [(max(m.orders.get(t, ORDER_MIN) for m in heard), t) for t in sorted(threads)]
        generation = max((m.generation for m in heard), default=0)
        return Watermark(min(highest)[0] if highest else ORDER_MIN, None, None, generation)

    patch.setattr(release, "watermark", wrong)


def _silent_partition_ignored_at_start(patch: pytest.MonkeyPatch) -> None:
    """A partition without any mark yet is left out of the minimum."""

    def wrong(partitions: list[PartitionMark | None], excluded: Set[int]) -> Watermark:
        return watermark([mark for mark in partitions if mark is not None], excluded)

    patch.setattr(release, "watermark", wrong)


class _LooseKey(ReleaseKey):
    """Equal commit SCNs are equal, so that arrival decides between them."""

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self[:2] < _order_of(other)

    def __le__(self, other: tuple[object, ...]) -> bool:
        return self[:2] <= _order_of(other)

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return self[:2] > _order_of(other)


def _order_of(key: tuple[object, ...]) -> tuple[int, Order]:
    generation, order, *_ = key
    assert isinstance(generation, int)
    assert isinstance(order, Order)
    return generation, order


def _no_tie_break(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core, "ReleaseKey", _LooseKey)
    patch.setattr(spool, "ReleaseKey", _LooseKey)


def _groups_by_the_marks_clocks_alone(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: SourceState) -> tuple[Floor, Waiting | None]:
        lowest = self.clock_us + 1
        first = self.lanes.first()
        if self.error is None and first is not None and self._is_below_watermark(first.key):
            return Floor(max(first.clock_us, lowest), self.name), first
        return Floor(max(lowest, (mark_clock(self.marks) or 0) + 1), self.name), None

    patch.setattr(SourceState, "_find_floor", wrong)


def _closed_thread_dropped(patch: pytest.MonkeyPatch) -> None:
    def wrong(partitions: list[PartitionMark | None], excluded: Set[int]) -> Watermark:
        closed = {t for m in partitions if m is not None for t, state in m.states.items() if state == "closed"}
        found = watermark(partitions, set(excluded) | closed)
        return found if found.thread is not None else watermark(partitions, excluded)

    patch.setattr(release, "watermark", wrong)


def _progress_with_the_newest_mark(patch: pytest.MonkeyPatch) -> None:
    right = SourceState.progress

    def wrong(
        self: SourceState, positions: Mapping[int, int],
        open_from: Mapping[int, tuple[int, PartitionMark | None]] | None = None, *, keep: bool = False,
    ) -> SourceProgress:  # fmt: skip
        progress = right(self, positions, open_from, keep=keep)
        marks = [mark.record() if mark is not None else None for mark in self.marks]
        return replace(progress, partitions=tuple(replace(p, mark=marks[p.partition]) for p in progress.partitions))

    patch.setattr(SourceState, "progress", wrong)


def _released_are_not_dropped(patch: pytest.MonkeyPatch) -> None:
    right = Merger.from_progress

    def wrong(*args: object) -> Merger:
        merger = right(*args)  # type: ignore[arg-type]
        for state in merger.sources.values():
            state.released = dict.fromkeys(state.released, Last(0, ORDER_MIN, ""))
        return merger

    patch.setattr(Merger, "from_progress", wrong)


def _generation_ignored(patch: pytest.MonkeyPatch) -> None:
    """What a source publishes after a reset is compared with what it published before by its order alone."""

    def wrong(self: SourceState, key: ReleaseKey) -> bool:
        last = self.released.get(key.thread)
        return last is not None and (key.order, key.txid) <= last[1:]

    patch.setattr(SourceState, "was_released", wrong)


def _both(*plants: Plant) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return plant


def _unguarded(name: str, plant: Plant, *, lwn_scn_is_mark: bool = False) -> tuple[WrongRule, WrongRule]:
    return (
        WrongRule(name, plant, lwn_scn_is_mark),
        WrongRule(f"{name}_unguarded", _both(plant, _without_late_check), lwn_scn_is_mark),
    )


WRONG_RULES = (
    *_unguarded("lwn_scn_itself_as_mark", _nothing, lwn_scn_is_mark=True),
    *_unguarded("silent_partition_ignored", _silent_partition_ignored),
    *_unguarded("silent_partition_ignored_at_start", _silent_partition_ignored_at_start),
    WrongRule("no_tie_break", _no_tie_break),
    WrongRule("generation_ignored", _generation_ignored),
    WrongRule("groups_by_the_marks_clocks_alone", _groups_by_the_marks_clocks_alone),
    *_unguarded("closed_thread_dropped", _closed_thread_dropped),
    WrongRule("progress_with_the_newest_mark", _progress_with_the_newest_mark),
    *_unguarded("released_are_not_dropped", _released_are_not_dropped),
)
