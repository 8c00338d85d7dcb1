"""How much memory a process takes at its peak."""

from __future__ import annotations

from pathlib import Path

from lowwater_fleet.runner.services import Service


class Peak:
    """Of a process that runs: the kernel keeps the highest that its own memory has been."""

    def __init__(self, service: Service) -> None:
        assert service.process is not None
        self._status = Path(f"/proc/{service.process.pid}/status")

    @property
    def megabytes(self) -> float:
        for line in self._status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
        raise AssertionError("the process has ended")
