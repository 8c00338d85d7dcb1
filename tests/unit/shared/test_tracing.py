"""Traces: real spans, and their ids in what is logged. Nothing where nobody asked for them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from lowwater.errors import ConfigError
from lowwater.runtime import logs
from lowwater.runtime.config import Settings
from lowwater.status import tracing
from lowwater_control.metrics import Measured

CALLER = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    monkeypatch.setattr(tracing, "_tracer", None)
    exporter = InMemorySpanExporter()
    tracing.configure("test", exporter)
    return exporter


def _logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_what_is_logged_in_a_span_carries_its_ids(
    spans: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs.configure(Settings.model_validate({}))
    with tracing.span("release", group="bank", next_gsn=7):
        log.info("inside")
    log.info("outside")
    inside, outside = _logged(capsys)
    (span,) = spans.get_finished_spans()
    assert span.name == "release"
    assert dict(span.attributes or {}) == {"lowwater.group": "bank", "lowwater.next_gsn": 7}
    assert inside["trace_id"] == f"{span.context.trace_id:032x}"
    assert inside["span_id"] == f"{span.context.span_id:016x}"
    assert "trace_id" not in outside


def test_a_request_goes_on_with_its_callers_trace(spans: InMemorySpanExporter) -> None:
    async def answer(_request: Request) -> PlainTextResponse:
        with tracing.span("inside"):
            return PlainTextResponse("yes")

    app = Measured(Starlette(routes=[Route("/v1/sources/{name}", answer)]))
    TestClient(app).get("/v1/sources/bank", headers={"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"})
    inside, request = spans.get_finished_spans()
    assert {f"{s.context.trace_id:032x}" for s in (inside, request)} == {CALLER}
    assert inside.parent is not None
    assert inside.parent.span_id == request.context.span_id


def test_without_a_place_for_traces_there_are_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    tracing.configure("test")
    with tracing.span("release", group="bank") as span, tracing.request_span("GET", []) as request:
        logs.configure(Settings.model_validate({})).info("inside")
    assert span is None
    assert request is None
    assert "trace_id" not in _logged(capsys)[0]


def test_a_place_for_traces_without_the_extra_is_an_error_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINTS[1], "http://collector:4318")
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match="not installed") as refused:
        tracing.configure("test")
    assert "lowwater[otel]" in str(refused.value.hint)
