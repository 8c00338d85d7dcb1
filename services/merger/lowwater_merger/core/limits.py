"""Which partitions are paused while buffers are full. A pause must never cause a deadlock."""

from __future__ import annotations

from collections.abc import Collection

from lowwater_merger.core.release import SourceState, lowest


def pauses(sources: Collection[SourceState], is_full: bool) -> set[tuple[str, int]]:
    """Partitions to pause: only those in which no unread record can release a waiting transaction.

    Always: all partitions of sources that are stopped or excluded. While buffers are full, also all partitions of
    sources that do not hold the group, and in the source that holds it, partitions whose mark is ahead of another
    partition's: every transaction that the lower mark can release has been read there. Pausing any other partition
    could deadlock: its next mark may be the one that the group waits for.
    """
    paused = {(state.name, p) for state in sources if not state.is_read for p in state.saved}
    best = lowest(sources)
    if not is_full or best is None:
        return paused
    for state in sources:
        if state is not best[1]:
            paused |= {(state.name, p) for p in state.saved}
            continue
        for p, mark in enumerate(state.marks):
            # ahead in clock and all threads: one ahead in clock only may hold the group with a lower thread mark
            if mark is not None and any(mark.is_ahead_of(other) for other in state.marks):
                paused.add((state.name, p))
    return paused
