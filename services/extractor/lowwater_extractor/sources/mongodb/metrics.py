"""Metrics of a MongoDB source."""

from __future__ import annotations

from prometheus_client import Gauge

OPLOG_SECONDS = Gauge("lowwater_mongodb_oplog_seconds", "time range of the oplog", ["source"])
BEHIND_SECONDS = Gauge("lowwater_mongodb_behind_seconds", "lag of the stream behind the end of the oplog", ["source"])
OPLOG_ALARM = Gauge("lowwater_mongodb_oplog_alarm", "1 while the lag exceeds oplog_share_alarm", ["source"])
