"""Follows the control topic, and starts and stops the services on this machine accordingly."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowwater.control.desired_state import wanted_fleet
from lowwater.control.fleet_reader import FleetReader
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.records.schemas import open_store
from lowwater.runtime.config import Settings
from lowwater.status.reporter import Reporter
from lowwater_fleet.runner import services
from lowwater_fleet.runner.desired_services import Planned, config_text, part_of, plan
from lowwater_fleet.runner.services import STOPPED_CODE, Service

_MAKE: dict[str, Callable[[Settings, Path, str, Path], Service]] = {
    "extractor": services.extractor,
    "merger": services.merger,
    "spark": services.lander,
}


class Follower:
    """Stateless: after a crash, the plan is computed again from the control topic."""

    def __init__(self, settings: Settings, running: dict[str, Service], directory: Path) -> None:
        """`running`: the runner's services by name. Services that were never in the plan are not touched."""
        self._settings = settings
        self._running = running
        self._directory = directory
        self._plan: dict[str, Planned] = {}
        self._reader: FleetReader | None = None
        self._reporter: Reporter | None = None

    def connect(self, timeout_seconds: float) -> None:
        admin = Admin(self._settings.kafka)
        admin.wait_for_broker(timeout_seconds)
        admin.ensure(topics.shared_topics())
        codec = open_store(self._settings).record_codec()
        self._reader = FleetReader(self._settings.kafka, codec)
        self._reporter = Reporter(self._settings.kafka, codec, "runner", socket.gethostname(), self._shown)
        self._apply()
        self._reporter.start()

    def follow(self) -> None:
        """Apply the commands written since the last call."""
        if self._reader is not None and self._reader.poll():
            self._apply()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._reporter is not None:
            self._reporter.stop()

    def _apply(self) -> None:
        assert self._reader is not None
        fleet = wanted_fleet(self._settings, self._reader.fold)
        wanted = plan(fleet, self._reader.fold)
        for key in [k for k in self._plan if k not in wanted]:
            self._running.pop(key).stop()
        for key, planned in wanted.items():
            before = self._plan.get(key)
            if before is None or before.digest != planned.digest:
                self._replace(fleet.settings, planned)
            self._bring(self._running[key], planned.is_up)
        self._plan = wanted

    def _replace(self, settings: Settings, planned: Planned) -> None:
        """Replace the service by one with the new config."""
        before = self._running.pop(planned.key, None)
        if before is not None:
            before.stop()
        part = part_of(settings, planned.service, planned.name)
        path = self._directory / "run" / f"{planned.key}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_text(part))
        self._running[planned.key] = _MAKE[planned.service](part, path, planned.name, self._directory / "logs")

    def _bring(self, service: Service, is_up: bool) -> None:
        if not is_up:
            service.stop()
        elif service.process is None or service.is_stopped or (not service.is_running and _ended_well(service)):
            service.start()

    def _shown(self) -> dict[str, Any]:
        return {
            "state": "running",
            "directory": str(self._directory),
            "processes": {
                name: {
                    "state": service.state,
                    "restarts": service.restarts,
                    "pid": service.process.pid if service.process and service.is_running else None,
                    "log": str(service.log),
                }
                for name, service in list(self._running.items())
            },
        }


def _ended_well(service: Service) -> bool:
    """Whether it ended with exit code 0, after a command to stop. A later command may start it again."""
    return service.process is not None and service.process.returncode == STOPPED_CODE
