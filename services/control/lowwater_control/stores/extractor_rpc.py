"""Runs `lowwater-extractor --ask`: this service has no database drivers and no code of source kinds."""

from __future__ import annotations

import json
import select
import subprocess
import threading
from typing import Any

from lowwater.control.extractor_rpc import COMMAND, answer_of, ask, wrong_fields
from lowwater_control.problems import BusyError

OFFLINE_SECONDS_MAX = 30.0
#: the maximum number of concurrent requests to databases
LIVE_MAX = 4


class ExtractorProgram:
    """Requests to extractor processes. Requests without a database share one process that stays open; every other
    request has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._free = threading.BoundedSemaphore(LIVE_MAX)
        self._kinds: dict[str, Any] = {}

    def kinds(self) -> dict[str, Any]:
        if not self._kinds:
            self._kinds = self._offline({"do": "kinds"})
        return self._kinds

    def config_errors(self, name: str, kind: str, config: dict[str, Any]) -> list[tuple[str, str]]:
        return wrong_fields(self._offline({"do": "config", "name": name, "kind": kind, "config": config}))

    def live(self, request: dict[str, Any]) -> dict[str, Any]:
        """A request that needs a database or Kafka. Raises BusyError while LIVE_MAX requests are running."""
        if not self._free.acquire(timeout=5):
            raise BusyError(f"{LIVE_MAX} requests to databases are already running", hint="retry in a moment")
        try:
            return ask(request)
        finally:
            self._free.release()

    def _offline(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = subprocess.Popen(
                    COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            assert process.stdin is not None
            assert process.stdout is not None
            line = ""
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                if select.select([process.stdout], [], [], OFFLINE_SECONDS_MAX)[0]:
                    line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                self._end(process)
        return answer_of(line)

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Kill the process, whose state is unknown. The next request starts a new one."""
        process.kill()
        process.wait()
        self._process = None

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._end(self._process)
