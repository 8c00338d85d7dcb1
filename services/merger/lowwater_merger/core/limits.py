"""What is not read while too much waits, such that nothing can wait for itself."""

from __future__ import annotations

from collections.abc import Collection

from lowwater_merger.core.release import SourceState, lowest


def pauses(sources: Collection[SourceState], is_full: bool) -> set[tuple[str, int]]:
    """Partitions not to be read now: only ones whose reading cannot free anything.

    Sources that are stopped or out. Then, while buffers are full, whole sources that do not hold the group; and
    in the holder's, partitions that are ahead of another one: all that the lower mark can free has been read
    there. Any other pause could wait for a mark that lies behind itself.
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
            # ahead in all: one that is ahead in its clock and behind in a thread may be the one that holds
            if mark is not None and any(mark.is_ahead_of(other) for other in state.marks):
                paused.add((state.name, p))
    return paused
