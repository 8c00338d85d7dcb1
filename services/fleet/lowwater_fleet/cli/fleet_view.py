"""The status of the fleet from the control and status topics, for commands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lowwater.control.desired_state import WantedFleet, wanted_fleet
from lowwater.control.fleet_reader import FleetReader
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.records.schemas import open_store
from lowwater.runtime.config import Settings
from lowwater.runtime.times import now_us
from lowwater.status.fleet_status import describe_fleet

#: time to read the recent records of the status topic, to which services write once a second
CATCH_UP_SECONDS = 0.6


class FleetView:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        admin = Admin(settings.kafka)
        admin.wait_for_broker(10)
        admin.ensure(topics.shared_topics())
        self.codec = open_store(settings).record_codec()
        self._reader = FleetReader(settings.kafka, self.codec)
        self._follow(CATCH_UP_SECONDS)

    def _follow(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._reader.poll(left)

    def wait(self, seconds: float) -> None:
        """Wait, and read new records meanwhile."""
        self._follow(seconds)

    @property
    def fleet(self) -> WantedFleet:
        return wanted_fleet(self.settings, self._reader.fold)

    def overview(self) -> dict[str, Any]:
        return describe_fleet(self.fleet, self._reader.fold, self._reader.statuses, now_us())

    def close(self) -> None:
        self._reader.close()


@contextmanager
def viewing(settings: Settings) -> Iterator[FleetView]:
    view = FleetView(settings)
    try:
        yield view
    finally:
        view.close()


_BAD = ("failed", "stalled", "unreachable")


def problems(overview: dict[str, Any]) -> list[str]:
    """Messages about everything that failed, stalled or is unreachable."""
    parts = [(f"source {s['name']}", s) for s in overview["sources"].values()]
    for group in overview["groups"].values():
        parts.append((f"group {group['name']}", group))
        if group["landing"]:
            parts.append((f"the landing of {group['name']}", group["landing"]))
    found = []
    for what, part in parts:
        if part["state"] in _BAD:
            why = (part["error"] or {}).get("what") or "no recent status"
            found.append(f"{what} is {part['state']}: {why}")
    return found
