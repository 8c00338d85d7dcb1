"""The source's clock: by it, databases share an order without breaking their own."""

from __future__ import annotations

from math import nan


class SourceClock:
    """Commit time, but never at or below what was published or marked, and not far past our own clock."""

    def __init__(self, last_us: int, ahead_max_us: int) -> None:
        self.last_us = last_us
        self._ahead_max_us = ahead_max_us
        #: commit times that claimed to be from the future: a session can lie about time
        self.cut_total = 0

    def of_commit(self, commit_ts_us: int, now_us: int) -> int:
        clock_us = commit_ts_us
        if clock_us > now_us + self._ahead_max_us:
            clock_us = now_us + self._ahead_max_us
            self.cut_total += 1
        # where the two disagree, never falling wins
        self.last_us = max(clock_us, self.last_us + 1)
        return self.last_us

    def age_seconds(self, now_us: int) -> float:
        """How far the source is behind; not known before its first mark."""
        return max(0.0, (now_us - self.last_us) / 1e6) if self.last_us else nan

    def of_mark(self, all_at_end: bool, now_us: int) -> int:
        """Our own time says something about a source only once all that it has written has been read."""
        if all_at_end:
            self.last_us = max(self.last_us, now_us)
        return self.last_us
