"""One connection to a broker, step by step on the caller's clock: its phases, its waits, and how it ends."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from streamgroup.errors import AuthenticationError, TransportError
from streamgroup.kafka.net import link as link_module
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.connection_totals import ConnectionTotals
from streamgroup.kafka.net.link import AnyRequest, Link, Phase, name_of
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.protocol import CorrelatedResponse
from streamgroup.kafka.net.sasl.mechanisms import Exchange, PlainMechanism
from streamgroup.kafka.wire.kafka07 import OffsetsRequest07
from streamgroup.kafka.wire.messages import cluster
from streamgroup.kafka.wire.messages.admin import ListGroupsRequest
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from streamgroup.model import Dialect
from streamgroup.options.sasl import OAuthOptions, SaslOptions
from streamgroup.options.secrets import Secret
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, Held
from tests.unit.kafka.net.conftest import EVERYTHING, Names, Options, Start, script, wait_for_events
from tests.waiting import TIMEOUT_S, soon

OLD_REQUEST = OffsetsRequest07("t", 0, -1, 1)
BEGAN, SETUP_S = 100.0, 30.0
"""The time at which each link begins, and its timeout."""


def step(link: Link, answers: list[CorrelatedResponse], now: float = BEGAN) -> None:
    """Wait for an event of the link, and advance it."""
    if link.background is not None:
        link.background.wait(TIMEOUT_S)
        assert link.background.done, "the mechanism was not made in time"
    elif link.fileno is None:
        link.resolution.wait(TIMEOUT_S)
        assert link.resolution.done, "the name was not resolved in time"
    else:
        wait_for_events(link.fileno, link.interest, link.phase)
    link.advance(now, answers)


def until(link: Link, condition: Callable[[], object], now: float = BEGAN) -> list[CorrelatedResponse]:
    """Advance the link until the condition holds. Return the responses."""
    answers: list[CorrelatedResponse] = []
    while not condition():
        step(link, answers, now)
    return answers


def until_end(link: Link, answers: list[CorrelatedResponse]) -> None:
    """Advance the link until it raises its error."""
    while True:
        step(link, answers)


def ready(link: Link) -> Link:
    until(link, lambda: link.phase is Phase.READY)
    return link


def answering(start: Start, *answers: Any) -> FakeBroker:
    """Start a broker that gives one answer to Metadata after the other."""
    return start({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(*answers)})


@pytest.fixture
def open_link(options: Options) -> Iterator[Callable[..., Link]]:
    """Opens a link to a port of this machine; all are closed at the end."""
    with ExitStack() as closing:

        def start(port: int, host: str = "127.0.0.1", **others: Any) -> Link:
            given = {name: others.pop(name) for name in ("notify", "dialect") if name in others}
            link = Link(host, port, options(**others), BEGAN, **given)
            closing.callback(link.close, reset=False)
            return link

        yield start


OpenLink = Callable[..., Link]


# -- phases ------------------------------------------------------------------------------------------------------------


def test_a_link_passes_its_phases_in_order_and_knows_the_broker_once_ready(broker: Start, open_link: OpenLink) -> None:
    fake = answering(broker)
    link = open_link(fake.port)
    seen = [link.phase]
    while link.phase is not Phase.READY:
        assert link.versions is None
        step(link, [])
        seen.append(link.phase)
    assert [phase.value for phase in seen] == sorted(phase.value for phase in seen)
    assert seen[0] is Phase.RESOLVING
    assert link.versions is not None
    assert link.versions.highest(MetadataRequest) >= 1
    ((name, version, request),) = fake.requests
    assert (name, version, request.client_software_name) == ("ApiVersions", 3, "streamgroup")
    link.close(reset=False)
    assert link.phase is Phase.CLOSED
    assert link.versions is not None, "they stay after the end"


def test_a_link_waits_for_its_setup_timeout_only_until_it_is_ready(broker: Start, open_link: OpenLink) -> None:
    link = open_link(answering(broker).port)
    assert (link.fileno, link.due) == (None, BEGAN + SETUP_S)
    ready(link)
    assert (link.interest, link.due, link.pending, link.background) == (select.POLLIN, None, False, None)
    link.close(reset=False)
    assert (link.fileno, link.due) == (None, None)


def test_a_broker_of_0_7_is_ready_without_a_request(broker: Start, open_link: OpenLink) -> None:
    fake = broker({})
    ready(open_link(fake.port, dialect=Dialect.KAFKA07))
    fake.wait_for(lambda f: f.connections == 1)
    assert fake.requests == []


@pytest.mark.parametrize(("request_timeout_ms", "user_timeout_ms"), [(1_000, 30_000), (60_000, 60_000)])
def test_the_kernel_notices_that_the_other_end_is_gone(
    request_timeout_ms: int, user_timeout_ms: int, broker: Start, open_link: OpenLink
) -> None:
    link = ready(open_link(answering(broker).port, request_timeout_ms=request_timeout_ms))
    assert link.fileno is not None
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    with socket.socket(fileno=os.dup(link.fileno)) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        values = [opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
    assert values == [15, 5, 3, user_timeout_ms]


@pytest.mark.parametrize("request_timeout_ms", [30_000, 2**31 - 1])
def test_the_kernel_adds_the_throttle_time(request_timeout_ms: int, broker: Start, open_link: OpenLink) -> None:
    """A broker that throttles reads nothing, so pipelined requests fill its socket. That is not a dead connection."""
    fake = answering(broker, replace(METADATA, throttle_time_ms=40_000))
    link = ready(open_link(fake.port, request_timeout_ms=request_timeout_ms))
    assert link.fileno is not None
    link.send(EVERYTHING)
    until(link, lambda: not link.unanswered)
    with socket.socket(fileno=os.dup(link.fileno)) as opened:
        timeout_ms = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert timeout_ms == min(request_timeout_ms + 40_000, 2**31 - 1)


def test_a_link_is_idle_when_it_was_not_used_for_the_option_s_time(broker: Start, open_link: OpenLink) -> None:
    link = open_link(answering(broker, METADATA, SILENCE).port, connections_max_idle_ms=5_000)
    assert not link.is_idle(BEGAN + 100), "it is not set up"
    ready(link)
    assert [link.is_idle(BEGAN + after) for after in (5, 5.1)] == [False, True]
    link.send(EVERYTHING)
    assert not link.is_idle(BEGAN + 100), "the request is not sent"
    link.flush()
    assert not link.is_idle(BEGAN + 100), "the request is not answered"
    until(link, lambda: not link.unanswered, BEGAN + 50)
    assert [link.is_idle(BEGAN + after) for after in (55, 55.1)] == [False, True]
    link.close(reset=False)
    assert not link.is_idle(BEGAN + 100)
    without_limit = ready(open_link(answering(broker).port, connections_max_idle_ms=-1))
    assert not without_limit.is_idle(BEGAN + 1e9)


def test_a_throttled_link_holds_its_requests_back_and_logs_that_once(
    broker: Start, open_link: OpenLink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker would not read them (KIP-219), so they would time out."""
    monkeypatch.setattr(link_module, "TOTALS", totals := ConnectionTotals())
    throttling = replace(METADATA, throttle_time_ms=4_000)
    fake = answering(broker, throttling, throttling, METADATA)
    link = ready(open_link(fake.port, client_id="etl"))
    answers: list[CorrelatedResponse] = []
    link.send(EVERYTHING)
    link.flush()
    for turn, now in enumerate((BEGAN, BEGAN + 4), 1):
        while len(answers) < turn:
            step(link, answers, now)
        assert (link.due, link.throttled_s(now + 1), link.throttled_s(now + 5)) == (now + 4, 3.0, 0.0)
        asked = link.send(EVERYTHING)
        link.advance(now + 3.9, answers)
        assert (link.unanswered, link.unsent) == ((asked,), 0), "it is held back"
        link.advance(now + 4, answers)
    while len(answers) < 3:
        step(link, answers, BEGAN + 8)
    assert (link.due, len(fake.asked("Metadata"))) == (None, 3)
    assert totals.status()["throttled_s"] == 8.0
    assert caplog.text.count("throttles the client 'etl' because of a quota, for 4.0 s this time") == 1


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_request_is_pending_until_its_response_and_sent_by_flush(broker: Start, open_link: OpenLink) -> None:
    fake = answering(broker, METADATA)
    link = ready(open_link(fake.port))
    asked = link.send(EVERYTHING, version=4)
    assert link.unsent > 0
    assert link.interest == select.POLLIN | select.POLLOUT
    assert link.unanswered == (asked,)
    assert "Metadata v4" in link.describe_pending()
    link.flush()
    assert (link.unsent, link.interest) == (0, select.POLLIN)
    until(link, lambda: not link.unanswered)
    assert [version for name, version, _ in fake.requests if name == "Metadata"] == [4]


def test_requests_that_the_broker_does_not_read_are_sent_in_parts(broker: Start, open_link: OpenLink) -> None:
    released = threading.Event()
    fake = answering(broker, Held(METADATA, released))
    link = ready(open_link(fake.port))
    for request in (EVERYTHING, *[MetadataRequest(topics=(MetadataRequestTopic(name="x" * 240),) * 8_000)] * 4):
        link.send(request)
    link.flush()
    assert link.unsent > 0
    released.set()
    until(link, lambda: not link.unanswered)
    assert link.unsent == 0
    assert len(fake.asked("Metadata")[-1].topics) == 8_000


@pytest.mark.parametrize(
    ("dialect", "request_", "name"),
    [(Dialect.KAFKA, EVERYTHING, "Metadata"), (Dialect.KAFKA07, OLD_REQUEST, "OFFSETS")],
    ids=["Kafka", "0.7"],
)
def test_a_closed_link_refuses_requests(dialect: Dialect, request_: AnyRequest, name: str, open_link: OpenLink) -> None:
    link = open_link(9092, dialect=dialect)
    link.close(reset=True)
    assert name_of(request_) == name
    with pytest.raises(
        TransportError, match=rf"^cannot send {name} to broker 127\.0\.0\.1:9092: the connection is closed$"
    ):
        link.send(request_)


# -- the setup timeout -------------------------------------------------------------------------------------------------


def test_a_broker_without_a_response_is_given_up_exactly_at_the_timeout(broker: Start, open_link: OpenLink) -> None:
    silent: dict[Any, Any] = dict.fromkeys((ApiVersionsRequest, ListGroupsRequest), lambda *_: SILENCE)
    link = open_link(broker(silent).port)
    until(link, lambda: link.phase is Phase.HANDSHAKE)
    link.advance(BEGAN + SETUP_S - 0.001, [])  # asks for the groups, too
    with pytest.raises(
        TransportError,
        match=r"to the ApiVersions handshake within 30 s \(socket\.connection\.setup\.timeout\.ms\); pending: ApiVers",
    ):
        link.advance(BEGAN + SETUP_S, [])
    assert (link.phase, link.versions, link.due) == (Phase.CLOSED, None, None)


def test_a_listener_that_does_not_answer_the_tls_handshake_is_given_up_at_the_timeout(open_link: OpenLink) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link = open_link(silent.getsockname()[1], security_protocol="SSL")
        until(link, lambda: link.phase is Phase.TLS)
        link.advance(BEGAN + SETUP_S - 0.001, [])
        assert link.due == BEGAN + SETUP_S
        with pytest.raises(TransportError, match=r"no response .* to the TLS handshake within 30 s .*PLAINTEXT"):
            link.advance(BEGAN + SETUP_S, [])


@pytest.fixture
def resolves(names: Names) -> Iterator[Callable[..., threading.Event]]:
    """Lets names have these ports of 127.0.0.1 as soon as the event is set."""
    released = threading.Event()

    def install(*ports: int) -> threading.Event:
        names(lambda host: released.wait(TIMEOUT_S) and ports)
        return released

    yield install
    released.set()


Resolves = Callable[..., threading.Event]


def test_a_name_that_is_not_resolved_is_waited_for_until_the_timeout(resolves: Resolves, open_link: OpenLink) -> None:
    resolves(9092)
    link = open_link(9092, "kafka.example")
    link.advance(BEGAN + SETUP_S - 0.001, [])
    assert (link.phase, link.fileno) == (Phase.RESOLVING, None)
    with pytest.raises(TransportError, match=r"kafka\.example:9092: its name was not resolved within 30 s"):
        link.advance(BEGAN + SETUP_S, [])
    assert link.phase is Phase.CLOSED


def test_the_owner_is_notified_of_the_addresses_and_each_is_tried(resolves: Resolves, open_link: OpenLink) -> None:
    nobody: list[int] = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody.append(closed.getsockname()[1])
    released, notified = resolves(*nobody), threading.Event()
    link = open_link(9092, "kafka.example", notify=notified.set)
    assert not notified.is_set()
    released.set()
    assert notified.wait(TIMEOUT_S)
    refused = r"127\.0\.0\.1: Connection refused"
    with pytest.raises(TransportError, match=rf"^cannot connect to broker kafka\.example:9092: {refused}; {refused}$"):
        until_end(link, [])


def test_an_address_that_does_not_answer_gets_its_share_of_the_timeout_and_then_the_next_one_is_tried(
    broker: Start, resolves: Resolves, open_link: OpenLink
) -> None:
    fake = answering(broker)
    with ExitStack() as opened:
        full = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        opened.enter_context(socket.create_connection(full.getsockname()))  # the kernel drops what comes behind it
        resolves(full.getsockname()[1], fake.port).set()
        link = open_link(9092, "kafka.example")
        until(link, lambda: link.phase is Phase.CONNECTING)
        assert (link.due, link.interest) == (BEGAN + SETUP_S / 2, select.POLLOUT)
        link.advance(BEGAN + SETUP_S / 2 - 0.001, [])
        assert fake.connections == 0
        link.advance(BEGAN + SETUP_S / 2, [])
        assert link.due == BEGAN + SETUP_S, "the last address has all of the rest"
        until(link, lambda: link.phase is Phase.READY, BEGAN + SETUP_S / 2)


# -- SASL: connections that wait for it, sessions that end, tokens that come late --------------------------------------

PLAIN = SaslOptions("PLAIN", "ann", Secret("hunter2"))
PROVIDED = SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="slow_signer:token"))


class Listener:
    """A listener with SASL, which accepts what `accepts` and ends sessions after `lifetime_ms`."""

    def __init__(
        self, start: Start, accepts: Callable[[bytes], Any] = lambda token: b"hunter2" in token, lifetime_ms: int = 0
    ) -> None:
        self.lifetime_ms = lifetime_ms
        self.accepts = accepts
        self.broker = start(
            {
                ApiVersionsRequest: lambda *_: api_versions(
                    apiversions=(0, 3), metadata=(0, 13), saslhandshake=(0, 1), saslauthenticate=(0, 2)
                ),
                cluster.SaslHandshakeRequest: lambda *_: cluster.SaslHandshakeResponse(
                    mechanisms=("PLAIN", "OAUTHBEARER")
                ),
                cluster.SaslAuthenticateRequest: self._authenticate,
                MetadataRequest: lambda *_: METADATA,
            }
        )

    def _authenticate(self, request: cluster.SaslAuthenticateRequest, _: int) -> Any:
        accepted = self.accepts(bytes(request.auth_bytes))
        if accepted is SILENCE or accepted is CLOSE or isinstance(accepted, cluster.SaslAuthenticateResponse):
            return accepted
        if not accepted:
            return cluster.SaslAuthenticateResponse(error_code=58, error_message="no such user")
        return cluster.SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)

    @property
    def exchanges(self) -> int:
        return len(self.broker.asked("SaslHandshake"))


def wait_for(poller: Poller, kind: type, seconds: float = TIMEOUT_S) -> Any:
    deadline = soon(seconds)
    while time.monotonic() < deadline:
        for event in poller.wait(0.2):
            if isinstance(event, kind):
                return event
    raise AssertionError(f"no {kind.__name__}")


def connected(
    listener: Listener, options: Options, clock: Callable[[], float] = time.monotonic, **others: Any
) -> Connection:
    port = listener.broker.port
    connection = Connection("127.0.0.1", port, options(port, **{"sasl": PLAIN, **others}), clock)
    connection.connect(clock() + TIMEOUT_S)
    return connection


def test_a_rejected_client_is_an_error_at_once(broker: Start, options: Options) -> None:
    listener = Listener(broker, lambda _: False)
    with pytest.raises(AuthenticationError, match=r"as user .ann. by SASL PLAIN: .*no such user"):
        connected(listener, options)
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    poller.connect("127.0.0.1", listener.broker.port)
    assert isinstance(wait_for(poller, ConnectionLost).error, AuthenticationError)
    poller.close()
    assert listener.exchanges == 2


def test_a_broker_that_does_not_answer_is_an_error_after_the_setup_timeout(broker: Start, options: Options) -> None:
    clock = Clock()
    with pytest.raises(TransportError, match=r"to the SASL exchange within 0\.3 s .*pending: SASL PLAIN"):
        connected(Listener(broker, clock.before(0.3, SILENCE)), options, clock, connection_setup_timeout_ms=300)


def test_an_idle_connection_authenticates_again_before_its_next_request(broker: Start, options: Options) -> None:
    listener = Listener(broker, lifetime_ms=3_600_000)
    clock = Clock()
    client = options(listener.broker.port, sasl=PLAIN, connections_max_idle_ms=-1)
    connection = Connection("127.0.0.1", listener.broker.port, client, clock)
    connection.connect(clock() + TIMEOUT_S)
    connection.call(EVERYTHING, clock() + TIMEOUT_S)
    assert listener.exchanges == 1
    clock.now += 3_060
    assert connection.call(EVERYTHING, clock() + TIMEOUT_S) == METADATA
    assert listener.exchanges == 2
    assert listener.broker.connections == 1
    connection.call(EVERYTHING, clock() + TIMEOUT_S)
    assert listener.exchanges == 2, "a new session has begun"


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make a function that returns a token as soon as the event is set."""
    released = threading.Event()
    module = ModuleType("slow_signer")
    module.token = lambda: released.wait(TIMEOUT_S) and "a.token"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slow_signer", module)
    return released


def test_a_late_token_holds_up_no_other_connection(broker: Start, options: Options, signer: threading.Event) -> None:
    slow, quick = Listener(broker, lambda token: b"a.token" in token), Listener(broker)
    poller = Poller(options(slow.broker.port, sasl=PROVIDED))
    waiting = poller.connect("127.0.0.1", slow.broker.port)
    assert poller.wait(0.2) == []
    connected(quick, options).call(EVERYTHING, soon())
    signer.set()
    assert wait_for(poller, ConnectionReady).handle == waiting
    poller.close()


def test_a_token_that_does_not_come_is_named(
    broker: Start, options: Options, signer: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("slow_signer.token", lambda: clock.sleep(0.2) or signer.wait(TIMEOUT_S))
    with pytest.raises(TransportError, match=r"there was no token within 0\.2 s \(socket.connection.setup"):
        connected(Listener(broker), options, clock, sasl=PROVIDED, connection_setup_timeout_ms=200)
    signer.set()


def test_the_error_of_a_token_is_that_of_the_connection(broker: Start, options: Options) -> None:
    missing = SaslOptions("OAUTHBEARER", oauth=OAuthOptions(provider="not_there:token"))
    with pytest.raises(Exception, match="No module named 'not_there'") as caught:
        connected(Listener(broker), options, sasl=missing)
    assert caught.type.__name__ == "ConfigError"


def by_rounds(token: bytes) -> Any:
    """Answer the first token of SCRAM by a million rounds, and do not believe the proof."""
    if token.startswith(b"n,,"):
        nonce = token.rpartition(b"r=")[2]
        return cluster.SaslAuthenticateResponse(auth_bytes=b"r=" + nonce + b"more,s=c2FsdA==,i=1000000")
    return cluster.SaslAuthenticateResponse(error_code=58, error_message="no such proof")


SCRAM = SaslOptions("SCRAM-SHA-256", "ann", Secret("hunter2"))


def test_rounds_of_scram_that_are_slow_are_named(
    broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, rounds, began = Clock(), threading.Event(), time.monotonic()
    compute = lambda *_: clock.sleep(0.2) or (rounds.wait(TIMEOUT_S) and b"")  # noqa: E731
    monkeypatch.setattr("streamgroup.kafka.net.sasl.mechanisms.hashlib.pbkdf2_hmac", compute)
    with pytest.raises(TransportError, match=r"the password was not computed within 0\.2 s .*fewer iterations"):
        connected(Listener(broker, by_rounds), options, clock, sasl=SCRAM, connection_setup_timeout_ms=200)
    assert time.monotonic() - began < TIMEOUT_S / 2, "the rounds hold up no other connection of the thread"
    rounds.set()


def test_an_idle_connection_of_a_poller_authenticates_again_also_by_long_steps(
    broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LongPlain(PlainMechanism):
        """PLAIN with an answer to a challenge, which takes long."""

        def _exchange(self) -> Exchange:
            self.takes_long = True
            assert (yield b"first") == b"challenge"
            self.takes_long = False
            yield b"hunter2"

    monkeypatch.setattr("streamgroup.kafka.net.link._SHORTEST_SESSION_S", 0)
    monkeypatch.setattr("streamgroup.kafka.net.sasl.credentials.PlainMechanism", LongPlain)
    listener = Listener(
        broker, lambda token: token == b"hunter2" or cluster.SaslAuthenticateResponse(auth_bytes=b"challenge")
    )
    listener.lifetime_ms = 200
    poller = Poller(options(listener.broker.port, sasl=PLAIN))
    handle = poller.connect("127.0.0.1", listener.broker.port)
    wait_for(poller, ConnectionReady)
    deadline = soon()
    while listener.exchanges < 3:
        assert time.monotonic() < deadline
        poller.wait(0.05)
    poller.send(handle, EVERYTHING)
    assert wait_for(poller, ResponseReceived).response == METADATA
    poller.close()


def test_a_session_is_renewed_before_its_end_and_requests_wait_for_that(broker: Start, open_link: OpenLink) -> None:
    listener = Listener(broker, lifetime_ms=100_000)
    link = ready(open_link(listener.broker.port, sasl=PLAIN))
    assert link.due == BEGAN + 85.0
    link.advance(BEGAN + 84.9, [])
    assert link.background is None, "the session has not ended"
    link.check_session(BEGAN + 85.0)
    link.send(EVERYTHING)
    link.advance(BEGAN + 85.0, [])
    assert until(link, lambda: not link.unanswered, BEGAN + 85.0)
    assert listener.exchanges == 2
    assert [name for name, *_ in listener.broker.requests][-2:] == ["SaslAuthenticate", "Metadata"]
    assert link.due == BEGAN + 85.0 + 85.0


@pytest.mark.parametrize(("lifetime_ms", "due"), [(0, None), (-1, None), (1, BEGAN + 1.0)])
def test_a_session_without_an_end_has_no_time_and_a_short_one_lasts_a_second(
    lifetime_ms: int, due: float | None, broker: Start, open_link: OpenLink
) -> None:
    listener = Listener(broker, lifetime_ms=lifetime_ms)
    assert ready(open_link(listener.broker.port, sasl=PLAIN)).due == due
