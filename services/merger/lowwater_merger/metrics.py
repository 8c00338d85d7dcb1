"""The merger's metrics. A gauge is a float, so `/status` also has the positions as exact strings."""

from prometheus_client import Counter, Gauge, Histogram

_GROUP = ["group"]
_SOURCE = ["group", "source"]
_THREAD = ["group", "source", "thread"]

RELEASED = Counter("lowwater_merger_released_transactions_total", "transactions released", _GROUP)
RELEASED_CHANGES = Counter("lowwater_merger_released_changes_total", "changes released", _GROUP)
SKIPPED = Counter("lowwater_merger_skipped_total", "transactions skipped by an operator's command", _GROUP)
REPEATS = Counter("lowwater_merger_repeats_dropped_total", "identical repeats dropped", _GROUP)
SESSIONS = Counter("lowwater_merger_sessions_total", "sessions started, also after a Kafka error", _GROUP)
ERRORS = Counter("lowwater_merger_errors_total", "errors by class", ["group", "error"])
GSN = Gauge("lowwater_merger_gsn", "the last gsn released", _GROUP)
WAITING = Gauge("lowwater_merger_waiting_transactions", "complete transactions that wait for the watermark", _SOURCE)
WAITING_BYTES = Gauge(
    "lowwater_merger_waiting_bytes", "bytes of open and waiting transactions, in memory and on disk", _GROUP
)
MEMORY_BYTES = Gauge("lowwater_merger_buffer_memory_bytes", "buffers in memory", _GROUP)
SPOOLED_BYTES = Gauge("lowwater_merger_spooled_bytes", "buffers on disk", _GROUP)
PAUSED = Gauge("lowwater_merger_paused_partitions", "partitions not read: buffers are full", _GROUP)
WATERMARK = Gauge("lowwater_merger_watermark_major", "a source's watermark: its major number", _SOURCE)
MARK = Gauge("lowwater_merger_mark_major", "a thread's mark: its major number", _THREAD)
MARK_AGE = Gauge("lowwater_merger_mark_age_seconds", "seconds since a thread's mark last advanced", _THREAD)
WATERMARK_AGE = Gauge(
    "lowwater_merger_watermark_age_seconds",
    "age of the lowest clock over the marks of a source's partitions: every commit before that clock has been read",
    _SOURCE,
)
UNREAD = Gauge(
    "lowwater_merger_unread_records",
    "records of the changes topic not read yet, including Kafka's transaction markers",
    _SOURCE,
)
BEHIND = Gauge("lowwater_merger_mark_behind", "how far a thread's mark is behind the source's highest", _THREAD)
HOLDS = Gauge(
    "lowwater_merger_holds_watermark",
    "1 for the thread that holds the watermark back; thread `none`: no mark yet",
    _THREAD,
)
HELD_SECONDS = Gauge(
    "lowwater_merger_held_seconds", "how long the same thread has held back waiting transactions", _GROUP
)
HOLD_ALARM = Gauge(
    "lowwater_merger_hold_alarm_seconds", "the group's hold_alarm_seconds: alarm threshold for held_seconds", _GROUP
)
EXCLUDED = Gauge("lowwater_merger_thread_excluded", "1 while a thread is excluded", _THREAD)
STOPPED = Gauge("lowwater_merger_source_stopped", "1 while a source is stopped by an error", _SOURCE)
LATENCY = Histogram(
    "lowwater_merger_commit_to_release_seconds",
    "seconds from the commit in the source to the release",
    _GROUP,
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200),
)
