"""The HTTP endpoints of a service: `/health/live`, `/health/ready`, `/metrics`, `/status`.

The service's loop reports events, and readiness is computed from their times at each request, so that a loop that
hangs is not shown as running. The events are `tick` (the loop is alive, perhaps waiting), `progressed` (all available
work is done), and `failed`, which lasts until progress or `recovered`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app

from lowwater.errors import ConfigError
from lowwater.runtime.config import HttpConfig
from lowwater.runtime.times import now_us

#: a loop without a tick for this long hangs; the restart of a broker takes less
LIVE_SECONDS_MAX = 120.0
#: without progress for this long, a service that is to run is `stalled`
STALL_SECONDS = 5.0
#: states in which no progress is expected
_AT_REST = {"paused", "stopped", "failed"}


@dataclass(frozen=True)
class Stall:
    """A lack of progress in a service that is to run."""

    since_us: int
    seconds: float
    why: str

    def shown(self) -> dict[str, Any]:
        return {"since_us": self.since_us, "seconds": round(self.seconds, 1), "why": self.why}

    def error(self) -> dict[str, Any]:
        """The stall in the format of `LowwaterError.fields`."""
        hint = "see docs/operations/runbooks/LowwaterStalled.md"
        return {"error": "Stalled", "what": self.why, "source": None, "thread": None, "position": None, "hint": hint}


class Health:
    """The health of a service: written by its loop, read by the HTTP thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticked = clock()
        self._not_ready: str | None = "starting"
        self._status: dict[str, Any] = {}
        #: a service whose settings make its loop slower sets a higher value
        self.stall_seconds = STALL_SECONDS
        self._progressed = clock()
        self._doing = ""
        self._trouble = ""
        self._error: dict[str, Any] | None = None
        self._failure: dict[str, Any] | None = None
        self._needs_proof = False

    def tick(self) -> None:
        self._ticked = self._clock()

    def progressed(self) -> None:
        """All available work is done."""
        self._progressed = self._clock()
        if self._trouble:
            self._trouble, self._error = "", None
        if not self._needs_proof:
            self._failure = None

    def doing(self, what: str) -> None:
        """Sets the current action, which is shown as the reason of a stall."""
        self._doing = what

    def trouble(self, why: str, error: dict[str, Any] | None = None) -> None:
        """Sets the cause that blocks the service. It is shown once the service is stalled."""
        self._trouble, self._error = why, error

    def failed(self, error: dict[str, Any], status: dict[str, Any], *, needs_proof: bool = False) -> None:
        """Sets the state `failed` until the next progress, also while the service retries.

        `needs_proof`: until `recovered` instead, because progress may be followed by the same error.
        """
        self._failure, self._needs_proof = error, needs_proof
        self._status = {**status, "state": "failed", "error": error}

    def recovered(self) -> None:
        self._failure, self._needs_proof = None, False

    @property
    def is_failed(self) -> bool:
        return self._failure is not None

    def stall(self) -> Stall | None:
        """The current stall; None if there is progress or none is expected."""
        state = self._status.get("state", "starting")
        seconds = self._clock() - self._progressed
        is_starting = state == "starting" and not self._trouble
        if self._failure is not None or state in _AT_REST or is_starting or seconds <= self.stall_seconds:
            return None
        why = self._trouble or (f"it does not return from: {self._doing}" if self._doing else "no progress")
        return Stall(now_us() - int(seconds * 1e6), seconds, why)

    def ready(self) -> None:
        self._not_ready = None

    def not_ready(self, why: str) -> None:
        self._not_ready = why

    def show(self, status: dict[str, Any]) -> None:
        """Sets the status to show. The HTTP thread reads only this dict, never the state of the loop."""
        self._status = status

    def live(self) -> tuple[bool, str]:
        age = self._clock() - self._ticked
        return age < LIVE_SECONDS_MAX, f"the loop ticked {age:.1f} s ago"

    def readiness(self) -> tuple[bool, str]:
        stall = self.stall()
        if stall is not None:
            return False, f"stalled for {stall.seconds:.0f} s: {stall.why}"
        if self._failure is not None and self._not_ready is None:
            return False, str(self._failure.get("what"))
        return self._not_ready is None, self._not_ready or "ready"

    def status(self) -> dict[str, Any]:
        status, failure, stall = self._status, self._failure, self.stall()
        if failure is not None:
            return {**status, "state": "failed", "error": failure}
        if stall is not None:
            return {**status, "state": "stalled", "stalled": stall.shown(), "error": self._error or stall.error()}
        return status or {"state": "starting"}


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: probes send one every few seconds."""


def serve(health: Health, http: HttpConfig, registry: CollectorRegistry = REGISTRY) -> int:
    """Serves the endpoints in a new thread; returns the port."""
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            body: Iterable[bytes] = metrics(environ, start)
            return body
        if path == "/health/live":
            good, text = health.live()
        elif path == "/health/ready":
            good, text = health.readiness()
        elif path == "/status":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(health.status(), default=str).encode()]
        else:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/health/live, /health/ready, /metrics, /status\n"]
        start("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [text.encode() + b"\n"]

    try:
        server = make_server(http.host, http.port, answer, server_class=_Server, handler_class=_Quiet)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {http.host}:{http.port}: {error.strerror}",
            hint="is this service running already? else give it another http.port, or --http-port 0",
        ) from error
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return int(server.server_port)
