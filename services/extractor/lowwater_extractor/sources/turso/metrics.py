"""Metrics of a Turso source."""

from __future__ import annotations

from prometheus_client import Counter

PRUNED = Counter("lowwater_turso_pruned_total", "changes deleted from the CDC table", ["source"])
DOUBTS = Counter("lowwater_turso_doubts_total", "polls that saw older pages than an earlier poll", ["source"])
