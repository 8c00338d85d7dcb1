"""The dashboard of one source."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import board, lines
from deploy.grafana.queries import LAG, OF_SOURCE, SLOT, SOURCE_VARIABLE, quantile, rate


def source() -> Dashboard:
    return board(
        "lowwater: source",
        "lowwater-source",
        "One source: lag, throughput, threads, log retention, errors.",
        (SOURCE_VARIABLE,),
        {
            "Is it keeping up?": (
                LAG,
                lines(
                    "Changes per second",
                    "ops",
                    (rate("lowwater_extractor_changes_total", "source", OF_SOURCE), "{{source}}"),
                ),
                lines(
                    "Bytes per second",
                    "Bps",
                    (rate("lowwater_extractor_bytes_total", "source", OF_SOURCE), "{{source}}"),
                ),
                lines(
                    "Changes of a transaction, mean",
                    "short",
                    (
                        f"{rate('lowwater_extractor_changes_total', 'source', OF_SOURCE)} / "
                        f"({rate('lowwater_extractor_transactions_total', 'source', OF_SOURCE)} > 0)",
                        "{{source}}",
                    ),
                    only_when="there were recent commits",
                ),
                lines(
                    "Duration of a batch",
                    "s",
                    (quantile(0.5, "lowwater_extractor_batch_seconds", "source", OF_SOURCE), "{{source}} p50"),
                    (quantile(0.99, "lowwater_extractor_batch_seconds", "source", OF_SOURCE), "{{source}} p99"),
                ),
                lines(
                    "Batches per second",
                    "ops",
                    (rate("lowwater_extractor_batches_total", "source", OF_SOURCE), "{{source}}"),
                ),
            ),
            "Its threads": (
                lines(
                    "Mark (major)",
                    "none",
                    (f"lowwater_extractor_mark_major{OF_SOURCE}", "{{source}} thread {{thread}}"),
                ),
                lines(
                    "Ahead of the lowest mark",
                    "bytes",
                    (f"lowwater_extractor_lead_bytes{OF_SOURCE}", "{{source}} thread {{thread}}"),
                ),
                lines(
                    "Not read: too far ahead",
                    "short",
                    (f"lowwater_extractor_thread_held{OF_SOURCE}", "{{source}} thread {{thread}}"),
                ),
            ),
            "Its log and its disk": (
                SLOT,
                lines(
                    "Age of the snapshot of a copy",
                    "s",
                    (f"max by (source) (lowwater_postgres_snapshot_seconds{OF_SOURCE})", "{{source}}"),
                    about="While a snapshot is held, vacuum cannot remove dead rows.",
                    only_when="tables of a PostgreSQL source have been copied since the extractor was started",
                ),
                lines(
                    "Large transactions on disk",
                    "bytes",
                    (
                        "lowwater_extractor_spill_bytes * on (job, instance) group_left (name) lowwater_build_info",
                        "{{name}}",
                    ),
                ),
            ),
            "Errors": (
                lines(
                    "Sessions started per hour",
                    "short",
                    (f"sum by (source) (increase(lowwater_extractor_sessions_total{OF_SOURCE}[1h]))", "{{source}}"),
                ),
                lines(
                    "Errors by class",
                    "short",
                    (f"sum by (source, error) (lowwater_extractor_errors_total{OF_SOURCE})", "{{source}} {{error}}"),
                    only_when="there was an error since the extractor was started",
                ),
                lines(
                    "Transactions left out, commit times limited",
                    "short",
                    (f"sum by (source) (lowwater_extractor_left_out_total{OF_SOURCE})", "{{source}} left out"),
                    (f"sum by (source) (lowwater_extractor_clock_cut_total{OF_SOURCE})", "{{source}} from the future"),
                    only_when="the config leaves transactions out, or a commit time is in the future",
                ),
            ),
        },
    )
