"""One connection to a broker, step by step on the caller's clock: its phases, its waits, and how it ends."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import TransportError
from streamgroup.kafka.net import link as link_module
from streamgroup.kafka.net.connection_totals import ConnectionTotals
from streamgroup.kafka.net.link import AnyRequest, Link, Phase, name_of
from streamgroup.kafka.net.protocol import CorrelatedResponse
from streamgroup.kafka.wire.kafka07 import OffsetsRequest07
from streamgroup.kafka.wire.messages.admin import ListGroupsRequest
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, Held
from tests.unit.kafka.net.test_sasl_connections import PLAIN, Listener
from tests.waiting import TIMEOUT_S

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
EVERYTHING = MetadataRequest(topics=None)
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
        poll = select.poll()
        poll.register(link.fileno, link.interest)
        assert poll.poll(TIMEOUT_S * 1000), f"nothing has come in the phase {link.phase}"
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
    left = list(answers)
    return start({ApiVersionsRequest: lambda *_: API_VERSIONS, MetadataRequest: lambda *_: left.pop(0)})


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


def test_a_link_passes_its_phases_in_order_and_knows_the_broker_from_ready_on(
    broker: Start, open_link: OpenLink
) -> None:
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


def test_a_link_waits_for_its_setup_timeout_until_it_is_ready_and_for_nothing_afterwards(
    broker: Start, open_link: OpenLink
) -> None:
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
def test_the_kernel_gives_a_throttling_broker_the_throttle_time_more(
    request_timeout_ms: int, broker: Start, open_link: OpenLink
) -> None:
    """A broker that throttles reads nothing, so pipelined requests fill its socket. That is not a dead connection."""
    fake = answering(broker, replace(METADATA, throttle_time_ms=40_000))
    link = ready(open_link(fake.port, request_timeout_ms=request_timeout_ms))
    assert link.fileno is not None
    answers: list[CorrelatedResponse] = []
    link.send(EVERYTHING)
    while not answers:
        step(link, answers)
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
    answers: list[CorrelatedResponse] = []
    while not answers:
        step(link, answers, BEGAN + 50)
    assert [link.is_idle(BEGAN + after) for after in (55, 55.1)] == [False, True]
    link.close(reset=False)
    assert not link.is_idle(BEGAN + 100)


def test_a_link_without_a_limit_is_never_idle(broker: Start, open_link: OpenLink) -> None:
    link = ready(open_link(answering(broker).port, connections_max_idle_ms=-1))
    assert not link.is_idle(BEGAN + 1e9)


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
    held: dict[Any, Any] = {
        ApiVersionsRequest: lambda *_: API_VERSIONS,
        MetadataRequest: lambda *_: Held(METADATA, released),
    }
    fake = broker(held)
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
def test_a_closed_link_refuses_a_request_by_its_name(
    dialect: Dialect, request_: AnyRequest, name: str, open_link: OpenLink
) -> None:
    link = open_link(9092, dialect=dialect)
    link.close(reset=True)
    assert name_of(request_) == name
    with pytest.raises(
        TransportError, match=rf"^cannot send {name} to broker 127\.0\.0\.1:9092: the connection is closed$"
    ):
        link.send(request_)


def test_an_error_closes_the_link_and_keeps_the_responses_from_before_it(broker: Start, open_link: OpenLink) -> None:
    fake = answering(broker, METADATA, CLOSE)
    link = ready(open_link(fake.port))
    first, second = link.send(EVERYTHING), link.send(EVERYTHING)
    answers: list[CorrelatedResponse] = []
    with pytest.raises(TransportError, match=rf"broker 127\.0\.0\.1:{fake.port} closed the connection; pending: Metad"):
        until_end(link, answers)
    assert [answer.correlation_id for answer in answers] == [first]
    assert link.phase is Phase.CLOSED
    assert link.unanswered == (second,), "the owner asks again for what has no response"


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
def resolves(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., threading.Event]]:
    """Lets names have these ports of 127.0.0.1 as soon as the event is set."""
    released = threading.Event()

    def install(*ports: int) -> threading.Event:
        def look_up(host: str, port: int, *, flags: int, **_: Any) -> Any:
            if flags:
                raise socket.gaierror("not numeric")
            assert released.wait(TIMEOUT_S)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in ports]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
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


def test_the_owner_is_notified_of_the_address_and_each_is_tried_and_named(
    resolves: Resolves, open_link: OpenLink
) -> None:
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


# -- sessions of SASL --------------------------------------------------------------------------------------------------


def test_a_session_is_renewed_before_its_end_and_requests_wait_for_the_exchange(
    broker: Start, open_link: OpenLink
) -> None:
    listener = Listener(broker)
    listener.lifetime_ms = 100_000
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
    listener = Listener(broker)
    listener.lifetime_ms = lifetime_ms
    assert ready(open_link(listener.broker.port, sasl=PLAIN)).due == due
