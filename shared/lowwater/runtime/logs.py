"""Logs: one event per line, JSON by default, with source, thread and position as fields."""

from __future__ import annotations

import logging
import sys

import structlog

from lowwater.errors import ConfigError
from lowwater.runtime.config import Settings
from lowwater.status import tracing


def configure(settings: Settings, **context: str) -> structlog.stdlib.BoundLogger:
    """Configures logging for this process; returns a logger that adds `context` to every event."""
    level = logging.getLevelNamesMapping().get(settings.log_level.upper())
    if level is None:
        raise ConfigError(f"log_level {settings.log_level!r} is not a level", hint="debug, info, warning or error")
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            tracing.add_ids,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logger: structlog.stdlib.BoundLogger = structlog.get_logger().bind(**context)
    return logger
