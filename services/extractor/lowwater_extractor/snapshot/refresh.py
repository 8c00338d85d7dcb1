"""The mode `full_refresh`, for every source kind: only whole tables are read.

Tables are copied as those of any source, in chunks by Spark tasks, but there is no log. So the stream has only marks,
which follow the clock, and a copy is readable from the mark on that was current when all of its chunks had landed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError
from lowwater.records.positions import Order
from lowwater.runtime.times import now_us
from lowwater_extractor.api import Polled, ThreadMark, ThreadState

THREAD = 1


class RefreshStream:
    """A `WindowStream` without changes."""

    def __init__(self, resume: bytes | None, now: Callable[[], int] = now_us) -> None:
        self._now = now
        self._at = _at(resume) if resume is not None else now()
        self.seen: dict[str, TableSchema] = {}

    def poll(self, held: frozenset[int]) -> Polled:
        # a mark must not go back when the clock is set back
        self._at = max(self._at, self._now())
        resume = json.dumps({"refresh": self._at}).encode()
        return Polled([], {THREAD: ThreadMark(THREAD, Order.mark(self._at), resume, ThreadState.OPEN, at_end=True)})

    def end_of_log(self) -> Callable[[], Order | None]:
        end = Order.mark(self._at)
        return lambda: end

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """There is no log to discard."""

    def close(self) -> None:
        """There is nothing to close."""


def _at(resume: bytes) -> int:
    try:
        return int(json.loads(resume)["refresh"])
    except (ValueError, TypeError, KeyError) as error:
        raise CodecError(
            "the position is not one of the mode `full_refresh`",
            hint="the mode of a source cannot be changed: add a source with another name for the other mode",
        ) from error
