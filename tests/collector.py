"""A collector of traces on loopback: it takes spans as OpenTelemetry's own does, and keeps them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What was sent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.spans: list[dict[str, Any]] = []
        self.services: set[str] = set()

    def take(self, content: bytes) -> None:
        """Keep the spans of one request."""
        request = ExportTraceServiceRequest()
        request.ParseFromString(content)
        for resource in request.resource_spans:
            self.services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += [_told(span) for span in scope.spans]


def _told(span: Any) -> dict[str, Any]:
    values = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
    ids = {"trace": span.trace_id.hex(), "parent": span.parent_span_id.hex()}
    return {"name": span.name, "status": span.status.code, "kind": span.kind, **ids, **values}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            is_packed = self.headers.get("content-encoding") == "gzip"
            if self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf":
                collector.take(gzip.decompress(content) if is_packed else content)
                self.send_response(200)
            else:
                self.send_response(404)
            self.end_headers()

        def log_message(self, *_given: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
