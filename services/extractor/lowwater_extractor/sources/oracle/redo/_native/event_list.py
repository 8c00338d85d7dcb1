# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Events, one by one, of what was found side by side. Compiled as `walk` is, with the C types of `event_list.pxd`."""

from __future__ import annotations

Buffer = memoryview


def list_events(
    memory: bytearray,
    heads: bytes,
    head_size: int,
    scn: Buffer,
    container: Buffer,
    low: Buffer,
    code: Buffer,
    place: Buffer,
    start: Buffer,
    stop: Buffer,
) -> list[tuple[int, int, int, int, bytes]]:
    """(SCN, xid, code, place, data); the data is a head and the payload from `start` to `stop`, which lie in it."""
    events: list[tuple[int, int, int, int, bytes]] = []
    xid: int = -1
    for row in range(len(scn)):
        # one after the other they are mostly of the same transaction
        if xid < 0 or low[row] != low[row - 1] or container[row] != container[row - 1]:
            high: int = container[row]
            xid = high << 64 | low[row]
        data = heads[row * head_size : (row + 1) * head_size]
        if stop[row] > start[row]:
            data = data + memory[start[row] : stop[row]]
        events.append((scn[row], xid, code[row], place[row], data))
    return events
