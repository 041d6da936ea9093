"""A schema registry on loopback: it answers GET /schemas/ids/{id} as Confluent's does."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"


@dataclass
class FakeRegistry:
    """The answers of a registry. `statuses` come first, one for each request."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    user_info: str | None = None
    asked: list[int] = field(default_factory=list)
    encoding: str | None = None
    """The header Content-Encoding of each answer. The body is not encoded."""

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for a request."""
        if self.statuses:
            return self.statuses.pop(0), {"Location": "http://127.0.0.1:9/"}, b"<html>"
        expected = None if self.user_info is None else f"Basic {base64.b64encode(self.user_info.encode()).decode()}"
        if authorization != expected:
            return 401, {}, b'{"error_code": 401}'
        prefix, _, number = path.rpartition("/")
        if prefix != "/schemas/ids":
            return 404, {}, b'{"error_code": 404}'
        self.asked.append(int(number))
        schema = self.schemas.get(int(number))
        return (404, {}, b'{"error_code": 40403}') if schema is None else (200, {}, json.dumps(schema).encode())


@contextmanager
def schema_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Serve a registry while the block lasts, with TLS by the context of a server."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if registry.encoding is not None:
                headers = {**headers, "Content-Encoding": registry.encoding}
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        registry.url = f"http{'' if tls is None else 's'}://{LOOPBACK}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join(10)
