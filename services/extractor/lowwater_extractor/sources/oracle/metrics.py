"""Metrics of an Oracle source."""

from __future__ import annotations

from prometheus_client import Counter

NOT_IN_LOG = Counter(
    "lowwater_oracle_not_in_log_total",
    "changes without the value of a column that they have written, because the log does not carry it",
    ["source", "table", "column", "why"],
)
