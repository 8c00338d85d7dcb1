"""What a MongoDB source shows of its oplog."""

from __future__ import annotations

from prometheus_client import Gauge

OPLOG_SECONDS = Gauge("lowwater_mongodb_oplog_seconds", "how far the oplog goes back", ["source"])
BEHIND_SECONDS = Gauge("lowwater_mongodb_behind_seconds", "how far the stream is behind the oplog's end", ["source"])
OPLOG_ALARM = Gauge("lowwater_mongodb_oplog_alarm", "1 while that is more than oplog_share_alarm of it", ["source"])
