"""A group with an ordered topic that the test writes, and its landing application as a process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from lowwater.lake.chain.chain import Chain
from lowwater.lake.store.base import open_lake_store
from lowwater.runtime import config
from lowwater.runtime.config import LakeConfig
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service
from tests.support.bank_topic import BankTopic, until
from tests.support.harness import LAND
from tests.support.ordered_topic import OrderedTopic


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
        self._started: list[Service] = []
        self.bank = BankTopic(OrderedTopic(self.settings, name))

    @property
    def lake(self) -> LakeConfig:
        found = self.settings.group(self.name).lake
        assert found is not None
        return found

    @property
    def is_local(self) -> bool:
        return "://" not in self.lake.uri

    def start(self, **environment: str) -> Service:
        service = services.lander(self.settings, self.path, self.name, self.directory / "logs")
        if any(s.is_running for s in self._started):
            service.command += ["--http-port", "0"]
        service.start(environment)
        self._started.append(service)
        return service

    def kill_all(self) -> None:
        for service in self._started:
            service.kill()

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self.directory / "state", ignore_errors=True)

    def gsn(self) -> int:
        return Chain.open(open_lake_store(self.lake)).head.gsn

    def wait_for_all(self, service: Service) -> None:
        until(lambda: self.gsn() >= self.bank.gsn or not service.is_running, 180, self.log())
        assert service.is_running, self.log()

    def log(self) -> str:
        text = (self.directory / "logs" / f"spark-{self.name}.log").read_text(errors="replace")
        return "\n".join(line[:300] for line in text.splitlines() if not line.startswith("\tat"))[-6000:]
