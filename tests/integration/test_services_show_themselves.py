"""Health, metrics, status; and a wrong start is one line with a hint, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml
from tests.conftest import NewFleet
from tests.support.harness import Workload, get, metric, wait_until

from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

FAILED = 1


def test_extractor_and_merger_show_that_they_live_are_ready_and_what_they_do(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    work = Workload(fleet.cluster(), transactions=40)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    committed = len(fleet.histories()[source])
    for service in (extractor, merger):
        wait_until(f"{service.name} is ready", partial(_is_ready, service))
        code, text = get(service, "/health/live")
        assert code == 200
        assert "the loop ticked" in text
        code, text = get(service, "/nothing")
        assert code == 404
        assert "/health/live" in text
    wait_until(
        "the counters",
        lambda: (
            metric(extractor, "lowwater_extractor_transactions_total", source=source) == committed
            and metric(merger, "lowwater_merger_released_transactions_total", group=fleet.group) == committed
        ),
    )
    shown = json.loads(get(extractor, "/status")[1])
    assert (shown["source"], shown["state"], shown["transactions"]) == (source, "running", committed)
    assert {t: s["state"] for t, s in shown["threads"].items()} == {"1": "open", "2": "open"}
    shown = fleet.wait_for_status(merger, "the last gsn", lambda s: s["next_gsn"] == committed + 1)
    assert (shown["group"], shown["state"], shown["holder"]) == (fleet.group, "running", None)
    assert metric(merger, "lowwater_merger_commit_to_release_seconds_count", group=fleet.group)


def _is_ready(service: Service) -> bool:
    return get(service, "/health/ready") == (200, "ready\n")


def test_an_extractor_without_a_broker_is_alive_and_not_ready(tmp_path: Path, new_fleet: NewFleet) -> None:
    fleet = new_fleet(bootstrap_servers=f"127.0.0.1:{free_port()}")
    fleet.cluster()
    extractor = fleet.extractor()
    wait_until("it listens", lambda: extractor.status() is not None)
    assert get(extractor, "/health/live")[0] == 200
    assert get(extractor, "/health/ready") == (503, "starting\n")


# -- wrong starts ----------------------------------------------------------------------------------------

GOOD = {
    "sources": {"rac": {"kind": "simulated_rac", "config": {"directory": "/nowhere"}}},
    "groups": {"bank": {"sources": ["rac"]}},
}


def _start(tmp_path: Path, service: str, text: str, name: str) -> tuple[int, str]:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    flag = "--source" if service == "extractor" else "--group"
    command = [sys.executable, "-m", f"lowwater_{service}", "--config", str(path), flag, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("service", "name", "change", "words"),
    [
        ("extractor", "rac", {"sources": {"rac": {"kind": "simulated_rac", "partitons": 3}}}, "sources.rac.partitons"),
        ("extractor", "cra", {}, "there is no source 'cra' in the config (known: rac)"),
        ("merger", "knab", {}, "there is no group 'knab' in the config (known: bank)"),
        ("merger", "bank", {"groups": {"bank": {"sources": ["cra"]}}}, "group bank names source cra"),
        ("extractor", "rac", {"sources": {"rac": {"kind": "oracel"}}}, "no source kind 'oracel' (known: mongodb"),
        ("extractor", "rac", {"sources": {"rac": {"kind": "simulated_rac"}}}, "directory: Field required"),
        ("extractor", "rac", {"kafka": {"client": {"sasl.password": "hunter2"}}}, "sasl.password holds a secret"),
    ],
)  # fmt: skip
def test_a_wrong_config_is_one_line(tmp_path: Path, service: str, name: str, change: object, words: str) -> None:
    assert isinstance(change, dict)
    code, text = _start(tmp_path, service, yaml.safe_dump({**GOOD, **change}), name)
    lines = [line for line in text.splitlines() if not line.startswith("{")]
    assert (code, len(lines)) == (FAILED, 1), text
    assert lines[0].startswith(f"lowwater-{service}: ")
    assert words in lines[0]
    assert "hunter2" not in text


@pytest.mark.parametrize("text", ["kafka: {password: hunter2 ]", "- a\n- list\n", "7: 8\n"])
def test_a_config_that_is_no_mapping_in_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    code, said = _start(tmp_path, "extractor", text, "rac")
    assert (code, len(said.splitlines())) == (FAILED, 1), said
    assert "fleet.yaml" in said
    assert "hunter2" not in said


def test_a_port_in_use_is_one_line_with_a_hint(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    fleet.cluster()
    extractor = fleet.extractor()
    wait_until("it listens", lambda: extractor.status() is not None)
    command = [*extractor.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == FAILED
    (line,) = done.stderr.splitlines()
    assert f"cannot listen on 127.0.0.1:{extractor.http_port}" in line
    assert "--http-port 0" in line
    assert extractor.is_running
