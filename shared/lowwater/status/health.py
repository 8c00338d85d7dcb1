"""What a service shows over HTTP: `/health/live`, `/health/ready`, `/metrics`, `/status`.

A loop says what it does; whether that is any progress is worked out when somebody asks, so that a loop which hangs
cannot go on saying that it runs. Three clocks tell: `tick` (the loop is alive, perhaps waiting), `progressed` (it did
what there was to do, or there was nothing), and `failed` until `recovered` (an error that was met and not got past).
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

#: a loop that has not ticked for this long is stuck; a broker's restart takes less
LIVE_SECONDS_MAX = 120.0
#: without progress for this long, a service that is to run is `stalled`
STALL_SECONDS = 5.0
#: who is at rest, or has failed, is not expected to get on
_AT_REST = {"paused", "stopped", "failed"}


@dataclass(frozen=True)
class Stall:
    """No progress where there should have been some."""

    since_us: int
    seconds: float
    why: str

    def shown(self) -> dict[str, Any]:
        return {"since_us": self.since_us, "seconds": round(self.seconds, 1), "why": self.why}

    def error(self) -> dict[str, Any]:
        """As errors are shown, for one that nothing has raised."""
        hint = "see docs/operations/runbooks/LowwaterStalled.md"
        return {"error": "Stalled", "what": self.why, "source": None, "thread": None, "position": None, "hint": hint}


class Health:
    """Filled by a service's loop, read by the HTTP thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticked = clock()
        self._not_ready: str | None = "starting"
        self._status: dict[str, Any] = {}
        #: a service whose loop is slower by its own settings needs more
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
        """What there was to do was done, or there was nothing."""
        self._progressed = self._clock()
        if self._trouble:
            self._trouble, self._error = "", None
        if not self._needs_proof:
            self._failure = None

    def doing(self, what: str) -> None:
        """For the reason, should it never come back from it."""
        self._doing = what

    def trouble(self, why: str, error: dict[str, Any] | None = None) -> None:
        """What keeps it from its work, as far as it knows. Shown once that has lasted."""
        self._trouble, self._error = why, error

    def failed(self, error: dict[str, Any], status: dict[str, Any], *, needs_proof: bool = False) -> None:
        """From now on `failed`, whatever it shows, until it gets on: to try again is not to run.

        `needs_proof`: until it has `recovered`, because it may get on for a while and then meet the same again.
        """
        self._failure, self._needs_proof = error, needs_proof
        self._status = {**status, "state": "failed", "error": error}

    def recovered(self) -> None:
        self._failure, self._needs_proof = None, False

    @property
    def is_failed(self) -> bool:
        return self._failure is not None

    def stall(self) -> Stall | None:
        """None where it gets on, or need not."""
        state = self._status.get("state", "starting")
        seconds = self._clock() - self._progressed
        is_starting = state == "starting" and not self._trouble
        if self._failure is not None or state in _AT_REST or is_starting or seconds <= self.stall_seconds:
            return None
        why = self._trouble or (f"it does not come back from: {self._doing}" if self._doing else "no progress")
        return Stall(now_us() - int(seconds * 1e6), seconds, why)

    def ready(self) -> None:
        self._not_ready = None

    def not_ready(self, why: str) -> None:
        self._not_ready = why

    def show(self, status: dict[str, Any]) -> None:
        """A finished picture: the HTTP thread never looks into a loop's own state."""
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
        """Probes every few seconds are not worth a line each."""


def serve(health: Health, http: HttpConfig, registry: CollectorRegistry = REGISTRY) -> int:
    """Serve from a thread of its own; the port it listens on."""
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
