"""`make generate`: generates the dashboards, docs/metrics.md and the chart's README. A test compares them."""

from __future__ import annotations

from pathlib import Path

from deploy import chart_readme, metrics_table
from deploy.grafana.dashboards import DASHBOARDS
from deploy.grafana.panels import as_json

ROOT = Path(__file__).resolve().parent.parent


def made() -> dict[Path, str]:
    """Path in the repository → content of every generated file."""
    pages = {
        "docs/metrics.md": metrics_table.page(),
        "helm/lowwater/README.md": chart_readme.page(),
    }
    for name, make in DASHBOARDS.items():
        pages[f"deploy/grafana/dashboards/{name}.json"] = as_json(make())
    return {Path(name): text for name, text in pages.items()}


if __name__ == "__main__":
    for path, text in made().items():
        (ROOT / path).write_text(text)
