"""The local runner: a process that dies is started again, later and later the more often that happens."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.support.harness import wait_until

from lowwater.runtime.service import EXIT_ERROR, EXIT_FENCED
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.runner import Runner
from lowwater_fleet.runner.services import BACKOFF_SECONDS, HEALTHY_SECONDS, Service


def _service(tmp_path: Path, code: int) -> Service:
    service = Service("test", [sys.executable, "-c", f"raise SystemExit({code})"], tmp_path / "test.log")
    service.start()
    assert service.wait(30) == code
    return service


def _pause_before_the_next_start(service: Service) -> float:
    asked = time.monotonic()
    service.supervise()
    return service._next_start_at - asked


@pytest.mark.parametrize("code", [EXIT_ERROR, EXIT_FENCED])
def test_a_process_that_dies_is_started_again(tmp_path: Path, code: int) -> None:
    service = _service(tmp_path, code)

    def is_restarted() -> bool:
        service.supervise()
        return service.restarts == 1

    wait_until("the restart", is_restarted)
    assert service.wait(30) == code


def test_one_that_an_operator_stopped_is_not(tmp_path: Path) -> None:
    service = _service(tmp_path, 0)
    for _ in range(5):
        service.supervise()
        time.sleep(0.1)
    assert service.restarts == 0


def test_one_that_the_runner_stopped_is_not_until_it_is_wanted_again(tmp_path: Path) -> None:
    service = Service("test", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "test.log")
    service.start()
    service.stop()
    service.supervise()
    assert (service.state, service.restarts) == ("stopped", 0)
    service.start()
    assert service.state == "running"
    service.kill()
    service.supervise()
    assert service.state.startswith("down")
    service.stop()


def test_the_more_often_it_dies_the_later_it_is_started(tmp_path: Path) -> None:
    service = _service(tmp_path, 1)
    pauses = []
    for _ in range(len(BACKOFF_SECONDS) + 2):
        pauses.append(_pause_before_the_next_start(service))
        service.last_code = None
    assert pauses == pytest.approx([*BACKOFF_SECONDS, BACKOFF_SECONDS[-1], BACKOFF_SECONDS[-1]], abs=0.1)


def test_one_that_has_run_well_for_a_while_is_started_again_at_once(tmp_path: Path) -> None:
    service = _service(tmp_path, 1)
    service._started_at -= HEALTHY_SECONDS + 1
    assert _pause_before_the_next_start(service) < BACKOFF_SECONDS[1]


def test_a_group_with_a_lake_has_spark_beside_its_merger(tmp_path: Path) -> None:
    port = free_port()
    raw = {
        "sources": {name: {"kind": "simulated_rac", "config": {"directory": "rac"}} for name in ("one", "two")},
        "groups": {
            "landed": {
                "sources": ["one"],
                "lake": {"uri": str(tmp_path / "lake")},
                "land": {"http": {"port": port}},
            },
            "not-landed": {"sources": ["two"]},
        },
    }
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(raw))
    runner = Runner(tmp_path / "fleet.yaml", tmp_path)
    assert {name for name in runner.services if name.startswith("spark")} == {"spark-landed"}
    assert "lowwater_spark" in runner.services["spark-landed"].command
    assert runner.services["spark-landed"].http_port == port
