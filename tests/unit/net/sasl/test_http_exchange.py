"""One exchange with an HTTP server: every status is an answer, no redirect is followed, no answer goes on for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request

import pytest

from streamgroup.errors import TransportError
from streamgroup.net.sasl.http_exchange import Advice, HttpResponse, exchange, printable

ADVICE = Advice(reach="Check the network", trust="Trust it", host_name="Rename it")
Respond = Callable[[BaseHTTPRequestHandler], None]
Serve = Callable[[Respond], AbstractContextManager[str]]


@contextmanager
def served(respond: Respond) -> Iterator[str]:
    """Serve with `respond` while the block lasts, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join(10)


def asked(url: str, timeout: float = 5.0, most_bytes: int = 100) -> HttpResponse:
    def context() -> Any:
        raise AssertionError("no TLS")

    return exchange(Request(url), "cannot ask", ADVICE, context=context, timeout=timeout, most_bytes=most_bytes)


@pytest.mark.parametrize("status", [200, 302, 404, 503])
def test_every_status_is_an_answer_and_no_redirect_is_followed(status: int) -> None:
    paths = []

    def respond(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        handler.send_response(status)
        if status == 302:
            handler.send_header("Location", "/elsewhere")
        handler.end_headers()
        handler.wfile.write(b"body")

    with served(respond) as url:
        assert asked(url) == HttpResponse(status, b"body", "/elsewhere" if status == 302 else None)
    assert paths == ["/"]


def test_a_long_answer_and_one_that_does_not_end_are_given_up() -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not over.wait(0.02):
            handler.wfile.write(b"x")

    def long(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"x" * 101)

    with served(long) as url, pytest.raises(TransportError, match="has not ended within 5 s and 100 bytes"):
        asked(url)
    try:
        with served(drip) as url, pytest.raises(TransportError, match=r"has not ended .* Check the network"):
            asked(url, timeout=0.3, most_bytes=1 << 20)
    finally:
        over.set()


def test_what_is_not_http_is_an_error_without_the_text_of_the_server() -> None:
    with (
        served(lambda handler: handler.wfile.write(b"hunter2\r\n")) as url,
        pytest.raises(TransportError, match=r"cannot ask: the answer is not HTTP or is not whole \(Bad") as caught,
    ):
        asked(url)
    assert "hunter2" not in str(caught.value)


def test_the_text_of_a_server_stays_on_one_line() -> None:
    assert printable("a\nb\x1b[31mc") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[31mc"
