"""Queries and panels that are used by several dashboards."""

from __future__ import annotations

from deploy.grafana.panels import lines, variable

OF_GROUP = '{group=~"$group"}'
OF_SOURCE = '{source=~"$source"}'
OF_BOTH = '{group=~"$group",source=~"$source"}'
WINDOW = "[$__rate_interval]"
#: a process's own figures, under the name of what it runs
NAMED = "* on (job, instance) group_left (service, name) lowwater_build_info"

GROUP_VARIABLE = variable("group", "Group", 'label_values(lowwater_build_info{service=~"merger|spark"}, name)')
SOURCE_VARIABLE = variable("source", "Source", "label_values(lowwater_extractor_lag_seconds, source)")


def rate(metric: str, by: str, where: str = OF_GROUP) -> str:
    return f"sum by ({by}) (rate({metric}{where}{WINDOW}))"


def quantile(quantile: float, histogram: str, by: str = "group", where: str = OF_GROUP) -> str:
    return f"histogram_quantile({quantile}, sum by ({by}, le) (rate({histogram}_bucket{where}{WINDOW})))"


def mean(histogram: str, by: str, where: str = OF_GROUP) -> str:
    return f"{rate(f'{histogram}_sum', by, where)} / {rate(f'{histogram}_count', by, where)}"


def ratio(above: str, below: str) -> str:
    return f"{rate(above, 'group')} / {rate(below, 'group')}"


RELEASE = "lowwater_merger_commit_to_release_seconds"
VISIBLE = "lowwater_land_commit_to_visible_seconds"
NOT_LANDED = f"max by (group) (lowwater_merger_gsn{OF_GROUP}) - max by (group) (lowwater_land_gsn{OF_GROUP})"
LAG = lines(
    "Lag by source",
    "s",
    (f"max by (source) (lowwater_extractor_lag_seconds{OF_SOURCE})", "{{source}}"),
    about="Age of the source's clock: all transactions committed before it are in Kafka. About a second when idle.",
)
BY_STEP = lines(
    "A landing by step, mean", "s", (mean("lowwater_land_step_seconds", "group, step"), "{{group}} {{step}}")
)
LANDING = lines(
    "Duration of a landing",
    "s",
    (quantile(0.5, "lowwater_land_seconds"), "{{group}} p50"),
    (quantile(0.99, "lowwater_land_seconds"), "{{group}} p99"),
)
COPY = lines(
    "Copies: remaining chunks and rows",
    "short",
    (f"sum by (group) (lowwater_copy_chunks_pending{OF_GROUP})", "{{group}} chunks"),
    (f"sum by (group) (lowwater_copy_rows_left{OF_GROUP})", "{{group}} rows"),
)
SLOT = lines(
    "Log that PostgreSQL retains for the slot",
    "bytes",
    (f"max by (source) (lowwater_postgres_slot_retained_bytes{OF_SOURCE})", "{{source}} retained"),
    (f"max by (source) (lowwater_postgres_slot_lag_bytes{OF_SOURCE})", "{{source}} not acknowledged"),
    only_when="a source is a PostgreSQL database read by its log",
)
HEAP = lines(
    "Spark's heap",
    "bytes",
    ("metrics_lowwater_driver_jvm_heap_used_Value", "driver, used"),
    ("metrics_lowwater_driver_jvm_heap_max_Value", "driver, limit"),
    only_when="Spark's Prometheus servlet is on (docs/metrics.md)",
)
