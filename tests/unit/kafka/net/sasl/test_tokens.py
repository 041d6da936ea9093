"""Tokens for OAUTHBEARER, from an endpoint, files and functions, and the credentials of each mechanism."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.request import Request

import pytest

from streamgroup.errors import AuthenticationError, ConfigError, StreamGroupError, TransportError
from streamgroup.kafka.net.background import Background, WaitTimeout
from streamgroup.kafka.net.resolve import Address, HostLookup
from streamgroup.kafka.net.sasl import credentials
from streamgroup.kafka.net.sasl.credentials import begin_mechanism, make_mechanism
from streamgroup.kafka.net.sasl.kerberos import Tickets
from streamgroup.kafka.net.sasl.mechanisms import OAuthBearerMechanism
from streamgroup.kafka.net.sasl.renewals import Renewals
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
from streamgroup.options.sasl import KerberosOptions, OAuthOptions, SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.testing import Authority, Identity
from tests.certificates import server_context
from tests.clock import Clock
from tests.unit.kafka.net.sasl.test_kerberos import ALICE, Library
from tests.unit.kafka.net.tls_servers import trusting
from tests.waiting import TIMEOUT_S, wait_until

NOW = 1_000_000.0


class Endpoint(ThreadingHTTPServer):
    """A token endpoint that gives `answers` in turn, the last one for ever, and keeps what it was asked.

    An answer is a status and a body, or a function of the handler that sends it.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Any] = []
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
        answers = self.server.answers
        scripted = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(scripted):
            scripted(self)
            return
        status, answer = scripted
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(server: Endpoint) -> Iterator[Endpoint]:
    """Serve while the block lasts."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    with server:
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(TIMEOUT_S)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint()) as server:
        yield server


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
        (401, {"error": "invalid", "error_description": "unknown"}, AuthenticationError, "401 .invalid: unknown"),
        (400, b"<html>", AuthenticationError, "HTTP status 400. Check the client id"),
        (200, b"[]", AuthenticationError, "its answer has no access_token"),
        (200, b"{", AuthenticationError, "its answer has no access_token"),
        (200, {"access_token": 7}, AuthenticationError, "its answer has no access_token"),
        (429, {}, TransportError, "HTTP status 429. A retry"),
        (503, {}, TransportError, "HTTP status 503. A retry"),
        (401, {"error": "s3cr+t,\ns3cr%2Bt"}, AuthenticationError, r"401 \(\*+,\ufffd\*+"),
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
def test_any_target_of_a_redirect_is_shown_short_without_secrets(endpoint: Endpoint, location: str, shown: str) -> None:
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
            server = Endpoint()
            server.answers = [(200, {"access_token": "tok"})]
            server.socket = server_context(identity, tmp_path).wrap_socket(server.socket, server_side=True)
            return closing.enter_context(serving(server))

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


def asked(server: Endpoint, timeout: float = TIMEOUT_S, most_bytes: int = 100) -> HttpResponse:
    request = Request(server.url, b"")
    return exchange(request, "cannot ask", ADVICE, context=no_tls, timeout=timeout, most_bytes=most_bytes)


def test_an_answer_that_is_too_long_is_given_up(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, b"x" * 101)]
    with pytest.raises(TransportError, match=r"has more than 100 bytes\. Check the network"):
        asked(endpoint)


@pytest.mark.parametrize(
    "begin",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 Unavailable\r\n\r\n"],
    ids=["status", "headers", "body", "body of an error"],
)
def test_an_answer_that_comes_byte_by_byte_is_given_up_at_the_deadline(endpoint: Endpoint, begin: bytes) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begin)
        while not over.wait(0.02):
            handler.wfile.write(b"x")

    endpoint.answers = [drip]
    with pytest.raises(TransportError, match=r"^cannot ask: no complete answer within 0\.3 s\. Check the network$"):
        asked(endpoint, timeout=0.3, most_bytes=1 << 20)
    over.set()


def test_all_addresses_of_a_host_share_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with Endpoint() as full:  # which accepts nothing
        full.socket.listen(0)
        with socket.create_connection(full.server_address):  # nor does the kernel, now that its backlog of one is taken
            address = Address(socket.AF_INET, ("127.0.0.1", full.server_port))
            monkeypatch.setattr(HostLookup, "addresses", lambda lookup: [address] * 1000)
            with pytest.raises(TransportError, match=r"no complete answer within 0\.3 s"):
                asked(full, timeout=0.3)


def test_what_is_not_http_is_an_error_without_the_text_of_the_server(endpoint: Endpoint) -> None:
    endpoint.answers = [lambda handler: handler.wfile.write(b"hunter2\r\n")]
    with pytest.raises(TransportError, match=r"cannot ask: the answer is not HTTP or is incomplete \(Bad") as caught:
        asked(endpoint)
    assert "hunter2" not in str(caught.value)


# -- the mechanism of a new exchange, with what the options name ----------------------------------------

PEER = "broker-1.example:9092"
KERBEROS = SaslOptions("GSSAPI", kerberos=KerberosOptions("kafka", ALICE, use_ticket_cache=True))


def first(options: SaslOptions) -> bytes:
    return make_mechanism(options, TlsOptions(), PEER).first()


@pytest.fixture
def tokens(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens of the function `signer:token`, the next one first. They end in 2100."""
    left = ["token.one", "token.two"]
    module.token = lambda: (left.pop(0), 4_102_444_800_000)  # type: ignore[attr-defined]
    monkeypatch.setattr(credentials, "TOKENS", Tokens())
    return left


def provided(**others: object) -> SaslOptions:
    return SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="signer:token", **others))  # type: ignore[arg-type]


def test_a_password_in_a_file_is_read_for_each_exchange(tmp_path: Path) -> None:
    options = SaslOptions("PLAIN", "ann", Secret(f"file:{tmp_path / 'password'}"))
    for password in ("old", "new"):
        (tmp_path / "password").write_text(password + "\n")
        assert first(options) == b"\0ann\0" + password.encode()


def test_a_password_that_cannot_be_read_is_an_error_that_names_the_option_and_the_file() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.sasl\.jaas\.config: file /no/password: .*Check the path"):
        first(SaslOptions("SCRAM-SHA-512", "ann", Secret("file:/no/password")))


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_exchange_of_scram_has_a_nonce_of_its_own(name: str) -> None:
    options = SaslOptions(name, "ann", Secret("hunter2"))
    assert make_mechanism(options, TlsOptions(), PEER).name == name
    sent = {first(options) for _ in range(3)}
    assert len(sent) == 3
    for token in sent:
        begin, _, nonce = token.partition(b",r=")
        assert (begin, len(nonce) >= 24) == (b"n,,n=ann", True)


def test_a_delegation_token_is_marked_as_one() -> None:
    token, password = (
        first(SaslOptions("SCRAM-SHA-256", "ann", Secret("hmac"), token_auth=is_token)) for is_token in (True, False)
    )
    assert token.endswith(b",tokenauth=true")
    assert b"tokenauth" not in password


def test_a_bearer_token_is_sent_with_the_extensions(tokens: list[str]) -> None:
    sent = first(provided(extensions=(("logicalCluster", "lkc-1"), ("pool", "p"))))
    assert sent == b"n,,\x01auth=Bearer token.one\x01logicalCluster=lkc-1\x01pool=p\x01\x01"


def test_exchanges_share_a_token_until_a_broker_rejects_it(tokens: list[str]) -> None:
    first(provided())
    mechanism = make_mechanism(provided(), TlsOptions(), PEER)
    assert b"token.one" in mechanism.first()
    mechanism.rejected("expired")
    assert b"token.two" in first(provided())
    assert tokens == []


def test_the_error_of_a_rejected_token_shows_its_end_and_not_the_token(tokens: list[str]) -> None:
    tokens[:] = ["e30.eyJleHAiOjQxMDI0NDQ4MDB9.sig"]  # {"exp": 4102444800}
    mechanism = make_mechanism(provided(), TlsOptions(), PEER)
    mechanism.first()
    mechanism.next(b'{"status": "invalid_token"}')
    with pytest.raises(
        AuthenticationError, match=r"broker-1\.example:9092 .*the token expires at 2100-01-01"
    ) as caught:
        mechanism.next(b"")
    assert "eyJ" not in str(caught.value)


def test_gssapi_opens_a_context_with_the_service_of_the_broker_and_a_rejected_ticket_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keytab = tmp_path / "alice.keytab"
    keytab.write_bytes(b"\x05\x02 keys")
    options = SaslOptions("GSSAPI", kerberos=KerberosOptions("kafka", ALICE, use_keytab=True, keytab=str(keytab)))
    library = Library()
    monkeypatch.setattr(credentials, "TICKETS", Tickets(lambda: library))
    make_mechanism(options, TlsOptions(), PEER)
    mechanism = make_mechanism(options, TlsOptions(), PEER)
    assert library.opened == [("kafka", "broker-1.example")] * 2
    assert len(library.stores) == 1, "both exchanges use one ticket"
    assert ALICE in str(mechanism.rejected("unknown principal"))
    make_mechanism(options, TlsOptions(), PEER)
    assert len(library.stores) == 2


@pytest.mark.parametrize(
    ("options", "cause", "next_step"),
    [
        (KERBEROS, "there was no Kerberos ticket", "reaches the KDC"),
        (provided(), "there was no token", "reaches the token endpoint"),
        (SaslOptions("PLAIN", "ann", Secret("x")), "there was no password", "the file that kafka.sasl.jaas.config"),
        (SaslOptions("SCRAM-SHA-256", "ann", Secret("x")), "there was no password", "the file that kafka.sasl.jaas"),
    ],
    ids=lambda value: value.mechanism if isinstance(value, SaslOptions) else "",
)
def test_a_wait_that_is_too_long_has_the_cause_and_the_next_step_of_its_mechanism(
    options: SaslOptions, cause: str, next_step: str, tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "TICKETS", Tickets(Library))
    timeout = begin_mechanism(options, TlsOptions(), PEER).timeout
    assert timeout.cause == cause
    assert next_step in timeout.next_step


def test_the_mechanism_is_made_in_the_background_and_its_owner_is_notified() -> None:
    notified = threading.Event()
    begun = begin_mechanism(SaslOptions("PLAIN", "ann", Secret("hunter2")), TlsOptions(), PEER, notified.set)
    assert notified.wait(TIMEOUT_S)
    assert begun.done
    assert begun.result().first() == b"\0ann\0hunter2"


@pytest.mark.parametrize("error", [ConfigError("wrong"), ZeroDivisionError("hunter2")])
def test_the_error_of_the_background_is_a_typed_one_without_the_text_of_a_library(error: Exception) -> None:
    def fails() -> None:
        raise error

    background = Background(fails, WaitTimeout("it took too long", "Wait"))
    background.wait(TIMEOUT_S)
    with pytest.raises(StreamGroupError) as caught:
        background.result()
    if isinstance(error, ConfigError):
        assert caught.value is error
    else:
        assert str(caught.value) == (
            "cannot authenticate: unexpected ZeroDivisionError. Report this as a bug of streamgroup"
        )
        assert caught.value.__cause__ is caught.value.__context__ is None


# -- values that the connections of a process share, and that are renewed before they expire ---------------------------


class Value(NamedTuple):
    number: int
    renewed_at: float
    expires_at: float


class Key:
    """Counts how often it was looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        self.looked_up += 1
        return 1


class Source:
    """Counts the values that it makes, each of 100 s, or raises `failure`."""

    def __init__(self) -> None:
        self.made = 0
        self.failure: StreamGroupError | None = None

    def __call__(self, now: float) -> Value:
        if self.failure is not None:
            raise self.failure
        self.made += 1
        return Value(self.made, now + 80, now + 100)


def test_a_value_is_kept_until_it_is_to_be_renewed() -> None:
    clock, source = Clock(1_000.0), Source()
    renewals: Renewals[str, Value] = Renewals(clock)
    assert [renewals.get("a", source).number, renewals.get("a", source).number] == [1, 1]
    assert renewals.get("b", source).number == 2
    clock.now += 79
    assert renewals.get("a", source).number == 1
    clock.now += 1
    assert renewals.get("a", source).number == 3


def test_a_renewal_that_fails_for_now_keeps_the_value_until_its_end() -> None:
    clock, source = Clock(1_000.0), Source()
    renewals: Renewals[str, Value] = Renewals(clock)
    renewals.get("a", source)
    source.failure = TransportError("away")
    clock.now += 99
    assert renewals.get("a", source).number == 1
    clock.now += 1
    with pytest.raises(TransportError, match="away"):
        renewals.get("a", source)
    source.failure = None
    assert renewals.get("a", source).number == 2


def test_a_renewal_that_is_refused_is_an_error_although_the_value_has_not_ended() -> None:
    clock, source = Clock(1_000.0), Source()
    renewals: Renewals[str, Value] = Renewals(clock)
    renewals.get("a", source)
    source.failure = AuthenticationError("revoked")
    clock.now += 81
    with pytest.raises(AuthenticationError, match="revoked"):
        renewals.get("a", source)


@pytest.mark.parametrize("fails", [False, True])
def test_callers_that_wait_get_the_result_of_the_attempt_under_way(fails: bool) -> None:
    renewals: Renewals[Key, Value] = Renewals(Clock(1_000.0))
    key = Key()
    begun, released = threading.Event(), threading.Event()
    attempts: list[float] = []
    results: list[object] = []

    def slow(now: float) -> Value:
        attempts.append(now)
        begun.set()
        assert released.wait(TIMEOUT_S)
        if fails:
            raise TransportError("no answer")
        return Value(1, now + 80, now + 100)

    def ask() -> None:
        try:
            results.append(renewals.get(key, slow).number)
        except TransportError as error:
            results.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    threads[0].start()
    assert begun.wait(TIMEOUT_S)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: key.looked_up == 5, "five callers have come")
    with renewals._lock:  # the last of them has passed it
        released.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert results == ["no answer" if fails else 1] * 5
    assert len(attempts) == 1


@pytest.mark.parametrize("has_value", [False, True])
def test_an_attempt_that_does_not_end_holds_up_no_other_caller_for_long(has_value: bool) -> None:
    renewals: Renewals[str, Value] = Renewals(clock := Clock(1_000.0), wait_s=0.01)
    if has_value:
        renewals.get("a", Source())
        clock.now += 90
    begun, released = threading.Event(), threading.Event()

    def endless(now: float) -> Value:
        begun.set()
        assert released.wait(10)
        return Value(2, now + 80, now + 100)

    thread = threading.Thread(target=renewals.get, args=("a", endless))
    thread.start()
    try:
        assert begun.wait(10)
        if has_value:
            assert renewals.get("a", Source()).number == 1, "the kept value has not ended"
        else:
            with pytest.raises(TransportError, match=r"another connection .* has waited for one for more than 0\.01 s"):
                renewals.get("a", Source())
    finally:
        released.set()
        thread.join(10)
    assert renewals.get("a", Source()).number == 2
