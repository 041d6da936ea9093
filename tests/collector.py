"""A collector of OpenTelemetry, which keeps the exports that it gets by OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """A collector of OTLP over HTTP: its URL, and what has come."""
    received: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sums(received: Sequence[ExportMetricsServiceRequest], name: str) -> list[float]:
    """Return the newest values of a counter, one for each set of attributes."""
    newest: dict[str, float] = {}
    for request in list(received):
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.sum.data_points if metric.name == name else ():
                        newest[str(sorted(map(str, point.attributes)))] = point.as_int or point.as_double
    return list(newest.values())
