"""One exchange with an HTTP server: every status is an answer, no redirect is followed, no answer goes on for ever."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request

import pytest

from streamgroup.errors import TransportError
from streamgroup.kafka.net.resolve import Address, HostLookup
from streamgroup.kafka.net.sasl.http_exchange import Advice, HttpResponse, exchange
from tests.waiting import TIMEOUT_S

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
            thread.join(TIMEOUT_S)


def asked(url: str, timeout: float = TIMEOUT_S, most_bytes: int = 100) -> HttpResponse:
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


def test_an_answer_that_is_too_long_is_given_up() -> None:
    def long(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"x" * 101)

    with served(long) as url, pytest.raises(TransportError, match=r"has more than 100 bytes\. Check the network"):
        asked(url)


@pytest.mark.parametrize(
    "begin",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 Unavailable\r\n\r\n"],
    ids=["status", "headers", "body", "body of an error"],
)
def test_an_answer_that_comes_byte_by_byte_is_given_up_at_the_deadline(begin: bytes) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begin)
        while not over.wait(0.02):
            handler.wfile.write(b"x")

    try:
        with (
            served(drip) as url,
            pytest.raises(TransportError, match=r"^cannot ask: no complete answer within 0\.3 s\. Check the network$"),
        ):
            asked(url, timeout=0.3, most_bytes=1 << 20)
    finally:
        over.set()


def test_all_addresses_of_a_host_share_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as full:  # its backlog of one is taken, so it accepts nothing more
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        address = Address(socket.AF_INET, ("127.0.0.1", port))
        with socket.create_connection(("127.0.0.1", port)):
            monkeypatch.setattr(HostLookup, "addresses", lambda lookup: [address] * 1000)
            with pytest.raises(TransportError, match=r"no complete answer within 0\.3 s"):
                asked(f"http://127.0.0.1:{port}/", timeout=0.3)


def test_what_is_not_http_is_an_error_without_the_text_of_the_server() -> None:
    with (
        served(lambda handler: handler.wfile.write(b"hunter2\r\n")) as url,
        pytest.raises(TransportError, match=r"cannot ask: the answer is not HTTP or is incomplete \(Bad") as caught,
    ):
        asked(url)
    assert "hunter2" not in str(caught.value)
