import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, UnsupportedVersionError
from streamgroup.net.protocol import CorrelatedResponse, Protocol
from streamgroup.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.wire.messages.group import HeartbeatRequest
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions
from tests.fakes.broker import framed

EVERYTHING = MetadataRequest(topics=None)


def deliver(protocol: Protocol, data: bytes, piece: int = 1 << 30) -> list[CorrelatedResponse]:
    """Hand `data` in, at most `piece` bytes at a time."""
    answers: list[CorrelatedResponse] = []
    while data:
        space = protocol.space()
        count = min(len(space), len(data), piece)
        space[:count] = data[:count]
        protocol.received(count, answers)
        data = data[count:]
    return answers


def drain(protocol: Protocol) -> list[tuple[int, int, int]]:
    """The requests to send: (API key, version, correlation id) of each request."""
    data = b"".join(protocol.outgoing())
    protocol.sent(len(data))
    sent = []
    while data:
        size, key, version, correlation_id = struct.unpack_from(">ihhi", data)
        sent.append((key, version, correlation_id))
        data = data[4 + size :]
    return sent


def ready(client_id: str = "t") -> Protocol:
    protocol = Protocol("b:1", client_id, 1 << 20)
    drain(protocol)
    deliver(protocol, framed(ApiVersionsRequest, API_VERSIONS, 3, 0))
    return protocol


def answer_to(correlation_id: int, response: Any = METADATA, version: int = 13) -> bytes:
    return framed(MetadataRequest, response, version, correlation_id)


def test_the_handshake_is_sent_first_and_requests_wait_for_its_answer() -> None:
    protocol = Protocol("b:1", "t", 1 << 20)
    asked = [protocol.send(EVERYTHING), protocol.send(EVERYTHING, ceiling=5)]
    assert drain(protocol) == [(ApiVersionsRequest.API_KEY, 3, 0)]
    assert protocol.unanswered == tuple(asked) == (1, 2)
    deliver(protocol, framed(ApiVersionsRequest, API_VERSIONS, 3, 0))
    assert drain(protocol) == [(3, 13, 1), (3, 5, 2)]
    assert protocol.unanswered == (1, 2)


def test_the_handshake_is_repeated_in_the_oldest_version_where_its_own_is_unknown() -> None:
    protocol = Protocol("b:1", "t", 1 << 20)
    drain(protocol)
    deliver(protocol, framed(ApiVersionsRequest, replace(API_VERSIONS, error_code=35), 0, 0))
    assert drain(protocol) == [(ApiVersionsRequest.API_KEY, 0, 1)]
    assert protocol.versions is None
    deliver(protocol, framed(ApiVersionsRequest, API_VERSIONS, 0, 1))
    assert protocol.versions is not None


@pytest.mark.parametrize(("fetch", "throttle_s"), [((4, 17), 1.5), ((0, 8), 1.5), ((0, 7), 0.0), (None, 0.0)])
def test_the_client_waits_for_the_throttle_time_of_brokers_since_2_0(
    fetch: tuple[int, int] | None, throttle_s: float
) -> None:
    """Brokers before 2.0 have waited themselves before they answer."""
    protocol = Protocol("b:1", "t", 1 << 20)
    drain(protocol)
    spoken = {"metadata": (0, 13)} | ({} if fetch is None else {"fetch": fetch})
    deliver(protocol, framed(ApiVersionsRequest, api_versions(**spoken), 3, 0))
    protocol.send(EVERYTHING)
    (answer,) = deliver(protocol, answer_to(1, replace(METADATA, throttle_time_ms=1_500)))
    assert (answer.response.throttle_time_ms, answer.throttle_s) == (1_500, throttle_s)


def test_a_muted_protocol_queues_its_requests_and_refuses_versions_as_before() -> None:
    protocol = ready()
    before = protocol.send(EVERYTHING)
    protocol.mute()
    assert drain(protocol) == [(3, 13, before)], "it was sent before"
    asked = [protocol.send(EVERYTHING), protocol.send(EVERYTHING, ceiling=5)]
    with pytest.raises(UnsupportedVersionError):
        protocol.send(HeartbeatRequest(group_id="g"))
    assert drain(protocol) == []
    assert deliver(protocol, answer_to(before))[0].correlation_id == before
    protocol.unmute()
    assert drain(protocol) == [(3, 13, asked[0]), (3, 5, asked[1])]


@settings(max_examples=40, deadline=None)
@given(piece=st.integers(1, 60), count=st.integers(1, 4))
def test_any_split_of_the_stream_gives_the_same_answers(piece: int, count: int) -> None:
    protocol = ready()
    asked = [protocol.send(EVERYTHING) for _ in range(count)]
    answers = deliver(protocol, b"".join(map(answer_to, asked)), piece)
    assert answers == [CorrelatedResponse(correlation_id, METADATA, 13) for correlation_id in asked]
    assert protocol.unanswered == ()


def test_a_partial_send_continues_where_it_stopped() -> None:
    protocol = ready()
    protocol.send(EVERYTHING)
    whole = b"".join(protocol.outgoing())
    protocol.sent(5)
    assert b"".join(protocol.outgoing()) == whole[5:]


@pytest.mark.parametrize("order", [(2, 1), (7,), (1, 1)])
def test_an_answer_out_of_order_ends_it_all(order: tuple[int, ...]) -> None:
    protocol = ready()
    for _ in range(2):
        protocol.send(EVERYTHING)
    with pytest.raises(DecodeError, match=r"broker b:1 with correlation id \d; expected: Metadata v13"):
        deliver(protocol, b"".join(map(answer_to, order)))


def test_answers_before_a_bad_one_are_handed_out_and_the_rest_is_unanswered() -> None:
    protocol = ready()
    first, second, third = (protocol.send(EVERYTHING) for _ in range(3))
    data = answer_to(first) + struct.pack(">ii", 6, second) + b"\xff\xff"
    space = protocol.space()
    space[: len(data)] = data
    answers: list[CorrelatedResponse] = []
    with pytest.raises(DecodeError, match=rf"response from broker b:1 to Metadata v13 \(correlation id {second}\)"):
        protocol.received(len(data), answers)
    assert [a.correlation_id for a in answers] == [first]
    assert protocol.unanswered == (second, third)


def test_correlation_ids_wrap_around() -> None:
    protocol = ready()
    protocol._next_id = 2**31 - 1
    asked = [protocol.send(EVERYTHING) for _ in range(2)]
    assert asked == [2**31 - 1, 0]
    assert protocol.unanswered == (2**31 - 1, 0)
    assert [a.correlation_id for a in deliver(protocol, b"".join(map(answer_to, asked)))] == asked
