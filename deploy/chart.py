"""`make chart`: packages the chart, with the dashboards and alerts, which the repository has only once.

A packaged chart cannot refer to files outside of it, so they are copied into `files/`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from deploy.chart_readme import CHART

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def stage(directory: Path) -> Path:
    """Write the complete chart to `directory`/lowwater, and return that path."""
    target = directory / "lowwater"
    shutil.copytree(CHART, target)
    shutil.copytree(ROOT / "deploy/grafana/dashboards", target / "files/dashboards")
    shutil.copy(ROOT / "deploy/prometheus/rules.yaml", target / "files/rules.yaml")
    return target


def package() -> str:
    """Write the package to `dist/`, and return what Helm says."""
    staged = DIST / "chart"
    shutil.rmtree(staged, ignore_errors=True)
    helm = Path(sys.executable).parent / "helm"
    command = [str(helm), "package", str(stage(staged)), "--destination", str(DIST)]
    try:
        # Helm's errors go to the terminal
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        shutil.rmtree(staged)


if __name__ == "__main__":
    sys.stdout.write(package())
