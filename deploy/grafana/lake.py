"""The dashboard of a group's lake."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import board, lines, number
from deploy.grafana.queries import (
    BY_STEP,
    COPY,
    GROUP_VARIABLE,
    HEAP,
    LANDING,
    NOT_LANDED,
    OF_GROUP,
    VISIBLE,
    WINDOW,
    quantile,
    rate,
    ratio,
)


def lake() -> Dashboard:
    return board(
        "lowwater: lake",
        "lowwater-lake",
        "Landings, copies, and Spark.",
        (GROUP_VARIABLE,),
        {
            "Did it land?": (
                number("Last gsn landed", "none", f"max(lowwater_land_gsn{OF_GROUP})"),
                number("Released and not landed", "short", NOT_LANDED, (100_000, 1_000_000)),
                number(
                    "Age of the newest commit in the lake",
                    "s",
                    f"time() - max(lowwater_land_commit_timestamp_seconds{OF_GROUP})",
                ),
                number("Commit to visible, p99", "s", quantile(0.99, VISIBLE), (30, 300)),
                LANDING,
                BY_STEP,
                lines(
                    "Rows per landing, mean",
                    "short",
                    (ratio("lowwater_land_rows_total", "lowwater_land_landings_total"), "{{group}}"),
                ),
            ),
            "Files": (
                lines("Bytes written per second", "Bps", (rate("lowwater_land_bytes_total", "group"), "{{group}}")),
                lines(
                    "Files per landing, mean",
                    "short",
                    (ratio("lowwater_land_files_total", "lowwater_land_landings_total"), "{{group}}"),
                ),
                lines(
                    "Bytes of a file, mean",
                    "bytes",
                    (ratio("lowwater_land_bytes_total", "lowwater_land_files_total"), "{{group}}"),
                ),
            ),
            "Copies of tables": (
                COPY,
                lines(
                    "Rows copied per second",
                    "ops",
                    (rate("lowwater_copy_rows_total", "group, source"), "{{group}}: {{source}}"),
                    only_when="tables have been copied since Spark was started",
                ),
                lines(
                    "Chunks that failed, by error",
                    "short",
                    (
                        f"sum by (group, source, error) (lowwater_copy_chunks_failed_total{OF_GROUP})",
                        "{{group}}: {{source}} {{error}}",
                    ),
                    only_when="a chunk could not be copied; it is retried",
                ),
                lines(
                    "Copies that wait for a new plan",
                    "short",
                    (f"sum by (group) (lowwater_copy_waiting{OF_GROUP})", "{{group}}"),
                ),
            ),
            "Spark": (
                HEAP,
                lines(
                    "CPU of the JVM",
                    "percentunit",
                    (f"sum by (instance) (rate(metrics_lowwater_driver_jvmCpu_Value{WINDOW})) / 1e9", "{{instance}}"),
                    only_when="Spark's Prometheus servlet is on (docs/metrics.md)",
                ),
                lines(
                    "Errors by class",
                    "short",
                    (f"sum by (group, error) (lowwater_land_errors_total{OF_GROUP})", "{{group}} {{error}}"),
                    only_when="there was an error since Spark was started",
                ),
            ),
        },
    )
