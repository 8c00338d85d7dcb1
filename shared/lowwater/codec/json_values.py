"""Converts values of a lake or of a change to JSON types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID


def plain(value: Any) -> Any:
    """The value in JSON types: decimals, times, UUIDs, bytes and non-finite floats become text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        shown = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return shown.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
