"""Writes the log lines of librdkafka to our log, at a limited rate.

While a broker is down, each client repeats the same line several times a second, in every process.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import structlog

#: maximum number of lines of the same facility and level in each period
LINES_MAX = 3
PERIOD_SECONDS = 30.0

_log = structlog.get_logger()


class _Period:
    __slots__ = ("began", "count")

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0


class ClientLog(logging.Handler):
    """Called by the client inside `poll`, `consume` and `flush`: it must never raise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._periods: dict[tuple[str, int], _Period] = {}

    def emit(self, record: logging.LogRecord) -> None:
        facility, client, what = _parts(record)
        dropped = self._dropped((facility, record.levelno))
        if dropped is None:
            return
        more = {"left_out_before": dropped} if dropped else {}
        # errors of the client are warnings: the service logs an error itself if one affects its work
        log = _log if structlog.is_configured() else _plain()
        say = log.warning if record.levelno >= logging.WARNING else log.info
        say("kafka client", facility=facility, client=client, what=what, **more)

    def _dropped(self, kind: tuple[str, int]) -> int | None:
        """The number of similar lines that were dropped before this one; None: this line is dropped, too."""
        now = self._clock()
        period = self._periods.get(kind)
        dropped = 0
        if period is None or now - period.began >= PERIOD_SECONDS:
            if period is not None:
                dropped = max(0, period.count - LINES_MAX)
            period = self._periods[kind] = _Period(now)
        period.count += 1
        return dropped if period.count <= LINES_MAX else None


def _plain() -> Any:
    """A logger to standard error, for commands that have not configured logging: stdout is for their output."""
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
    )


def _parts(record: logging.LogRecord) -> tuple[str, str, str]:
    """Facility, name of the client, and text: the client passes them as arguments of one format string."""
    given = record.args
    if isinstance(given, tuple) and len(given) == 3:
        return str(given[0]), str(given[1]), str(given[2])
    return "CLIENT", "", str(record.msg)


def _make() -> logging.Logger:
    logger = logging.getLogger("lowwater.kafka")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(ClientLog())
    return logger


#: the logger of every client
CLIENT_LOGGER = _make()
