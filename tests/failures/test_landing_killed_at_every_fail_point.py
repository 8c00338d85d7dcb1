"""`kill -9` of the landing at each of its fail points, on a local disk and on S3, while a reader looks on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lowwater import config
from lowwater.config import LakeConfig
from lowwater.failpoints import FAIL_POINTS
from lowwater.lake.chain import Chain
from lowwater.lake.store import open_lake_store
from lowwater.lake.verify import verify
from lowwater_fleet import services
from lowwater_fleet.kafka import EmbeddedKafka
from lowwater_fleet.ports import free_port
from lowwater_fleet.services import Service
from tests.bank_topic import BankTopic, Watcher, until
from tests.harness import LAND
from tests.ordered_topic import OrderedTopic
from tests.s3 import S3Server

POINTS = [name for name in FAIL_POINTS if name.startswith("land.")]
KILLED = -9


class Landed:
    """A group with an ordered topic that the test writes, and a landing application."""

    def __init__(self, directory: Path, bootstrap_servers: str, name: str, lake: dict[str, Any]) -> None:
        self.name = name
        self.directory = directory
        self.port = free_port()
        land = {**LAND, "http": {"port": self.port}}
        raw = {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "sources": {name: {"kind": "simulated_rac"}},
            "groups": {name: {"sources": [name], "lake": lake, "land": land}},
            "state_directory": str(directory / "state"),
        }
        self.path = directory / f"{name}.yaml"
        self.path.write_text(yaml.safe_dump(raw))
        self.settings = config.load(self.path)
        self.bank = BankTopic(OrderedTopic(self.settings, name))

    @property
    def lake(self) -> LakeConfig:
        found = self.settings.group(self.name).lake
        assert found is not None
        return found

    def start(self, **environment: str) -> Service:
        service = services.lander(self.settings, self.path, self.name, self.directory / "logs")
        service.start(environment)
        return service

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.directory / "state", ignore_errors=True)

    def gsn(self) -> int:
        return Chain.open(open_lake_store(self.lake)).head.gsn

    def wait_for_all(self, service: Service) -> None:
        until(lambda: self.gsn() >= self.bank.gsn or not service.is_running, 90, self.log())
        assert service.is_running, self.log()

    def log(self) -> str:
        text = (self.directory / "logs" / f"spark-{self.name}.log").read_text(errors="replace")
        return "\n".join(line[:300] for line in text.splitlines() if not line.startswith("\tat"))[-6000:]


@pytest.fixture(params=["local", "s3"])
def landed(request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Landed:
    if request.param == "local":
        lake: dict[str, Any] = {"uri": str(tmp_path / "lake")}
    else:
        s3: S3Server = request.getfixturevalue("s3")
        lake = s3.lake_config().model_dump(include={"uri", "options"})
    return Landed(tmp_path, kafka.bootstrap_servers, unique, lake)


def test_killed_at_every_fail_point_with_and_without_the_checkpoint(landed: Landed) -> None:
    with Watcher(landed.lake) as watcher:
        for number, point in enumerate(POINTS):
            landed.bank.work(5)
            service = landed.start(LOWWATER_FAIL_AT=point)
            # there is always something to land, so every point is passed
            landed.bank.work(5)
            assert service.wait(120) == KILLED, f"{point}: {landed.log()}"
            if number % 2:
                landed.forget_checkpoint()
        service = landed.start()
        landed.bank.work(5)
        landed.wait_for_all(service)
        service.stop()
    assert len(watcher.versions) >= 3
    landed.bank.check(landed.lake)
    assert not [d for d in verify(open_lake_store(landed.lake)) if not d.rubbish]
