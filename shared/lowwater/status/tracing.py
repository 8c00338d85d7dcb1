"""OpenTelemetry traces, if it is installed (`lowwater[otel]`) and an endpoint is configured.

Spans are for batches (a Kafka transaction, a landing) and for requests, never for rows. Without an endpoint a span
costs one check of a variable. The settings are those of OpenTelemetry: `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_TRACES_SAMPLER`, …
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
    """Enables tracing for this process if an endpoint is set. `exporter` is for tests."""
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
            "an endpoint for traces is set, but OpenTelemetry is not installed",
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
    """A span for a step of a batch; log events inside it have its ids."""
    if _tracer is None:
        return _NONE
    named = {f"lowwater.{key}": value for key, value in attributes.items()}
    found: AbstractContextManager[Any] = _tracer.start_as_current_span(name, attributes=named)
    return found


def request_span(name: str, headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[Any]:
    """A span for a request, in the caller's trace if the headers (as in ASGI) contain `traceparent`."""
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
    """A structlog processor that adds the ids of the current span."""
    if _tracer is not None:
        from opentelemetry import trace

        found = trace.get_current_span().get_span_context()
        if found.is_valid:
            event["trace_id"] = trace.format_trace_id(found.trace_id)
            event["span_id"] = trace.format_span_id(found.span_id)
    return event
