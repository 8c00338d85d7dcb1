"""What a service shows over HTTP: `/health/live`, `/health/ready`, `/metrics`, `/status`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app

from lowwater.config import HttpConfig
from lowwater.errors import ConfigError

#: a loop that has not ticked for this long is stuck; a broker's restart takes less
LIVE_SECONDS_MAX = 120.0


class Health:
    """Filled by a service's loop, read by the HTTP thread."""

    def __init__(self) -> None:
        self._ticked = time.monotonic()
        self._not_ready: str | None = "starting"
        self._status: Callable[[], dict[str, Any]] = dict

    def tick(self) -> None:
        self._ticked = time.monotonic()

    def ready(self) -> None:
        self._not_ready = None

    def not_ready(self, why: str) -> None:
        self._not_ready = why

    def show(self, status: dict[str, Any]) -> None:
        """A finished picture: the HTTP thread never looks into a loop's own state."""
        self._status = lambda: status

    def live(self) -> tuple[bool, str]:
        age = time.monotonic() - self._ticked
        return age < LIVE_SECONDS_MAX, f"the loop ticked {age:.1f} s ago"

    def readiness(self) -> tuple[bool, str]:
        return self._not_ready is None, self._not_ready or "ready"

    def status(self) -> dict[str, Any]:
        return self._status()


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
