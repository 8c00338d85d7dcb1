"""Traces by OpenTelemetry, where it is installed (`lowwater[otel]`) and told where to send them.

Spans are for batches (a Kafka transaction, a landing) and for requests, never for rows. Without it a span costs one
look at a variable. Settings are OpenTelemetry's own: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from structlog.typing import EventDict, WrappedLogger

from lowwater.errors import ConfigError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NONE: AbstractContextManager[Any] = nullcontext()
_tracer: Any = None


def configure(service: str, exporter: Any = None) -> None:
    """For this process; nothing happens where no endpoint is set. `exporter` is for tests."""
    global _tracer
    if exporter is None and not any(os.environ.get(name) for name in ENDPOINTS):
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "a place for traces is set, but OpenTelemetry is not installed",
            hint=f"pip install 'lowwater[otel]', or unset {' and '.join(ENDPOINTS)}",
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"lowwater-{service}"}))
    if exporter is None:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    else:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    _tracer = provider.get_tracer("lowwater")


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """A step of a batch; what is logged inside carries its ids."""
    if _tracer is None:
        return _NONE
    named = {f"lowwater.{key}": value for key, value in attributes.items()}
    found: AbstractContextManager[Any] = _tracer.start_as_current_span(name, attributes=named)
    return found


def request_span(name: str, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[Any]:
    """A request's, a part of its caller's trace where that was sent (`traceparent`); headers are as in ASGI."""
    if _tracer is None:
        return _NONE
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    context = TraceContextTextMapPropagator().extract(texts)
    found: AbstractContextManager[Any] = _tracer.start_as_current_span(
        name, context=context, kind=trace.SpanKind.SERVER
    )
    return found


def add_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """For structlog: the ids of the span that is open."""
    if _tracer is not None:
        from opentelemetry import trace

        found = trace.get_current_span().get_span_context()
        if found.is_valid:
            event["trace_id"] = trace.format_trace_id(found.trace_id)
            event["span_id"] = trace.format_span_id(found.span_id)
    return event
