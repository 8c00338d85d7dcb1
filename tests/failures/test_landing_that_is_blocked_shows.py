"""A landing that cannot write its lake, or whose Kafka is gone, says so within seconds, and goes on by itself."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowwater_fleet.runner.services import Service
from tests.conftest import NewKafka
from tests.support.harness import get, metric, skip_without_spark, wait_until
from tests.support.landed import Landed

SECONDS = 20.0


@pytest.fixture
def small_lake(tmp_path: Path) -> Iterator[Path]:
    """A lake on a file system of its own."""
    mounted = tmp_path / "lake"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a file system of its own: mount is not allowed here")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def _wait_for(service: Service, state: str, seconds: float = SECONDS) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def is_so() -> bool:
        found.clear()
        found.update(service.status() or {})
        return found.get("state") == state

    try:
        wait_until(f"{state}, it shows {found}", is_so, seconds)
    except AssertionError as error:
        tail = service.log.read_text(errors="replace")[-3000:]
        raise AssertionError(f"{error}; it shows {found}; {tail}") from error
    return found


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_lake_that_cannot_be_written_fails_the_landing_until_it_can(
    kafka: Any, tmp_path: Path, unique: str, small_lake: Path, how: str
) -> None:
    skip_without_spark()
    landed = Landed(tmp_path, kafka.bootstrap_servers, unique, {"uri": str(small_lake)})
    try:
        landed.bank.work(10)
        service = landed.start()
        landed.wait_for_all(service)
        filler = small_lake / "filler"
        if how == "full":
            _fill(filler)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(small_lake)], check=True)
        landed.bank.work(10)
        shown = _wait_for(service, "failed")
        assert shown["error"]["error"] == "StoreError"
        assert ("No space left" if how == "full" else "Read-only file system") in shown["error"]["what"]
        assert get(service, "/health/ready")[0] == 503
        assert metric(service, "lowwater_service_failed", error="StoreError") == 1
        if how == "full":
            filler.unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", str(small_lake)], check=True)
        landed.wait_for_all(service)
        _wait_for(service, "running", 60)
        assert get(service, "/health/ready")[0] == 200
    finally:
        landed.kill_all()


def test_a_landing_without_its_broker_is_stalled_and_goes_on_when_that_is_back(
    new_kafka: NewKafka, tmp_path: Path, unique: str
) -> None:
    skip_without_spark()
    broker = new_kafka()
    broker.start()
    landed = Landed(tmp_path, broker.bootstrap_servers, unique, {"uri": str(tmp_path / "lake")})
    try:
        landed.bank.work(10)
        service = landed.start()
        landed.wait_for_all(service)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        shown = _wait_for(service, "stalled")
        assert shown["stalled"]["why"]
        assert get(service, "/health/ready")[0] == 503
        os.kill(broker.pid, signal.SIGCONT)
        landed.bank.work(10)
        landed.wait_for_all(service)
        _wait_for(service, "running", 60)
    finally:
        landed.kill_all()
