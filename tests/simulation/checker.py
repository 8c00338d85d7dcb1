"""The promises P1 to P5, checked on what a run left in the ordered topic."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.extractor import values_of
from tests.simulation.memory_spool import MemorySpool
from tests.simulation.order import Group
from tests.simulation.schedule import Landed, Run, SimulationError

Name = tuple[str, int, int, str]


def check(group: Group, run: Run) -> None:
    landed = run.landed
    _check_whole(group, landed)
    _check_sequence(landed)
    _check_once(landed)
    _check_nothing_missing(group, run)
    _check_same(group, landed)
    _check_words(group, run)
    _check_nothing_left_behind(run)


def _name(landed: Landed) -> Name:
    return (landed.source, landed.generation, landed.thread, landed.txid)


def _check_whole(group: Group, landed: Sequence[Landed]) -> None:
    """P1: each transaction with exactly its changes, in their order; skipped ones with none."""
    known = {(t.source, t.generation, t.thread, t.txid): t for t in group.expected}
    for item in landed:
        transaction = known.get(_name(item))
        if transaction is None:
            raise SimulationError(f"P1: {_name(item)} was never committed")
        if (item.values is None) != ((item.source, item.thread, item.txid) in group.skips):
            raise SimulationError(f"P1: {_name(item)} is skipped: {item.values is None}")
        if item.values is not None and list(item.values) != values_of(transaction):
            raise SimulationError(f"P1: {_name(item)} is torn: {item.values}")


def _check_sequence(landed: Sequence[Landed]) -> None:
    """P2: gapless, and in each source by (generation, order, thread, txid), which keeps the order of every thread."""
    last: dict[str, tuple[object, ...]] = {}
    for number, item in enumerate(landed, start=1):
        if item.gsn != number:
            raise SimulationError(f"P2: gsn {item.gsn} at place {number}")
        key = (item.generation, item.order, item.thread, item.txid)
        if item.source in last and key < last[item.source]:
            raise SimulationError(f"P2: {item.source}: {key} after {last[item.source]}")
        last[item.source] = key


def _check_once(landed: Sequence[Landed]) -> None:
    """P3"""
    seen: set[Name] = set()
    for item in landed:
        if _name(item) in seen:
            raise SimulationError(f"P3: {_name(item)} landed twice")
        seen.add(_name(item))


def _check_nothing_missing(group: Group, run: Run) -> None:
    """P4: all marks are final, so all there is must have come out."""
    if len(run.landed) < len(group.expected):
        held = run.merger.holder()
        by = f"{held[1].name} at {held[1].watermark()}, floor {held[0]}" if held else "nobody"
        paused = run.merger.pauses(run.size_bytes_max)
        raise SimulationError(
            f"P4: {len(run.landed)} of {len(group.expected)} landed; held by {by}, paused {sorted(paused)}"
        )


def _check_same(group: Group, landed: Sequence[Landed]) -> None:
    """P5: the one order, whatever the arrival and the restarts."""
    for item, transaction in zip(landed, group.expected, strict=True):
        wanted = (transaction.source, transaction.generation, transaction.thread, transaction.txid)
        if _name(item) != wanted:
            raise SimulationError(f"P5: gsn {item.gsn} is {_name(item)}, elsewhere it is {wanted}")


def _check_words(group: Group, run: Run) -> None:
    """Every operator's word is recorded, with the gsn at which it took effect."""
    said = {(w.gsn, w.word, w.source, w.thread, w.txid) for w in run.merger.words}
    wanted = {(w.gsn, w.kind.value, w.source, w.thread, "") for w in group.words}
    wanted |= {(item.gsn, "skip", item.source, item.thread, item.txid) for item in run.landed if item.values is None}
    if said != wanted or len(run.merger.words) != len(said):
        raise SimulationError(f"words: {sorted(said ^ wanted)}")


def _check_nothing_left_behind(run: Run) -> None:
    """P6, the part of it that shows here: all that was taken is given back."""
    merger = run.merger
    if merger.open_count or merger.size_bytes or merger.memory_bytes:
        raise SimulationError(f"left: {merger.open_count} open, {merger.size_bytes} bytes")
    left = len(run.spool.live) if isinstance(run.spool, MemorySpool) else run.spool and run.spool.size_bytes
    if left:
        raise SimulationError(f"left in the spool: {left}")
