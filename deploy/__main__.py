"""`make generate`: write anew the dashboards, docs/metrics.md and the chart's README. A test compares them.

The chart has dashboards and alerts of its own, the same to the letter: a packaged chart cannot look outside itself, and
links are lost on some of the ways that a repository goes.
"""

from __future__ import annotations

from pathlib import Path

from deploy import chart_readme, metrics_table
from deploy.grafana.dashboards import DASHBOARDS
from deploy.grafana.panels import as_json

ROOT = Path(__file__).resolve().parent.parent


def made() -> dict[Path, str]:
    """Every file that is made by code, by its place in the repository."""
    pages = {
        "docs/metrics.md": metrics_table.page(),
        "helm/lowwater/README.md": chart_readme.page(),
        "helm/lowwater/files/rules.yaml": (ROOT / "deploy/prometheus/rules.yaml").read_text(),
    }
    for name, make in DASHBOARDS.items():
        for place in ("deploy/grafana", "helm/lowwater/files"):
            pages[f"{place}/dashboards/{name}.json"] = as_json(make())
    return {Path(name): text for name, text in pages.items()}


if __name__ == "__main__":
    for path, text in made().items():
        (ROOT / path).write_text(text)
