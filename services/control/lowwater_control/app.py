"""Creates the application: routes, error handlers, request guard, metrics and web page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from lowwater import __version__
from lowwater.records.schemas import SchemaStore
from lowwater.runtime.config import Settings
from lowwater_control.auth import Guard
from lowwater_control.dependencies import Parts
from lowwater_control.metrics import add_metrics
from lowwater_control.problems import Problem, add_problems
from lowwater_control.routes import copies, events, groups, lakes, sources
from lowwater_control.routes.lakes import Lakes
from lowwater_control.routes.registry import Lookup, add_registry
from lowwater_control.stores.control_store import ControlStore
from lowwater_control.stores.extractor_rpc import ExtractorProgram

PAGE = Path(__file__).parent / "page"
#: the page loads nothing from other hosts and cannot be framed
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
DESCRIPTION = """Operate a lowwater fleet: sources, groups, positions, copies, landings, live events.

Errors are problem details (RFC 9457); `hint` says what to do. All state is in Kafka: any number of replicas can run,
and a write is answered after it was read back. If tokens are configured, send `Authorization: Bearer …`."""


def create_app(settings: Settings, store: SchemaStore) -> FastAPI:
    parts = Parts(ControlStore(settings, store.record_codec()), store, ExtractorProgram(), Lakes())

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        parts.control.start()
        yield
        parts.control.stop()
        parts.program.close()

    app = FastAPI(
        title="lowwater", version=__version__, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.parts = parts
    add_problems(app)
    for router in (events.router, sources.router, copies.router, groups.router, lakes.router):
        app.include_router(router)
    lookup = Lookup(store)
    add_registry(app, lookup)
    _add_health(app, parts)
    _add_page(app)
    app.openapi = lambda: _openapi(app, bool(settings.control.tokens))  # type: ignore[method-assign]
    add_metrics(app)
    app.add_middleware(Guard, config=settings.control)
    return app


def _openapi(app: FastAPI, has_tokens: bool) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        if has_tokens:
            found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"token": []}]
        app.openapi_schema = found
    return app.openapi_schema


def _add_health(app: FastAPI, parts: Parts) -> None:
    @app.get("/health/live", tags=["health"], response_class=PlainTextResponse)
    def live() -> str:
        return "live\n"

    @app.get("/health/ready", tags=["health"], response_class=PlainTextResponse)
    def ready() -> str:
        parts.control.fleet()
        return "ready\n"


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={**_PAGE_HEADERS, "Cache-Control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html", headers={**_PAGE_HEADERS, "Cache-Control": "no-cache"})

    app.mount("/page", StaticFiles(directory=PAGE), name="page")
