"""All dashboards, by the name of their file."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.fleet import fleet
from deploy.grafana.lake import lake
from deploy.grafana.source import source

DASHBOARDS: dict[str, Callable[[], Dashboard]] = {"fleet": fleet, "source": source, "lake": lake}
