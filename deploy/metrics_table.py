"""Generates docs/metrics.md: every metric of every service, from the code that defines it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

ROOT = Path(__file__).resolve().parent.parent
#: the packages, as the page orders them
PLACES = ("shared", "services/extractor", "services/merger", "spark", "services/control")

_TITLES = {
    "lowwater.status.metrics": "Every service",
    "lowwater_extractor.metrics": "Extractor",
    "lowwater_merger.metrics": "Merger",
    "lowwater_spark.metrics": "Spark: landing and copies",
    "lowwater_control.metrics": "Control",
}
_HEAD = """\
# Metrics

Every service serves them in Prometheus' text format under `/metrics`, on the port `http.port`. This page is generated
by `make generate` from the code; a test compares it with the metrics of running services.

- Units are seconds and bytes; counters end in `_total`. Transaction ids and positions are not labels; positions are
  floats here, and exact strings under `/status`.
- Histograms are classic ones: the Python client does not support native ones. Prometheus from 3.4 on can convert them
  to native ones with custom buckets at the scrape (`convert_classic_histograms_to_nhcb`).
- `process_*` and `python_*` (CPU, memory, open files, start time) are from the client library.
  `changes(process_start_time_seconds[15m])` counts restarts.
- The counter of an error that ends its process, such as a fence, is lost unless it is scraped before: see also the exit
  code (3: fenced) and the last line of the log.
"""
_SPARK = """\
## Spark

Spark exports metrics of its JVM and its executors on the port of its user interface, which is off by default. In
`groups.<group>.land.spark` (the chart sets this automatically):

```yaml
spark.ui.enabled: "true"
spark.ui.port: "4040"
spark.ui.prometheus.enabled: "true"                      # /metrics/executors/prometheus
spark.metrics.namespace: lowwater                        # the same names after every start
spark.metrics.conf.*.sink.prometheusServlet.class: org.apache.spark.metrics.sink.PrometheusServlet
spark.metrics.conf.*.sink.prometheusServlet.path: /metrics/prometheus
spark.metrics.conf.*.source.jvm.class: org.apache.spark.metrics.source.JvmSource
spark.sql.streaming.metricsEnabled: "true"
```
"""


@dataclass(frozen=True)
class Row:
    name: str
    kind: str
    labels: tuple[str, ...]
    about: str
    #: the module that defines it
    module: str


def modules() -> list[str]:
    """All modules in files named metrics.py, so that those of a new source kind are found automatically."""
    found = []
    for place in PLACES:
        base = ROOT / place
        for path in sorted(base.glob("lowwater*/**/metrics.py"), key=lambda p: (len(p.parts), p)):
            found.append(".".join(path.relative_to(base).with_suffix("").parts))
    return found


def rows() -> list[Row]:
    found: list[Row] = []
    for name in modules():
        for metric in vars(importlib.import_module(name)).values():
            if isinstance(metric, MetricWrapperBase) and not any(r.name == _exposed(metric) for r in found):
                (family,) = metric.describe()
                found.append(Row(_exposed(metric), family.type, metric._labelnames, family.documentation, name))
    return found


def _exposed(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else str(metric._name)


def _title(module: str) -> str:
    return _TITLES.get(module) or f"Extractor, sources of kind `{module.split('.')[-2]}`"


def page() -> str:
    parts = [_HEAD]
    known = rows()
    for module in modules():
        lines = [f"## {_title(module)}\n", "| metric | type | labels | |", "|---|---|---|---|"]
        of_module = [row for row in known if row.module == module]
        for row in of_module:
            lines.append(f"| `{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.about} |")
        if of_module:
            parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, _SPARK])
