# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Converts columns of events to a list of events. Compiled with the C types of `event_list.pxd`."""

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
    """Return tuples (SCN, xid, code, place, data); data is the event's head and the bytes `start` to `stop` of memory.

    `start` and `stop` must be inside of `memory`: they are not checked.
    """
    events: list[tuple[int, int, int, int, bytes]] = []
    xid: int = -1
    for row in range(len(scn)):
        # consecutive events are mostly of the same transaction
        if xid < 0 or low[row] != low[row - 1] or container[row] != container[row - 1]:
            high: int = container[row]
            xid = high << 64 | low[row]
        data = heads[row * head_size : (row + 1) * head_size]
        if stop[row] > start[row]:
            data = data + memory[start[row] : stop[row]]
        events.append((scn[row], xid, code[row], place[row], data))
    return events
