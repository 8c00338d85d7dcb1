"""Metrics of the API, and the `/metrics` route."""

from __future__ import annotations

import time

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowwater import __version__
from lowwater.status import tracing
from lowwater.status.metrics import BUILD

REQUESTS = Counter("lowwater_control_requests_total", "requests by route and status", ["method", "route", "status"])
SECONDS = Histogram("lowwater_control_request_seconds", "seconds until the response starts", ["method", "route"])


class Measured:
    """ASGI middleware that measures requests. It does not buffer, so that event streams pass through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                # the route, not the path: paths contain names, and their number is unlimited
                route = getattr(scope.get("route"), "path", "none")
                REQUESTS.labels(scope["method"], route, str(message["status"])).inc()
                SECONDS.labels(scope["method"], route).observe(time.monotonic() - started)
                if span is not None:
                    span.update_name(f"{scope['method']} {route}")
            await send(message)

        with tracing.request_span(scope["method"], scope["headers"]) as span:
            await self._app(scope, receive, watched)


def add_metrics(app: FastAPI) -> None:
    BUILD.labels("control", "control", __version__).set(1)
    app.add_middleware(Measured)

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
