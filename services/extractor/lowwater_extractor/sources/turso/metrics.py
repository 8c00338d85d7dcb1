"""What a Turso source shows of its table of changes."""

from __future__ import annotations

from prometheus_client import Counter

PRUNED = Counter("lowwater_turso_pruned_total", "changes that were deleted from the file", ["source"])
DOUBTS = Counter("lowwater_turso_doubts_total", "looks that were behind what had been read before", ["source"])
