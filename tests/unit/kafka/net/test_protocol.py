"""Kafka's protocol, that of SASL within it, and that of Kafka 0.7: bytes of a connection without a socket."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import AuthenticationError, DecodeError, TooLarge, TransportError, UnsupportedVersionError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.frames import FrameReader, Outgoing, TlsAnswer
from streamgroup.kafka.net.handshake import RELEASES
from streamgroup.kafka.net.poller import ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.protocol import Authentication, CorrelatedResponse, FramedStream, Protocol
from streamgroup.kafka.net.protocol07 import Protocol07
from streamgroup.kafka.net.sasl.mechanisms import Exchange, Mechanism, PlainMechanism
from streamgroup.kafka.wire.kafka07 import (
    LATEST_TIME,
    FetchRequest07,
    FetchResponse07,
    MultiFetchRequest07,
    MultiFetchResponse07,
    MultiProduceRequest07,
    OffsetsRequest07,
    OffsetsResponse07,
    ProduceRequest07,
    message07,
)
from streamgroup.kafka.wire.messages import cluster
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from streamgroup.kafka.wire.messages.group import HeartbeatRequest
from streamgroup.kafka.wire.primitives import Reader
from streamgroup.kafka.wire.schema import Request, decode
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions
from tests.fakes.broker import framed
from tests.fakes.broker07 import OldBroker
from tests.unit.kafka.net.conftest import collect
from tests.waiting import soon

EVERYTHING = MetadataRequest(topics=None)


def deliver(protocol: FramedStream, data: bytes, piece: int = 1 << 30) -> list[CorrelatedResponse]:
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
    return [(request.API_KEY, version, number) for request, version, number in Broker(protocol).takes()]


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
def test_the_client_waits_the_throttle_time_of_brokers_since_2_0(
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


PASSWORD = "hunter2"
TOKEN = b"\0ann\0hunter2"
APIS = {
    cls.API_KEY: cls
    for cls in (ApiVersionsRequest, MetadataRequest, cluster.SaslHandshakeRequest, cluster.SaslAuthenticateRequest)
}
NEW = api_versions(metadata=(0, 13), saslhandshake=(0, 1), saslauthenticate=(0, 2))
OLD = api_versions(metadata=(0, 2), saslhandshake=(0, 0))
HAS = cluster.SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
ACCEPTED = cluster.SaslAuthenticateResponse(error_code=0, session_lifetime_ms=60_000)


def plain() -> Mechanism:
    return PlainMechanism("b:1", "ann", PASSWORD)


class TwoSteps(Mechanism):
    """A mechanism whose client answers one challenge, as SCRAM's does."""

    def _exchange(self) -> Exchange:
        assert (yield b"first") == b"challenge"
        assert (yield b"second") == b"proof"


class LongStep(Mechanism):
    """A mechanism that computes long for its answer to the challenge."""

    def _exchange(self) -> Exchange:
        self.takes_long = True
        assert (yield b"first") == b"challenge"
        self.takes_long = False
        assert (yield b"second") == b"proof"


class Broker:
    """The other end of a protocol: takes its frames and answers them."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.answers: list[CorrelatedResponse] = []

    def takes(self) -> list[Any]:
        """Return what was sent: requests, each with its version and correlation id, and tokens without a header."""
        data = b"".join(self.protocol.outgoing())
        self.protocol.sent(len(data))
        taken = []
        while data:
            size = int.from_bytes(data[:4], "big")
            taken.append(self._read(data[4 : 4 + size]))
            data = data[4 + size :]
        return taken

    def _read(self, frame: bytes) -> Any:
        cls = APIS.get(int.from_bytes(frame[:2], "big")) if len(frame) > 8 else None
        if cls is None:
            return frame
        reader = Reader(frame)
        _, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
        reader.text(reader.int16())
        if cls.is_flexible(version):
            reader.skip_tags()
        return decode(cls, reader.take(reader.remaining), version), version, correlation_id

    def answers_by(self, response: Any, cls: type[Request[Any]], version: int, correlation_id: int) -> None:
        self.sends(framed(cls, response, version, correlation_id))

    def sends(self, data: bytes) -> None:
        self.answers += deliver(self.protocol, data)


def connected(versions: Any = NEW, mechanism: Callable[[], Mechanism] = plain) -> Broker:
    """Return the broker of a protocol that has sent SaslHandshake."""
    protocol = Protocol("b:1", "t", 1 << 20, authenticates=True)
    broker = Broker(protocol)
    broker.takes()
    broker.answers_by(versions, ApiVersionsRequest, 3, 0)
    assert protocol.wants_mechanism
    assert not protocol.is_ready
    protocol.authenticate(mechanism())
    return broker


def authenticated(lifetime_ms: int = 60_000) -> Broker:
    broker = connected()
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 1, 1)
    broker.answers_by(
        cluster.SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms), cluster.SaslAuthenticateRequest, 2, 2
    )
    broker.takes()
    return broker


def test_requests_wait_until_the_broker_has_accepted_the_client() -> None:
    broker = connected()
    protocol = broker.protocol
    asked = protocol.send(EVERYTHING)
    assert broker.takes() == [(cluster.SaslHandshakeRequest(mechanism="PLAIN"), 1, 1)]
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 1, 1)
    ((request, version, number),) = broker.takes()
    assert (bytes(request.auth_bytes), version, number) == (TOKEN, 2, 3)
    assert protocol.unanswered == (asked,)
    assert protocol.describe_pending() == "SASL PLAIN, Metadata (not yet sent)"
    broker.answers_by(ACCEPTED, cluster.SaslAuthenticateRequest, 2, 3)
    assert broker.takes() == [(EVERYTHING, 13, asked)]
    assert protocol.is_ready
    assert protocol.session_lifetime_ms == 60_000
    broker.answers_by(METADATA, MetadataRequest, 13, asked)
    assert [answer.correlation_id for answer in broker.answers] == [asked]


def test_a_broker_before_1_0_takes_tokens_without_headers() -> None:
    broker = connected(OLD, lambda: TwoSteps("TWO", "b:1"))
    asked = broker.protocol.send(EVERYTHING)
    assert broker.takes() == [(cluster.SaslHandshakeRequest(mechanism="TWO"), 0, 1)]
    broker.answers_by(cluster.SaslHandshakeResponse(mechanisms=("TWO",)), cluster.SaslHandshakeRequest, 0, 1)
    assert broker.takes() == [b"first"]
    broker.sends(b"\0\0\0\x09challenge")
    assert broker.takes() == [b"second"]
    broker.sends(b"\0\0\0\x05proof")
    assert broker.takes() == [(EVERYTHING, 2, asked)]
    with pytest.raises(DecodeError, match="a response has at least 4"):
        broker.sends(b"\0\0\0\0")


def test_the_answer_to_plain_is_an_empty_token_there() -> None:
    broker = connected(OLD)
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 0, 1)
    assert broker.takes()[1:] == [TOKEN]
    broker.sends(b"\0\0\0\0")
    assert broker.protocol.is_ready


def test_a_broker_of_0_9_is_refused() -> None:
    (release,) = (each for each in RELEASES if each.name == "0.9")
    with pytest.raises(AuthenticationError, match=r"has no SaslHandshake: Kafka 0.9 has only Kerberos"):
        Authentication(plain(), release.versions("b:1")).first()


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            cluster.SaslHandshakeResponse(error_code=33, mechanisms=("GSSAPI", "SCRAM-SHA-256")),
            "as user 'ann' by SASL PLAIN: the listener does not have this mechanism, it has: GSSAPI, SCRAM-SHA-256",
        ),
        (cluster.SaslHandshakeResponse(error_code=31), r"the broker answered CLUSTER_AUTHORIZATION_FAILED \(31\)"),
        (cluster.SaslHandshakeResponse(error_code=34), "the listener does not use SASL. Set kafka.security"),
    ],
)
def test_a_listener_without_the_mechanism_is_an_error(response: Any, message: str) -> None:
    broker = connected()
    with pytest.raises(AuthenticationError, match=message):
        broker.answers_by(response, cluster.SaslHandshakeRequest, 1, 1)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (58, AuthenticationError, "the broker rejected the credentials: no \\*\\*\\*\\*\\* for ann. Check"),
        (-1, TransportError, "no \\*\\*\\*\\*\\* for ann: UNKNOWN_SERVER_ERROR. A retry may succeed"),
        *((code, TransportError, "A retry may succeed") for code in (7, 8, 13, 15)),
        (31, AuthenticationError, "the broker answered CLUSTER_AUTHORIZATION_FAILED \\(31\\)"),
        *((code, AuthenticationError, rf"the broker answered [A-Z_]+ \({code}\)") for code in (33, 34)),
        (42, AuthenticationError, "INVALID_REQUEST .*: no \\*\\*\\*\\*\\* for ann. See the broker's log"),
    ],
)
def test_a_rejection_is_an_error_that_hides_the_password(code: int, kind: type[Exception], message: str) -> None:
    broker = connected()
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 1, 1)
    refusal = cluster.SaslAuthenticateResponse(error_code=code, error_message=f"no {PASSWORD} for ann")
    with pytest.raises(kind, match=message) as caught:
        broker.answers_by(refusal, cluster.SaslAuthenticateRequest, 2, 2)
    assert PASSWORD not in repr(caught.value)


def test_a_broker_that_hangs_up_twice_on_a_bare_token_has_rejected_it() -> None:
    """One that stops hangs up once, and the next connection is refused."""
    broker = connected(OLD)
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 0, 1)
    assert broker.protocol.on_hang_up()
    assert broker.protocol.wants_mechanism
    broker.protocol.authenticate(plain())
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 0, 2)
    with pytest.raises(AuthenticationError, match="the broker rejected the credentials: it closed the connection"):
        broker.protocol.on_hang_up()


def test_a_broker_that_hangs_up_in_a_request_of_sasl_is_not_asked_again() -> None:
    broker = connected()
    assert not broker.protocol.on_hang_up()
    assert broker.protocol.describe_eof() == "closed the connection; pending: SASL PLAIN"


def test_an_expired_session_is_renewed_behind_the_requests_that_are_sent() -> None:
    broker = authenticated()
    protocol = broker.protocol
    before = protocol.send(EVERYTHING)
    broker.takes()
    protocol.expire()
    after = protocol.send(EVERYTHING)
    assert (protocol.wants_mechanism, broker.takes(), protocol.unanswered) == (False, [], (before, after))
    broker.answers_by(METADATA, MetadataRequest, 13, before)
    assert protocol.wants_mechanism
    protocol.authenticate(plain())
    ((_, version, number),) = broker.takes()
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, version, number)
    broker.answers_by(cluster.SaslAuthenticateResponse(), cluster.SaslAuthenticateRequest, 2, number + 1)
    assert broker.takes()[-1] == (EVERYTHING, 13, after)
    assert protocol.session_lifetime_ms == 0


def test_a_protocol_without_sasl_never_expires() -> None:
    protocol = Protocol("b:1", "t", 1 << 20)
    Broker(protocol).answers_by(NEW, ApiVersionsRequest, 3, 0)
    protocol.expire()
    assert protocol.is_ready


@pytest.mark.parametrize("versions", [NEW, OLD])
def test_a_broker_that_hangs_up_on_the_first_request_may_want_sasl(versions: ApiVersionsResponse) -> None:
    """It answers the handshake to a client without SASL, too, and closes the connection on what follows."""
    protocol = Protocol("b:1", "t", 1 << 20)
    broker = Broker(protocol)
    broker.answers_by(versions, ApiVersionsRequest, 3, 0)
    first = protocol.send(EVERYTHING)
    ((_, version, _),) = broker.takes()[1:]
    pending = f"closed the connection; pending: Metadata v{version} (correlation id {first})"
    assert protocol.describe_eof() == (
        f"{pending}, the first request after the handshake. A listener with SASL does so to a client without SASL. If "
        "it is one, set kafka.security.protocol to SASL_SSL, or to SASL_PLAINTEXT without TLS"
    )
    broker.answers_by(METADATA, MetadataRequest, version, first)
    assert protocol.describe_eof() == "closed the connection; pending: nothing"
    protocol.send(EVERYTHING)
    assert "SASL" not in protocol.describe_eof(), "it has answered a client without SASL"


def test_an_answer_to_another_request_is_an_error() -> None:
    broker = connected()
    with pytest.raises(DecodeError, match=r"correlation id 7; expected: SaslHandshake v1 \(correlation id 1\)"):
        broker.answers_by(HAS, cluster.SaslHandshakeRequest, 1, 7)


def test_an_answer_with_invalid_bytes_names_the_request() -> None:
    broker = connected()
    with pytest.raises(DecodeError, match="invalid response from broker b:1 to SaslHandshake v1"):
        broker.sends(b"\0\0\0\x05\0\0\0\x01\0")


@pytest.mark.parametrize("is_raw", [False, True])
def test_a_step_that_takes_long_waits_until_somebody_takes_it(is_raw: bool) -> None:
    broker = connected(OLD if is_raw else NEW, lambda: LongStep("LONG", "b:1"))
    protocol = broker.protocol
    asked = protocol.send(EVERYTHING)

    def sends(token: bytes, number: int) -> None:
        if is_raw:
            broker.sends(len(token).to_bytes(4, "big") + token)
        else:
            broker.answers_by(
                cluster.SaslAuthenticateResponse(auth_bytes=token), cluster.SaslAuthenticateRequest, 2, number
            )

    broker.takes()
    assert protocol.work is None
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 0 if is_raw else 1, 1)
    assert protocol.work is None, "the first token is there at once"
    broker.takes()
    sends(b"challenge", 3)
    work = protocol.work
    assert work is not None
    assert broker.takes() == []
    assert not protocol.wants_mechanism
    protocol.worked(work())
    assert protocol.work is None
    (second,) = broker.takes()
    assert (second if is_raw else bytes(second[0].auth_bytes)) == b"second"
    sends(b"proof", 4)
    assert protocol.is_ready
    assert protocol.unanswered == (asked,)


def test_a_frame_in_the_middle_of_a_long_step_is_refused() -> None:
    broker = connected(NEW, lambda: LongStep("LONG", "b:1"))
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 1, 1)
    challenge = cluster.SaslAuthenticateResponse(auth_bytes=b"challenge")
    broker.answers_by(challenge, cluster.SaslAuthenticateRequest, 2, 2)
    with pytest.raises(DecodeError, match=r"broker b:1 sent a frame while the client computes its next token"):
        broker.answers_by(challenge, cluster.SaslAuthenticateRequest, 2, 2)


def test_a_new_connection_forgets_the_long_step_of_the_last() -> None:
    broker = connected(OLD, lambda: LongStep("LONG", "b:1"))
    broker.answers_by(HAS, cluster.SaslHandshakeRequest, 0, 1)
    broker.sends((9).to_bytes(4, "big") + b"challenge")
    assert broker.protocol.work is not None
    assert broker.protocol.on_hang_up()
    assert broker.protocol.work is None


# -- the protocol of Kafka 0.7, without a socket -----------------------------------------------------------------------

FETCH = FetchRequest07("events", 1, 30, 1_000)
OFFSETS = OffsetsRequest07("events", 1, LATEST_TIME, 1)
NO_SERVERS = ClientOptions(())


def protocol07(most: int = 1_000_000) -> Protocol07:
    return Protocol07("b0:9092", "ignored", most)


def test_versions_are_known_at_once_and_nothing_is_said_before_the_first_request() -> None:
    protocol = protocol07()
    assert protocol.versions is not None
    assert b"".join(protocol.outgoing()) == b""
    assert protocol.unanswered == ()


def test_answers_are_those_of_the_requests_in_their_order() -> None:
    protocol = protocol07()
    multi = MultiFetchRequest07((FETCH, FETCH))
    numbers = [protocol.send(request) for request in (FETCH, OFFSETS, multi)]
    assert b"".join(protocol.outgoing()) == FETCH.encode() + OFFSETS.encode() + multi.encode()
    responses = [
        FetchResponse07(0, b"abc"),
        OffsetsResponse07((30, 0)),
        MultiFetchResponse07((FetchResponse07(1), FetchResponse07(0, b"x"))),
    ]
    answers = deliver(protocol, b"".join(response.encode() for response in responses))
    assert [answer.correlation_id for answer in answers] == numbers
    assert [answer.response for answer in answers] == responses
    assert protocol.unanswered == ()


def test_a_produce_is_not_waited_for() -> None:
    protocol = protocol07()
    protocol.send(ProduceRequest07("events", 0, message07(b"x")))
    protocol.send(MultiProduceRequest07((ProduceRequest07("events", 0, message07(b"x")),)))
    number = protocol.send(OFFSETS)
    assert protocol.unanswered == (number,)
    (answer,) = deliver(protocol, OffsetsResponse07((7,)).encode())
    assert answer.correlation_id == number


def test_the_smallest_answer_has_two_bytes() -> None:
    protocol = protocol07()
    protocol.send(FETCH)
    (answer,) = deliver(protocol, bytes.fromhex("000000020001"))
    assert answer.response == FetchResponse07(1)


@pytest.mark.parametrize("data", ["00000001ff", "ffffffff"])
def test_a_length_that_cannot_be_is_an_error(data: str) -> None:
    protocol = protocol07()
    protocol.send(FETCH)
    with pytest.raises(
        DecodeError, match=r"b0:9092: .*FETCH of events-1@30.*Check that this is a broker of Kafka 0\.7"
    ):
        deliver(protocol, bytes.fromhex(data))


def test_an_answer_beyond_the_cap_is_refused_before_it_is_read() -> None:
    protocol = protocol07(most=1_000)
    protocol.send(FETCH)
    with pytest.raises(TooLarge, match="b0:9092: invalid frame of 1002 bytes"):
        deliver(protocol, FetchResponse07(0, b"x" * 1_000).encode()[:4])


def test_an_unexpected_response_is_an_error() -> None:
    with pytest.raises(DecodeError, match="expected: none"):
        deliver(protocol07(), FetchResponse07(0, b"abc").encode())


def test_an_answer_that_does_not_fit_its_request_is_an_error_that_names_it() -> None:
    protocol = protocol07()
    protocol.send(OFFSETS)
    with pytest.raises(DecodeError, match=r"invalid response from broker b0:9092 to OFFSETS of events-1: "):
        deliver(protocol, FetchResponse07(0, b"abcdefg").encode())


def test_why_the_broker_may_have_hung_up() -> None:
    protocol = protocol07()
    protocol.send(OFFSETS)
    protocol.send(FETCH)
    deliver(protocol, FetchResponse07(0, b"abc").encode()[:6])
    text = protocol.describe_eof()
    assert "3 bytes before the end of a frame" in text
    assert "pending: OFFSETS of events-1, and 1 more requests" in text
    assert "a partition that it does not have" in text
    assert "Kafka 0.8 or later" in text
    assert protocol07().describe_eof() == "closed the connection; pending: nothing"


def test_many_fetches_are_named_by_a_few() -> None:
    protocol = protocol07()
    protocol.send(MultiFetchRequest07((FETCH,) * 5))
    assert protocol.describe_pending() == "MULTIFETCH of events-1@30, events-1@30, events-1@30 and 2 more"


# -- and over one ------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker07(tmp_path: Path) -> OldBroker:
    return OldBroker(tmp_path)


def test_a_connection_carries_kafka_07(broker07: OldBroker) -> None:
    where = broker07.produce(1, b"hello")
    connection = Connection("127.0.0.1", broker07.port, NO_SERVERS, dialect=Dialect.KAFKA07)
    connection.connect(soon())
    assert connection.idle
    connection.send(OFFSETS)
    connection.send(FetchRequest07("events", 1, 0, 100))
    assert connection.receive(soon()).response == OffsetsResponse07((broker07.end(where),))
    assert bytes(connection.receive(soon()).response.records) == message07(b"hello")
    connection.send(OffsetsRequest07("events", 9, LATEST_TIME, 1))
    with pytest.raises(TransportError, match="a partition that it does not have"):
        connection.receive(soon())
    broker07.stop()


def test_a_poller_carries_kafka_07_and_reports_the_connection_once(broker07: OldBroker) -> None:
    poller = Poller(NO_SERVERS, dialect=Dialect.KAFKA07)
    handle = poller.connect("127.0.0.1", broker07.port)
    numbers = [poller.send(handle, OFFSETS) for _ in range(3)]
    events = collect(poller, 4)
    assert [type(event) for event in events] == [ConnectionReady, ResponseReceived, ResponseReceived, ResponseReceived]
    assert [event.correlation_id for event in events if isinstance(event, ResponseReceived)] == numbers
    poller.close()
    broker07.stop()


# -- frames, below all of these ----------------------------------------------------------------------------------------

MIB = 1024 * 1024


def frame_of(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(reader: FrameReader, data: bytes, most: int) -> list[bytes]:
    """Hand `data` in, at most `most` bytes at a time and never more than there is space for."""
    frames: list[bytes] = []
    while data:
        space = reader.space()
        count = min(len(space), len(data), most)
        assert count > 0
        space[:count] = data[:count]
        frames += [bytes(frame) for frame in reader.received(count)]
        data = data[count:]
    return frames


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(4, 64), st.integers(65_000, 70_000), st.just(200_000)), max_size=5),
    pieces=st.lists(st.one_of(st.integers(1, 9), st.integers(2_000, 100_000)), max_size=5).map(lambda p: [*p, 9_999]),
)
def test_any_split_of_the_stream_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    stream = b"".join(frame_of(body) for body in bodies)
    reader = FrameReader(MIB)
    frames: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        piece = stream[at : at + pieces[turn % len(pieces)]]
        frames += feed(reader, piece, len(piece))
        at, turn = at + len(piece), turn + 1
    assert frames == bodies
    assert reader.missing == 0


def test_the_rest_of_a_large_frame_is_received_in_place() -> None:
    reader = FrameReader(MIB)
    head = frame_of(b"a" * 500_000)[:1000]
    feed(reader, head, len(head))
    assert len(reader.space()) == reader.missing == 500_000 - 996


def test_a_frame_at_the_cap_passes_and_one_byte_more_does_not() -> None:
    assert feed(FrameReader(100), frame_of(b"a" * 100), 200) == [b"a" * 100]
    with pytest.raises(TooLarge, match="101 bytes: the limit is 100"):
        feed(FrameReader(100), frame_of(b"a" * 101), 200)


def test_a_length_is_checked_before_anything_is_allocated() -> None:
    with pytest.raises(TooLarge, match="2147483647"):
        feed(FrameReader(100 * MIB), struct.pack(">i", 2**31 - 1), 4)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3])
def test_a_frame_that_cannot_hold_a_correlation_id_is_refused(size: int) -> None:
    with pytest.raises(DecodeError, match="a response has at least 4"):
        feed(FrameReader(MIB), struct.pack(">i", size), 4)


def test_the_alert_of_a_tls_listener_is_recognised() -> None:
    with pytest.raises(TlsAnswer, match=r"the listener requires TLS\. Set kafka\.security\.protocol to SSL"):
        feed(FrameReader(100 * MIB), b"\x15\x03\x03\x00\x02\x02\x50", 7)


@pytest.mark.parametrize("damage", [b"\x15\x03\x03\x00", b"HTTP"])
def test_damage_behind_a_whole_frame_is_not_taken_for_tls_or_another_kind_of_server(damage: bytes) -> None:
    with pytest.raises(TooLarge, match=r"invalid frame of \d+ bytes: the limit is 104857600$") as caught:
        feed(FrameReader(100 * MIB), frame_of(b"whole") + damage, 64)
    assert not isinstance(caught.value, TlsAnswer)


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "uses HTTP, not Kafka's protocol"),
        (b"E\x00\x00\x00\x0a8.0.36\x00", "does not use Kafka's protocol"),  # MySQL
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not use Kafka's protocol"),
        (b"\x00\x00\x00\x00", "does not use Kafka's protocol"),
        (b"\xff\xfb\x01\xff", "does not use Kafka's protocol"),  # Telnet
    ],
    ids=["HTTP", "MySQL", "SSH", "zeros", "Telnet"],
)
def test_the_first_bytes_of_another_kind_of_server_are_recognised(first: bytes, protocol: str) -> None:
    with pytest.raises(DecodeError, match=f"The server {protocol}: check the port"):
        feed(FrameReader(100 * MIB), first, 26)


def test_a_frame_is_read_only_and_keeps_its_bytes_while_others_arrive() -> None:
    reader = FrameReader(MIB)
    space = reader.space()
    data = frame_of(b"kept") + frame_of(b"gone")[:6]
    space[: len(data)] = data
    (frame,) = reader.received(len(data))
    feed(reader, b"ne" + frame_of(b"more"), 3)
    assert bytes(frame) == b"kept"
    with pytest.raises(TypeError):
        frame[0] = 1


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=40_000), st.integers(1, 50_000))))
def test_all_bytes_leave_in_their_order(steps: list[bytes | int]) -> None:
    """A step adds a frame, or the socket takes so many bytes."""
    outgoing, added, left = Outgoing(), b"", b""
    for step in steps:
        if isinstance(step, bytes):
            outgoing.add(step)
            added += step
        else:
            taken = b"".join(outgoing.next())[:step]
            outgoing.taken(len(taken))
            left += taken
        assert len(outgoing) == len(added) - len(left)
    while rest := b"".join(outgoing.next()):
        left += rest
        outgoing.taken(len(rest))
    assert left == added
    assert not len(outgoing)


def test_small_frames_leave_together() -> None:
    outgoing = Outgoing()
    for frame in (b"ab", b"c", b"def"):
        outgoing.add(frame)
    assert outgoing.next() == [b"abcdef"]


def test_a_large_frame_is_not_copied() -> None:
    outgoing, frame = Outgoing(), bytearray(20_000)
    outgoing.add(b"small", frame)
    assert [len(piece) for piece in outgoing.next()] == [5, 20_000], "one call of the system sends both"
    outgoing.taken(6)
    (rest,) = outgoing.next()
    assert rest.obj is frame
    assert len(rest) == 19_999


def test_a_small_frame_joins_one_that_has_left_in_part() -> None:
    outgoing = Outgoing()
    outgoing.add(b"abc")
    (held,) = outgoing.next()
    outgoing.taken(2)
    outgoing.add(b"def")
    assert outgoing.next() == [b"cdef"]
    assert bytes(held) == b"abc", "bytes that were handed out do not change"
