"""Tokens for OAUTHBEARER, from a token endpoint on the loopback, from files and from functions."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import Request

import pytest

from streamgroup.errors import AuthenticationError, ConfigError, TransportError
from streamgroup.kafka.net.resolve import Address, HostLookup
from streamgroup.kafka.net.sasl.mechanisms import OAuthBearerMechanism
from streamgroup.kafka.net.sasl.tokens import (
    Advice,
    HttpResponse,
    Tokens,
    described_end,
    end_of,
    exchange,
    unsecured_token,
)
from streamgroup.kafka.net.tls.contexts import endpoint_context
from streamgroup.options.sasl import OAuthOptions
from streamgroup.options.secrets import Secret
from streamgroup.testing import Authority, Identity
from tests.certificates import server_context
from tests.clock import Clock
from tests.unit.kafka.net.tls_servers import trusting
from tests.waiting import TIMEOUT_S

NOW = 1_000_000.0


class Endpoint(ThreadingHTTPServer):
    """A token endpoint that gives `answers` in turn, the last one for ever, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def options(self, **others: Any) -> OAuthOptions:
        return OAuthOptions(self.url, "me", Secret("s3cr+t"), **others)


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], form))
        status, answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def no_tls() -> Any:
    raise AssertionError("no TLS is needed")


def get(options: OAuthOptions, tokens: Tokens | None = None) -> str:
    return (tokens or Tokens(Clock(NOW))).get(options, no_tls)


def json_web_token(claims: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.sig"


def test_an_endpoint_is_asked_as_the_rfc_says(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, {"access_token": "tok", "expires_in": 60})]
    assert get(endpoint.options(scope="a b")) == "tok"
    ((authorization, form),) = endpoint.asked
    assert authorization == "Basic " + base64.b64encode(b"me:s3cr+t").decode()
    assert urllib.parse.parse_qs(form) == {"grant_type": ["client_credentials"], "scope": ["a b"]}


def test_credentials_are_encoded_where_the_option_says_so(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, {"access_token": "tok"})]
    get(endpoint.options(header_urlencode=True))
    assert endpoint.asked[0][0] == "Basic " + base64.b64encode(b"me:s3cr%2Bt").decode()


@pytest.mark.parametrize(
    "answer", [{"access_token": "1", "expires_in": 100}, {"access_token": json_web_token(f'{{"exp": {NOW + 100}}}')}]
)
def test_a_token_is_used_for_four_fifths_of_its_life(endpoint: Endpoint, answer: dict[str, Any]) -> None:
    endpoint.answers = [(200, answer), (200, {"access_token": "2", "expires_in": 100})]
    tokens = Tokens(clock := Clock(NOW))
    first = get(endpoint.options(), tokens)
    clock.now += 79
    assert get(endpoint.options(), tokens) == first
    clock.now += 2
    assert get(endpoint.options(), tokens) == "2"
    assert len(endpoint.asked) == 2


def test_a_token_without_an_end_is_asked_for_each_time(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, {"access_token": "opaque"})]
    tokens = Tokens(Clock(NOW))
    assert [get(endpoint.options(), tokens) for _ in range(3)] == ["opaque"] * 3
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("status", "answer", "kind", "message"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": "unknown"},
            AuthenticationError,
            "401 .invalid_client: un",
        ),
        (400, b"<html>", AuthenticationError, "HTTP status 400. Check the client id"),
        (200, b"[]", AuthenticationError, "its answer has no access_token"),
        (200, b"{", AuthenticationError, "its answer has no access_token"),
        (200, {"access_token": 7}, AuthenticationError, "its answer has no access_token"),
        (429, {}, TransportError, "HTTP status 429. A retry"),
        (503, {}, TransportError, "HTTP status 503. A retry"),
        (
            401,
            {"error": "bad", "error_description": "not s3cr+t,\ns3cr%2Bt"},
            AuthenticationError,
            r"bad: not \*+,\ufffd\*+\)",
        ),
    ],
)
def test_a_refusal_names_the_endpoint_and_no_secret(
    endpoint: Endpoint, status: int, answer: Any, kind: type[Exception], message: str
) -> None:
    endpoint.answers = [(status, answer)]
    with pytest.raises(kind, match=message) as caught:
        get(endpoint.options())
    assert f"from {endpoint.url}:" in str(caught.value)
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize("lifetime", [10**400, float("inf"), float("nan"), -(10**400), 1e300])
def test_any_number_may_be_a_lifetime(endpoint: Endpoint, lifetime: float) -> None:
    endpoint.answers = [(200, {"access_token": "tok", "expires_in": lifetime})]
    assert get(endpoint.options()) == "tok"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_with_the_credentials(endpoint: Endpoint, status: int) -> None:
    with Endpoint() as other:
        endpoint.headers = {"Location": f"http://user:pw@localhost:{other.server_port}/token/v2?key=pw#pw"}
        endpoint.answers = [(status, {})]
        with pytest.raises(AuthenticationError) as caught:
            get(endpoint.options())
        assert other.asked == []
        assert str(caught.value) == (
            f"cannot get a token for SASL OAUTHBEARER from {endpoint.url}: HTTP status {status}, a redirect to "
            f"http://localhost:{other.server_port}/token/v2. It is not followed, because the client secret would go to "
            "host localhost. If that is the token endpoint, set kafka.sasl.oauthbearer.token.endpoint.url to its "
            "address"
        )
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/v2/token", "a redirect to http://127.0.0.1:{port}/v2/token. It is not followed"),
        ("http://[", "a redirect to an invalid address. Correct kafka.sasl"),
        ("file:///etc/passwd", "a redirect to an invalid address. Correct kafka.sasl"),
        ("http://elsewhere/s3cr+t/s3cr%2Bt", r"a redirect to http://elsewhere/*****/*****. It"),
        ("http://elsewhere/" + "x" * 5_000, "xxx. It is not followed"),
    ],
)
def test_any_target_of_a_redirect_is_shown_short_and_without_secrets(
    endpoint: Endpoint, location: str, shown: str
) -> None:
    endpoint.headers = {"Location": location}
    endpoint.answers = [(302, {})]
    with pytest.raises(AuthenticationError) as caught:
        get(endpoint.options())
    assert shown.format(port=endpoint.server_port) in str(caught.value)
    assert "s3cr" not in str(caught.value)
    assert len(str(caught.value)) < 800


def test_a_redirect_without_a_target_is_a_status(endpoint: Endpoint) -> None:
    endpoint.answers = [(302, {})]
    with pytest.raises(AuthenticationError, match=r"HTTP status 302\. Check the client id"):
        get(endpoint.options())


@pytest.fixture
def over_tls(tmp_path: Path) -> Iterator[Callable[[Identity], Endpoint]]:
    """Starts an endpoint with TLS that shows a certificate."""
    with contextlib.ExitStack() as closing:

        def start(identity: Identity) -> Endpoint:
            server = closing.enter_context(Endpoint())
            server.answers = [(200, {"access_token": "tok"})]
            server.socket = server_context(identity, tmp_path).wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            closing.callback(server.shutdown)
            return server

        yield start


def ask_over_tls(server: Endpoint, trusted: Authority, host: str = "localhost") -> str:
    options = OAuthOptions(f"https://{host}:{server.server_port}/token", "me", Secret("s3cret"))
    return Tokens(Clock(NOW)).get(options, lambda: endpoint_context(trusting(trusted)))


def test_a_certificate_for_other_hosts_is_refused_with_its_names(
    over_tls: Callable[[Identity], Endpoint], authority: Authority
) -> None:
    server = over_tls(authority.issue(hosts=["id.example.com", "tokens.example.com", "192.0.2.7"]))
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(AuthenticationError) as caught:
            ask_over_tls(server, authority, host)
        assert str(caught.value) == (
            f"cannot get a token for SASL OAUTHBEARER from https://{host}:{server.server_port}/token: its certificate "
            f"is not valid for the host name '{host}', but for id.example.com, tokens.example.com, 192.0.2.7. Name the "
            "endpoint in kafka.sasl.oauthbearer.token.endpoint.url as its certificate does, or add the host name to "
            "the certificate (subjectAltName)"
        )
    assert server.asked == [], "the client secret stays here"


def test_a_certificate_of_an_unknown_authority_is_refused(
    over_tls: Callable[[Identity], Endpoint], authority: Authority
) -> None:
    server = over_tls(Authority.create("another").issue())
    with pytest.raises(AuthenticationError, match=r"its certificate is not trusted: .*\. Add the endpoint's authority"):
        ask_over_tls(server, authority)
    assert server.asked == []
    assert ask_over_tls(over_tls(authority.issue()), authority) == "tok"


def test_an_endpoint_that_does_not_exist_may_be_asked_again() -> None:
    options = OAuthOptions("http://127.0.0.1:1/token?pw", "me", Secret("s3cret"))
    with pytest.raises(TransportError, match=r"from http://127.0.0.1:1/token: .*refused") as caught:
        get(options)
    assert "pw" not in str(caught.value)


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    options = OAuthOptions(file.as_uri())
    tokens = Tokens(Clock(NOW))
    for text in ("one\n", "two"):
        file.write_text(text)
        assert get(options, tokens) == text.strip()
    file.unlink()
    with pytest.raises(ConfigError, match=f"file {file}: No such file"):
        get(options, tokens)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("signer")
    monkeypatch.setitem(sys.modules, "signer", made)
    return made


def test_a_function_gives_a_token_and_its_end(module: ModuleType) -> None:
    given = [("one", (NOW + 100) * 1000), ("two", (NOW + 200) * 1000)]
    module.token = lambda: given.pop(0)  # type: ignore[attr-defined]
    tokens = Tokens(clock := Clock(NOW))
    options = OAuthOptions(provider="signer:token")
    assert (get(options, tokens), get(options, tokens)) == ("one", "one")
    clock.now += 81
    assert get(options, tokens) == "two"


def failing() -> str:
    raise ValueError("s3cret")


@pytest.mark.parametrize(
    ("name", "function", "kind", "message"),
    [
        ("token", failing, TransportError, "the function raised ValueError. Call it in a Python shell"),
        ("token", lambda: 7, ConfigError, "must return a text"),
        ("token", lambda: ("a", "b"), ConfigError, "must return a text"),
        ("other", failing, ConfigError, "has no attribute 'token'"),
    ],
)
def test_a_function_that_fails_is_named(
    module: ModuleType, name: str, function: Any, kind: type[Exception], message: str
) -> None:
    setattr(module, name, function)
    with pytest.raises(kind, match=message) as caught:
        get(OAuthOptions(provider="signer:token"))
    assert "s3cret" not in str(caught.value)


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"No module named 'not_there'. Install its package for the driver"):
        get(OAuthOptions(provider="not_there:token"))


@pytest.mark.parametrize(
    ("token", "end"),
    [
        (json_web_token('{"exp": 1700000000}'), 1_700_000_000.0),
        (json_web_token('{"exp": 1700000000.5}'), 1_700_000_000.5),
        (json_web_token('{"exp": true}'), None),
        (json_web_token(f'{{"exp": 1{"0" * 400}}}'), None),
        (json_web_token('{"exp": 1e999}'), None),
        (json_web_token('{"exp": "soon"}'), None),
        (json_web_token("{}"), None),
        (json_web_token("[1]"), None),
        (json_web_token("no JSON"), None),
        ("e30.*", None),
        ("opaque", None),
        ("", None),
    ],
)
def test_the_end_is_that_of_a_jwt(token: str, end: float | None) -> None:
    assert end_of(token) == end


@pytest.mark.parametrize(
    ("exp", "shown"), [("1700000000", "2023-11-14 22:13:20 UTC"), ("1e300", ""), ("-1e300", ""), ("NaN", "")]
)
def test_the_end_is_described_if_the_calendar_has_it(exp: str, shown: str) -> None:
    assert described_end(json_web_token(f'{{"exp": {exp}}}')) == shown


def part(text: str) -> dict[str, object]:
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def test_a_token_without_a_signature_has_the_claims_and_its_times() -> None:
    token = unsecured_token({"sub": "alice é", "iat": "forged"}, 1_700_000_000.9, 3_600)
    header, claims, signature = token.split(".")
    assert part(header) == {"alg": "none"}
    assert part(claims) == {"sub": "alice é", "iat": 1_700_000_000, "exp": 1_700_003_600}
    assert signature == ""
    assert OAuthBearerMechanism("b:1", token).first().startswith(b"n,,\x01auth=Bearer ")


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
