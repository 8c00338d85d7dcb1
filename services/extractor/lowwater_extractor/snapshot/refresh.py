"""The mode `full_refresh`: a source of which nothing but whole tables is read. For every kind.

Its tables are copied as those of any source are, in chunks by Spark's tasks; there is no log behind them. So the stream
has marks alone, which go with the time, and a copy counts from the mark on that stood when all of it had landed.
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
    """A `WindowStream` in which no change ever comes."""

    def __init__(self, resume: bytes | None, now: Callable[[], int] = now_us) -> None:
        self._now = now
        self._at = _at(resume) if resume is not None else now()
        self.seen: dict[str, TableSchema] = {}

    def poll(self, held: frozenset[int]) -> Polled:
        # a clock that was set back must not take a mark with it
        self._at = max(self._at, self._now())
        resume = json.dumps({"refresh": self._at}).encode()
        return Polled([], {THREAD: ThreadMark(THREAD, Order.mark(self._at), resume, ThreadState.OPEN, at_end=True)})

    def end_of_log(self) -> Callable[[], Order | None]:
        end = Order.mark(self._at)
        return lambda: end

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """Nobody keeps anything for it."""

    def close(self) -> None:
        """Nothing is open."""


def _at(resume: bytes) -> int:
    try:
        return int(json.loads(resume)["refresh"])
    except (ValueError, TypeError, KeyError) as error:
        raise CodecError(
            "the position is not one of the mode `full_refresh`",
            hint="the mode of a source cannot be changed: add a source with another name for the other mode",
        ) from error
