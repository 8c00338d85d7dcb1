"""What every service shows of itself."""

from prometheus_client import Counter, Gauge, disable_created_metrics

# a second series beside every counter, with the time of its making: nothing asks for it
disable_created_metrics()  # type: ignore[no-untyped-call]

_NAMED = ["service", "name"]

BUILD = Gauge("lowwater_build_info", "1: what runs here, and its version", [*_NAMED, "version"])
READY = Gauge("lowwater_service_ready", "1 while it does its work, as /health/ready", _NAMED)
STALLED = Gauge(
    "lowwater_service_stalled_seconds", "since it last got on, while it should have; 0: it does, or need not", _NAMED
)
FAILED = Gauge("lowwater_service_failed", "1 from an error, by its class, until it is ready again", [*_NAMED, "error"])
KAFKA_TRANSACTIONS = Counter(
    "lowwater_kafka_transactions_total",
    "by transactional id and outcome: committed, aborted (left open, its successor ends it), doubted (its end may have "
    "been sent twice), stalled (nothing was delivered, or no end was answered), fenced",
    ["producer", "outcome"],
)
