"""The dashboard of the fleet: lag, watermark, waiting transactions, landings, resources."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import board, lines, number, states
from deploy.grafana.queries import (
    BY_STEP,
    COPY,
    GROUP_VARIABLE,
    HEAP,
    LAG,
    LANDING,
    NAMED,
    NOT_LANDED,
    OF_BOTH,
    OF_GROUP,
    OF_SOURCE,
    RELEASE,
    SOURCE_VARIABLE,
    VISIBLE,
    WINDOW,
    quantile,
    rate,
)


def fleet() -> Dashboard:
    return board(
        "lowwater: fleet",
        "lowwater-fleet",
        "Lag, the thread that holds the watermark, waiting transactions, landings, resources.",
        (GROUP_VARIABLE, SOURCE_VARIABLE),
        {
            "Are we keeping up?": (
                number("Lag of the slowest source", "s", f"max(lowwater_extractor_lag_seconds{OF_SOURCE})", (30, 300)),
                number("Commit to release, p99", "s", quantile(0.99, RELEASE), (2, 30)),
                number("Commit to visible in the lake, p99", "s", quantile(0.99, VISIBLE), (30, 300)),
                number("Transactions released and not landed", "short", NOT_LANDED, (100_000, 1_000_000)),
                LAG,
                lines(
                    "Transactions per second",
                    "ops",
                    (rate("lowwater_extractor_transactions_total", "source", OF_SOURCE), "published {{source}}"),
                    (rate("lowwater_merger_released_transactions_total", "group"), "released {{group}}"),
                    (rate("lowwater_land_transactions_total", "group"), "landed {{group}}"),
                ),
                lines(
                    "Latency",
                    "s",
                    (quantile(0.5, RELEASE), "{{group}} release p50"),
                    (quantile(0.99, RELEASE), "{{group}} release p99"),
                    (quantile(0.5, VISIBLE), "{{group}} visible p50"),
                    (quantile(0.99, VISIBLE), "{{group}} visible p99"),
                ),
            ),
            "Which thread holds the watermark?": (
                states(
                    "Holder",
                    (
                        f"max by (group, source, thread) (lowwater_merger_holds_watermark{OF_BOTH})",
                        "{{group}}: {{source}} thread {{thread}}",
                    ),
                    about="1 while transactions wait for this thread. Thread none: a partition has no mark yet.",
                ),
                states(
                    "Excluded by an operator",
                    (
                        f"max by (group, source, thread) (lowwater_merger_thread_excluded{OF_BOTH})",
                        "{{group}}: {{source}} thread {{thread}}",
                    ),
                ),
                lines("Held for", "s", (f"max by (group) (lowwater_merger_held_seconds{OF_GROUP})", "{{group}}")),
                lines(
                    "Time since the last mark",
                    "s",
                    (
                        f"max by (source, thread) (lowwater_merger_mark_age_seconds{OF_BOTH})",
                        "{{source}} thread {{thread}}",
                    ),
                ),
                lines(
                    "Age of the watermark",
                    "s",
                    (f"max by (source) (lowwater_merger_watermark_age_seconds{OF_BOTH})", "{{source}}"),
                    about="By the source's clock, at the merger. Transactions that wait for it are younger than this.",
                ),
            ),
            "Is anything waiting?": (
                lines(
                    "Waiting transactions",
                    "short",
                    (
                        f"sum by (group, source) (lowwater_merger_waiting_transactions{OF_BOTH})",
                        "{{group}}: {{source}}",
                    ),
                ),
                lines(
                    "Waiting bytes",
                    "bytes",
                    (f"sum by (group) (lowwater_merger_buffer_memory_bytes{OF_GROUP})", "{{group}} in memory"),
                    (f"sum by (group) (lowwater_merger_spooled_bytes{OF_GROUP})", "{{group}} on disk"),
                ),
                lines(
                    "Changes not read yet",
                    "short",
                    (f"sum by (group, source) (lowwater_merger_unread_records{OF_BOTH})", "{{group}}: {{source}}"),
                ),
                lines(
                    "Paused partitions (buffers are full)",
                    "short",
                    (f"sum by (group) (lowwater_merger_paused_partitions{OF_GROUP})", "{{group}}"),
                ),
                lines(
                    "Ahead of the lowest mark",
                    "bytes",
                    (
                        f"max by (source, thread) (lowwater_extractor_lead_bytes{OF_SOURCE})",
                        "{{source}} thread {{thread}}",
                    ),
                ),
                lines(
                    "Stopped by an error",
                    "short",
                    (f"max by (group, source) (lowwater_merger_source_stopped{OF_BOTH})", "{{group}}: {{source}}"),
                    about="The source holds its group. See docs/operations.md, a source is stopped by an error.",
                ),
            ),
            "Did it land?": (
                lines("Rows landed per second", "ops", (rate("lowwater_land_rows_total", "group"), "{{group}}")),
                LANDING,
                BY_STEP,
                lines("Released and not landed", "short", (NOT_LANDED, "{{group}}")),
                lines(
                    "Records not landed",
                    "short",
                    (f"max by (group) (lowwater_land_behind_records{OF_GROUP})", "{{group}}"),
                ),
                COPY,
            ),
            "Resources, restarts, errors": (
                lines(
                    "CPU", "percentunit", (f"rate(process_cpu_seconds_total{WINDOW}) {NAMED}", "{{service}} {{name}}")
                ),
                lines(
                    "Memory",
                    "bytes",
                    (f"process_resident_memory_bytes {NAMED}", "{{service}} {{name}}"),
                    about="For Spark only the Python driver; see the panel of the JVM's heap.",
                ),
                HEAP,
                lines(
                    "Restarts in an hour",
                    "short",
                    (f"changes(process_start_time_seconds[1h]) {NAMED}", "{{service}} {{name}}"),
                ),
                lines(
                    "Kafka transactions per second",
                    "ops",
                    (f"sum by (outcome) (rate(lowwater_kafka_transactions_total{WINDOW}))", "{{outcome}}"),
                    about="After each aborted, doubted (unknown result) or fenced one a new session was started.",
                ),
                lines(
                    "Errors by class",
                    "short",
                    ('sum by (error) ({__name__=~"lowwater_(extractor|merger|land)_errors_total"})', "{{error}}"),
                    only_when="there was an error since a service was started",
                ),
            ),
        },
    )
