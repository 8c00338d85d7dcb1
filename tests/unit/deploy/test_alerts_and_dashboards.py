"""Alerts are checked by promtool and have a runbook each; what code makes is what the repository has."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.__main__ import made
from deploy.metrics_table import rows
from tests.support.prometheus import REPOSITORY, RULES, find

RULES_TEST = RULES.with_name("rules_test.yaml")
RUNBOOKS = REPOSITORY / "docs/operations/runbooks"


def _alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", sorted(made()), ids=str)
def test_what_code_makes_is_what_the_repository_has(path: Path) -> None:
    assert (REPOSITORY / path).read_text() == made()[path], "write it anew: make generate"


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    done = subprocess.run([find("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(_alerts())} rules found" in done.stdout


def test_each_alert_fires_when_it_is_to_and_names_what_it_is_about() -> None:
    command = [find("promtool"), "test", "rules", str(RULES_TEST)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_and_each_runbook_an_alert() -> None:
    cases = RULES_TEST.read_text()
    assert [a["alert"] for a in _alerts() if a["alert"] not in cases] == []
    assert {a["alert"] for a in _alerts()} == {path.stem for path in RUNBOOKS.glob("*.md")}


@pytest.mark.parametrize("alert", _alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_how_bad_and_what_to_do(alert: dict[str, Any]) -> None:
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    runbook = REPOSITORY / alert["annotations"]["runbook_url"]
    assert runbook == RUNBOOKS / f"{alert['alert']}.md"
    text = runbook.read_text()
    assert text.startswith(f"# {alert['alert']}\n")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (runbook.parent / link).exists(), link


def _names(text: str) -> set[str]:
    return set(re.findall(r"\blowwater_[a-z_]+\b", text))


def test_alerts_and_dashboards_use_only_metrics_that_there_are() -> None:
    known: set[str] = set()
    for row in rows():
        parts = ("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",)
        known |= {f"{row.name}{part}" for part in parts}
    boards = (REPOSITORY / "deploy/grafana/dashboards").glob("*.json")
    queries = [t["expr"] for b in boards for p in json.loads(b.read_text())["panels"] for t in p.get("targets", [])]
    used = _names(" ".join([*queries, *(alert["expr"] for alert in _alerts())]))
    # a part of the regular expression over all counters of errors
    assert used - known - {"lowwater_"} == set()
