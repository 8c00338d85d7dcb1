"""The runner: starts and supervises the services of a config on one machine."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from lowwater.errors import LowwaterError
from lowwater.runtime import config
from lowwater.runtime.config import Settings
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner import services
from lowwater_fleet.runner.follow import Follower
from lowwater_fleet.runner.services import Service

Say = Callable[[str], None]

#: the broker may be started at the same time as the fleet
KAFKA_SECONDS_MAX = 60.0


class Runner:
    """All services of one config: control, an extractor per source, a merger per group, Spark per group with a lake."""

    def __init__(self, config_file: Path, directory: Path, follows_control: bool = False) -> None:
        """`follows_control`: run the services of the control topic's plan, not only those of the config file."""
        self.config_file = config_file
        self.settings: Settings = config.load(config_file)
        logs = directory / "logs"
        self.services: dict[str, Service] = {}
        self.add(services.control(self.settings, config_file, logs))
        self._follower = Follower(self.settings, self.services, directory) if follows_control else None
        if self._follower is not None:
            return
        for service in (
            *(services.extractor(self.settings, config_file, s, logs) for s in self.settings.sources),
            *(services.merger(self.settings, config_file, g, logs) for g in self.settings.groups),
            *(services.lander(self.settings, config_file, g, logs) for g in self._landed()),
        ):
            self.add(service)

    def _landed(self) -> list[str]:
        return [name for name, group in self.settings.groups.items() if group.lake is not None]

    def add(self, service: Service) -> Service:
        self.services[service.name] = service
        return service

    def start(self) -> None:
        for service in list(self.services.values()):
            if not service.is_running:
                service.start()
        if self._follower is not None:
            self._follower.connect(KAFKA_SECONDS_MAX)

    def supervise(self) -> None:
        if self._follower is not None:
            self._follower.follow()
        for service in list(self.services.values()):
            service.supervise()

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.close()
        for service in reversed(list(self.services.values())):
            service.stop()

    def status(self, name: str) -> dict[str, Any]:
        return self.services[name].status() or {}


def end_as_by_ctrl_c() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that they also stop the services."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def start_kafka(directory: Path, say: Say, port: int = 0) -> EmbeddedKafka:
    kafka = EmbeddedKafka(directory / "kafka", port=port)
    kafka.start(progress=say)
    return kafka


def fresh_directory(directory: Path) -> Path:
    """Empty the directory. A broker of an earlier run is killed first."""
    if (directory / "kafka").exists():
        EmbeddedKafka(directory / "kafka", port=0).kill()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def wait_for(
    what: str, check: Callable[[], Any], seconds: float, each: Callable[[], object] = lambda: None, hint: str = ""
) -> Any:
    """Poll `check` until its result is true, and return it; `each` is called between polls. Raises LowwaterError after
    `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > deadline:
            raise LowwaterError(f"waited {seconds:.0f} s for {what}", hint=hint or "see the services' logs")
        each()
        time.sleep(0.1)
    return found
