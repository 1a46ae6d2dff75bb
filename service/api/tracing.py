"""OpenTelemetry spans, one for each request."""

import logging
from threading import Thread

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from service import __version__
from service.api.request_context import CONTEXT, UNMATCHED, RequestContext

PATH = "/v1/traces"
"""Path of a collector for spans. Source: OTLP 1.9, OTLP/HTTP request."""
EXPORT_SECONDS = 5.0
"""Longest wait for the collector; requests do not wait for it."""
LEAVE_SECONDS = 1.0
"""Longest wait for the last spans when the process stops."""
FAILED = 500
"""Lowest status of a failed span."""


class Tracing:
    """Exports spans of one application."""

    def __init__(self, endpoint: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        resource = Resource.create({"service.name": "traincost", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint + PATH, timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("traincost", __version__)

    def middleware(self) -> Middleware:
        """The middleware that creates spans."""
        return Middleware(TracingMiddleware, tracing=self)

    def flush(self) -> None:
        """Export the queued spans."""
        self._provider.force_flush()

    async def close(self) -> None:
        """Export the last spans, within LEAVE_SECONDS."""
        thread = Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        thread.start()
        await run_in_threadpool(thread.join, LEAVE_SECONDS)


class TracingMiddleware:
    """ASGI middleware that creates a span for each request."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self.app = app
        self._tracer = tracing.tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request inside its span."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request: RequestContext = scope["state"][CONTEXT]
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS
        }
        method = scope["method"]
        span = self._tracer.start_span(method, self._propagator.extract(headers), SpanKind.SERVER)
        token = context.attach(set_span_in_context(span))
        try:
            await self.app(scope, receive, send)
        finally:
            context.detach(token)
            span.set_attributes({"http.request.method": method, "traincost.request_id": request.request_id})
            if request.route != UNMATCHED:
                span.update_name(f"{method} {request.route}")
                span.set_attribute("http.route", request.route)
            if request.status is not None:
                span.set_attribute("http.response.status_code", request.status)
            if request.status is None or request.status >= FAILED:
                span.set_status(StatusCode.ERROR)
            span.end()


_HEADERS = frozenset((b"traceparent", b"tracestate"))
