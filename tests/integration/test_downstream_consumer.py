"""A consumer written with nothing of ours reads the ordered topic through the control API's schema lookup."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "consumer.py"


def test_plain_consumer_with_the_stock_deserializer(new_fleet: NewFleet) -> None:
    fleet, registry = _with_control(new_fleet, transactions=50, transfers=2)
    command = [
        sys.executable, str(EXAMPLE), "--bootstrap-servers", fleet.settings.kafka.bootstrap_servers,
        "--registry", registry, "--group", fleet.group, "--idle-seconds", "2",
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    ordered = fleet.ordered()
    assert [line["gsn"] for line in lines] == [t.gsn for t in ordered]
    assert [line["txid"] for line in lines] == [t.commit.txid for t in ordered if t.commit]
    assert [line["state"] for line in lines] == [f"{len(t.values)} changes" for t in ordered]


def test_registry_read_endpoints(new_fleet: NewFleet) -> None:
    fleet, base = _with_control(new_fleet, transactions=5)
    subject = next(s for s in httpx.get(f"{base}/subjects").json() if fleet.sources[0] in s and "ACCOUNTS" in s)
    assert httpx.get(f"{base}/subjects/{subject}/versions").json() == [1]
    latest = httpx.get(f"{base}/subjects/{subject}/versions/latest").json()
    assert json.loads(latest["schema"])["lowwater"]["table"] == "ACCOUNTS"
    by_id = httpx.get(f"{base}/schemas/ids/{latest['id']}").json()
    assert by_id["schema"] == latest["schema"]
    missing = httpx.get(f"{base}/schemas/ids/1")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40403)
    assert httpx.get(f"{base}/subjects/nobody/versions").json()["error_code"] == 40401


def _with_control(new_fleet: NewFleet, **work: int) -> tuple[Fleet, str]:
    """A fleet that has released all of its work, and the address of its control API."""
    fleet = new_fleet()
    workload = Workload(fleet.cluster(), **work)
    fleet.extractor()
    fleet.merger()
    fleet.control()
    fleet.wait_for_capture()
    workload.run()
    fleet.wait_for_all()
    base = f"http://127.0.0.1:{fleet.settings.control.port}"
    wait_until("the control API", lambda: _answers(base))
    return fleet, base


def _answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health/ready").status_code == 200
    except httpx.TransportError:
        return False
