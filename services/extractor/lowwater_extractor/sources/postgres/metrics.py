"""Metrics of a PostgreSQL source."""

from __future__ import annotations

from prometheus_client import Gauge

RETAINED_BYTES = Gauge(
    "lowwater_postgres_slot_retained_bytes", "WAL bytes that the server retains for the slot", ["source"]
)
LAG_BYTES = Gauge("lowwater_postgres_slot_lag_bytes", "WAL bytes that are not acknowledged yet", ["source"])
RESTART_LSN = Gauge("lowwater_postgres_slot_restart_lsn", "restart_lsn of the slot", ["source"])
RETAINED_ALARM = Gauge(
    "lowwater_postgres_slot_alarm", "1 while the slot retains more than slot_bytes_alarm", ["source"]
)
SNAPSHOT_SECONDS = Gauge("lowwater_postgres_snapshot_seconds", "age of the snapshot that a copy holds", ["source"])
SNAPSHOT_ALARM = Gauge(
    "lowwater_postgres_snapshot_alarm", "1 while the snapshot is older than snapshot_hours_alarm", ["source"]
)
