"""The extractor's metrics. `/status` has positions as exact strings, because a gauge is a float."""

from prometheus_client import Counter, Gauge, Histogram

_SOURCE = ["source"]
_THREAD = ["source", "thread"]

CHANGES = Counter("lowwater_extractor_changes_total", "changes published", _SOURCE)
TRANSACTIONS = Counter("lowwater_extractor_transactions_total", "transactions published", _SOURCE)
BYTES = Counter("lowwater_extractor_bytes_total", "bytes of change values published", _SOURCE)
BATCHES = Counter("lowwater_extractor_batches_total", "Kafka transactions committed", _SOURCE)
SESSIONS = Counter("lowwater_extractor_sessions_total", "sessions started, also after a Kafka error", _SOURCE)
ERRORS = Counter("lowwater_extractor_errors_total", "errors by class", ["source", "error"])
LEFT_OUT = Counter("lowwater_extractor_left_out_total", "transactions skipped as configured", _SOURCE)
CLOCK_CUT = Counter("lowwater_extractor_clock_cut_total", "commit times cut: beyond clock_ahead_seconds_max", _SOURCE)
MARK = Gauge("lowwater_extractor_mark_major", "major number of a thread's mark", _THREAD)
LEAD_BYTES = Gauge("lowwater_extractor_lead_bytes", "bytes published above the lowest mark", _THREAD)
HELD = Gauge("lowwater_extractor_thread_held", "1 while a thread is not read because it is too far ahead", _THREAD)
LAG_SECONDS = Gauge(
    "lowwater_extractor_lag_seconds",
    "age of the source's clock; all transactions committed before it are published",
    _SOURCE,
)
# without the label `source`: a process has one source, and the spill code does not know its name
SPILL_BYTES = Gauge("lowwater_extractor_spill_bytes", "bytes currently on disk, of transactions too large for memory")
SPILLED_BYTES = Counter("lowwater_extractor_spilled_bytes_total", "bytes written to disk for such transactions")
BATCH_SECONDS = Histogram("lowwater_extractor_batch_seconds", "one Kafka transaction, begin to commit", _SOURCE)
