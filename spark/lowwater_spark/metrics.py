"""Prometheus metrics of the landing application."""

from prometheus_client import Counter, Gauge, Histogram

_GROUP = ["group"]

LANDINGS = Counter("lowwater_land_landings_total", "landings", _GROUP)
TRANSACTIONS = Counter("lowwater_land_transactions_total", "transactions landed", _GROUP)
ROWS = Counter("lowwater_land_rows_total", "rows landed", _GROUP)
FILES = Counter("lowwater_land_files_total", "files written and committed by a manifest", _GROUP)
BYTES = Counter("lowwater_land_bytes_total", "bytes of those files", _GROUP)
ERRORS = Counter("lowwater_land_errors_total", "errors by class", ["group", "error"])
SESSIONS = Counter("lowwater_land_sessions_total", "sessions started, also after an uncertain Kafka result", _GROUP)
GSN = Gauge("lowwater_land_gsn", "the last gsn landed", _GROUP)
COMMIT_TIME = Gauge(
    "lowwater_land_commit_timestamp_seconds",
    "the sources' clock at the newest landed transaction: its commit time, but never far ahead of the present",
    _GROUP,
)
STALE = Gauge("lowwater_lake_stale_tables", "tables whose state is unknown until a new copy of them has landed", _GROUP)
BEHIND = Gauge("lowwater_land_behind_records", "records of the ordered topic that have not landed", _GROUP)
SECONDS = Histogram(
    "lowwater_land_seconds",
    "duration of one landing",
    _GROUP,
    buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
STEP_SECONDS = Histogram(
    "lowwater_land_step_seconds",
    "duration of one landing by step: prepare, write (read, decode, check, Parquet), commit (the manifest), mirror",
    [*_GROUP, "step"],
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
LATENCY = Histogram(
    "lowwater_land_commit_to_visible_seconds",
    "from the source's commit of a landing's last transaction to its manifest",
    _GROUP,
    buckets=(0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200),
)

COPY_ROWS = Counter("lowwater_copy_rows_total", "rows of tables copied", [*_GROUP, "source"])
COPY_BYTES = Counter("lowwater_copy_bytes_total", "bytes of the files of copied chunks", [*_GROUP, "source"])
COPY_CHUNKS = Counter("lowwater_copy_chunks_total", "chunks copied", [*_GROUP, "source"])
COPY_FAILED = Counter(
    "lowwater_copy_chunks_failed_total", "chunks that could not be copied", [*_GROUP, "source", "error"]
)
COPY_PENDING = Gauge("lowwater_copy_chunks_pending", "chunks that are planned and have not landed", _GROUP)
COPY_ROWS_LEFT = Gauge("lowwater_copy_rows_left", "estimated rows of the chunks that have not landed", _GROUP)
COPY_WAITING = Gauge("lowwater_copy_waiting", "copies that wait for a new plan because their snapshot is gone", _GROUP)
