"""Metrics of every service."""

from prometheus_client import Counter, Gauge, disable_created_metrics

# disables the additional `_created` series of every counter, which is not used
disable_created_metrics()  # type: ignore[no-untyped-call]

_NAMED = ["service", "name"]

BUILD = Gauge("lowwater_build_info", "always 1; the labels have the service and its version", [*_NAMED, "version"])
READY = Gauge("lowwater_service_ready", "1 while the service is ready, as /health/ready", _NAMED)
STALLED = Gauge(
    "lowwater_service_stalled_seconds", "time since the last progress; 0 if there is progress or none is due", _NAMED
)
FAILED = Gauge("lowwater_service_failed", "1 from an error until the service is ready again", [*_NAMED, "error"])
KAFKA_TRANSACTIONS = Counter(
    "lowwater_kafka_transactions_total",
    "by transactional id and outcome: committed, aborted (left open; the next producer aborts it), doubted (EndTxn may "
    "have been sent twice), stalled (nothing was delivered, or the commit was not answered), fenced",
    ["producer", "outcome"],
)
