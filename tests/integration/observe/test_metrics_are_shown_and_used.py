"""What running services expose is what docs/metrics.md says, and every query of every dashboard finds data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.grafana.panels import ONLY_WHEN
from deploy.metrics_table import rows
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.observe.conftest import Watched
from tests.support.harness import get, metric
from tests.support.prometheus import REPOSITORY, RULES

DASHBOARDS = sorted((REPOSITORY / "deploy/grafana/dashboards").glob("*.json"))
#: the kinds of source that the fleet has; a kind's own metrics are there only in its extractor
KINDS = ("postgres",)
#: what Grafana fills in
FILLED_IN = {"$__rate_interval": "5m", "$group": ".*", "$source": ".*"}


def _is_expected(module: str) -> bool:
    parts = module.split(".")
    return "sources" not in parts or parts[parts.index("sources") + 1] in KINDS


def test_the_table_of_metrics_is_what_running_services_show(watched: Watched) -> None:
    shown: dict[str, str] = {}
    for service in watched.services.values():
        for family in text_string_to_metric_families(get(service, "/metrics")[1]):
            if family.name.startswith("lowwater_"):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                shown[name] = family.type
    documented = {row.name: row.kind for row in rows()}
    assert shown.items() <= documented.items(), "metrics that docs/metrics.md does not have: make generate"
    assert {r.name: r.kind for r in rows() if _is_expected(r.module)}.items() <= shown.items()


def test_every_service_says_what_it_is_and_that_it_is_ready(watched: Watched) -> None:
    ready = watched.prometheus.query("lowwater_service_ready")
    found = {(r["metric"]["service"], r["metric"]["name"], r["value"][1]) for r in ready}
    group = watched.fleet.group
    extractors = {("extractor", source, "1") for source in watched.fleet.sources}
    assert found == extractors | {("merger", group, "1"), ("spark", group, "1")}
    assert {r["metric"]["service"] for r in watched.prometheus.query("lowwater_build_info")} == {
        "extractor", "merger", "spark", "control",
    }  # fmt: skip


def test_a_source_at_work_is_hardly_behind(watched: Watched) -> None:
    for source in watched.fleet.sources:
        lag = metric(watched.services[source], "lowwater_extractor_lag_seconds", source=source)
        assert lag is not None
        assert 0 <= lag < 30


def _queries(path: Path) -> Iterator[tuple[str, str, str]]:
    """Title, description, query of every panel."""
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], panel["description"], target["expr"]


def _filled(expression: str) -> str:
    for name, value in FILLED_IN.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_finds_data(watched: Watched, path: Path) -> None:
    empty = []
    for title, about, expression in _queries(path):
        values = [found["value"][1] for found in watched.prometheus.query(_filled(expression))]
        if ONLY_WHEN not in about and all(value == "NaN" for value in values):
            empty.append(f"{title}: {expression}")
    assert not empty


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_choice_of_a_dashboard_has_values(watched: Watched, path: Path) -> None:
    for choice in json.loads(path.read_text())["templating"]["list"]:
        if choice["type"] == "query":
            inner = str(choice["query"]).removeprefix("label_values(").removesuffix(")")
            series, _, label = inner.rpartition(", ")
            values = {found["metric"].get(label) for found in watched.prometheus.query(series)}
            assert values - {None}, choice


def test_every_alert_is_evaluated_without_an_error_and_none_of_a_healthy_fleet_fires(watched: Watched) -> None:
    groups: list[dict[str, Any]] = watched.prometheus.get("rules")["groups"]
    loaded = {rule["name"]: rule for group in groups for rule in group["rules"]}
    wanted = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert set(loaded) == wanted
    assert {name: rule["lastError"] for name, rule in loaded.items() if rule.get("lastError")} == {}
    assert {name: rule["alerts"] for name, rule in loaded.items() if rule["state"] == "firing"} == {}
