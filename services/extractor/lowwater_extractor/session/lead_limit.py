"""The lead limit: a thread that is too far ahead of the other threads is not read until they have caught up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set

from lowwater.records.positions import Order


class LeadLimit:
    """Counts the bytes that each thread has published above the lowest mark, which the merger must buffer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._ahead: dict[int, deque[tuple[Order, int]]] = {}
        self._lead: dict[int, int] = {}

    def published(self, thread: int, order: Order, size_bytes: int) -> None:
        ahead = self._ahead.setdefault(thread, deque())
        # one entry per 64th of the limit is precise enough, and bounds the list
        if ahead and ahead[-1][1] + size_bytes <= self._bytes_max // 64:
            ahead[-1] = (order, ahead[-1][1] + size_bytes)
        else:
            ahead.append((order, size_bytes))
        self._lead[thread] = self._lead.get(thread, 0) + size_bytes

    def held(self, marks: Mapping[int, Order], excluded: Set[int]) -> frozenset[int]:
        """Return the threads that must not be read now. The thread with the lowest mark is always read."""
        counted = {thread: order for thread, order in marks.items() if thread not in excluded}
        if not counted:
            return frozenset()
        lowest = min(counted.values())
        for thread, ahead in self._ahead.items():
            while ahead and ahead[0][0] <= lowest:
                self._lead[thread] -= ahead.popleft()[1]
        holders = {thread for thread, order in counted.items() if order == lowest}
        return frozenset(t for t, lead in self._lead.items() if lead > self._bytes_max and t not in holders)

    def lead_bytes(self, thread: int) -> int:
        return self._lead.get(thread, 0)
