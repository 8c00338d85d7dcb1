"""The source's clock, which orders the commits of several databases and preserves the commit order of each."""

from __future__ import annotations

from math import nan


class SourceClock:
    """The commit time, but always above the last published or marked one, and at most `ahead_max_us` in the future."""

    def __init__(self, last_us: int, ahead_max_us: int) -> None:
        self.last_us = last_us
        self._ahead_max_us = ahead_max_us
        #: number of commit times that were cut because they were in the future: a database session can set its time
        self.cut_total = 0

    def of_commit(self, commit_ts_us: int, now_us: int) -> int:
        clock_us = commit_ts_us
        if clock_us > now_us + self._ahead_max_us:
            clock_us = now_us + self._ahead_max_us
            self.cut_total += 1
        # the clock must rise, even if that exceeds the limit
        self.last_us = max(clock_us, self.last_us + 1)
        return self.last_us

    def age_seconds(self, now_us: int) -> float:
        """Return the lag of the source in seconds; NaN before its first mark."""
        return max(0.0, (now_us - self.last_us) / 1e6) if self.last_us else nan

    def of_mark(self, all_at_end: bool, now_us: int) -> int:
        """Return the clock of a mark. Only if all threads have been read to their end is it the local time."""
        if all_at_end:
            self.last_us = max(self.last_us, now_us)
        return self.last_us
