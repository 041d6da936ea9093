import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import BrokerError, DecodeError, TooLarge, TransportError, UnsupportedVersionError, error_of
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions
from tests.fakes.broker import CLOSE, SILENCE, Cut, FakeBroker, Held, InVersion, OtherId, Raw, Slowly
from tests.waiting import TIMEOUT_S, soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]


def script(*answers: Any) -> Callable[[Any, int], Any]:
    """A handler that gives one answer after the other, the last for ever."""
    left = list(answers)
    return lambda request, version: left.pop(0) if len(left) > 1 else left[0]


def connected(broker: FakeBroker, options: Options, **others: Any) -> Connection:
    connection = Connection("127.0.0.1", broker.port, options(**others))
    connection.connect(soon())
    return connection


def test_the_handshake_tells_the_versions(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    connection = connected(fake, options)
    assert connection.versions.highest(MetadataRequest, ceiling=5) == 5
    ((name, version, request),) = fake.requests
    assert (name, version, request.client_software_name) == ("ApiVersions", 3, "streamgroup")


def test_a_broker_that_does_not_know_the_handshakes_version_is_asked_in_the_oldest(
    broker: Start, options: Options
) -> None:
    refusal = InVersion(replace(API_VERSIONS, error_code=35), 0)
    fake = broker(
        {ApiVersionsRequest: script(refusal, api_versions(metadata=(0, 2))), MetadataRequest: script(METADATA)}
    )
    connection = connected(fake, options)
    assert [version for _, version, _ in fake.requests] == [3, 0]
    assert connection.call(MetadataRequest(topics=()), soon()).brokers == METADATA.brokers
    assert fake.requests[-1][1] == 2


def test_a_refused_handshake_names_the_brokers_error(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(replace(API_VERSIONS, error_code=29))})
    with pytest.raises(BrokerError, match=r"ApiVersions handshake with broker .* failed: TOPIC_AUTHORIZATION_FAILED"):
        connected(fake, options)


@pytest.mark.parametrize("code", [-1, 7, 8])
def test_a_handshake_that_fails_in_passing_is_a_failed_connection(code: int, broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(replace(API_VERSIONS, error_code=code), API_VERSIONS)})
    with pytest.raises(TransportError, match=f"ApiVersions handshake with broker .* failed: {error_of(code).name}"):
        connected(fake, options)
    assert connected(fake, options).open


def test_a_broker_that_closes_during_the_handshake_may_be_too_old(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(CLOSE)})
    with pytest.raises(TransportError, match=r"on each request of the handshake \(ApiVersions v3, .*Kafka 0\.7"):
        connected(fake, options)


def test_requests_are_pipelined_and_answered_in_their_order(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(METADATA)})
    connection = connected(fake, options)
    asked = [connection.send(MetadataRequest(topics=None), ceiling=4 + i) for i in range(3)]
    assert connection.outstanding == 3
    assert [connection.receive(soon()).correlation_id for _ in asked] == asked
    assert connection.outstanding == 0
    assert [version for name, version, _ in fake.requests if name == "Metadata"] == [4, 5, 6]


@pytest.mark.parametrize("piece", [1, 3, 7])
def test_answers_in_small_pieces_are_whole(piece: int, broker: Start, options: Options) -> None:
    fake = broker(
        {ApiVersionsRequest: script(Slowly(API_VERSIONS, piece)), MetadataRequest: script(Slowly(METADATA, piece))}
    )
    assert connected(fake, options).call(MetadataRequest(topics=None), soon()) == METADATA


def test_a_missed_deadline_names_what_was_asked_and_how_long_was_waited(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(SILENCE)})
    connection = connected(fake, options)
    began = time.monotonic()
    with pytest.raises(TransportError) as missed:
        connection.call(MetadataRequest(topics=None), soon(0.1))
    named = re.search(rf"127.0.0.1:{fake.port} within (\d+\.\d) s; pending: Metadata v\d+", str(missed.value))
    assert named is not None, str(missed.value)
    assert 0.1 <= float(named[1]) <= time.monotonic() - began + 0.1
    assert not connection.open
    fake.wait_for(lambda f: f.resets == 1)


def test_a_late_answer_is_received_after_a_missed_deadline_and_never_taken_for_another(
    broker: Start, options: Options
) -> None:
    released = threading.Event()
    answers = script(Held(METADATA, released), METADATA)
    connection = connected(broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: answers}), options)
    first = connection.send(MetadataRequest(topics=None))
    with pytest.raises(TransportError, match="no response"):
        connection.receive(soon(0.01))
    released.set()
    second = connection.send(MetadataRequest(topics=None))
    assert connection.receive(soon()).correlation_id == first
    assert connection.receive(soon()).correlation_id == second


def test_a_call_is_refused_while_answers_are_outstanding(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(METADATA)})
    connection = connected(fake, options)
    connection.send(MetadataRequest(topics=None))
    with pytest.raises(ValueError, match="1 responses are outstanding"):
        connection.call(MetadataRequest(topics=None), soon())


def test_an_answer_under_another_correlation_id_ends_the_connection(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(OtherId(METADATA, 77))})
    connection = connected(fake, options)
    with pytest.raises(DecodeError, match=r"correlation id 77; expected: Metadata v\d+ \(correlation id 1\)"):
        connection.call(MetadataRequest(topics=None), soon())
    assert not connection.open


def test_an_unexpected_response_closes_the_connection(broker: Start, options: Options) -> None:
    unasked = Raw(struct.pack(">ii", 4, 5))
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(unasked)})
    connection = connected(fake, options)
    with pytest.raises(DecodeError, match="correlation id 5"):
        connection.call(MetadataRequest(topics=None), soon())


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_cut_in_the_middle_of_a_frame_says_so(reset: bool, broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(Cut(METADATA, 5, reset))})
    connection = connected(fake, options)
    expected = "lost|closed the connection" if reset else "5 bytes before the end of a frame; pending: Metadata"
    with pytest.raises(TransportError, match=expected):
        connection.call(MetadataRequest(topics=None), soon())
    assert not connection.open


def test_a_frame_beyond_the_cap_is_refused_unread(broker: Start, options: Options) -> None:
    huge = Raw(struct.pack(">ii", 1 << 20, 1))
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(huge)})
    connection = connected(fake, options, max_frame_bytes=1 << 16)
    with pytest.raises(TooLarge, match=r"1048576 bytes: the limit is 65536; pending: Metadata"):
        connection.call(MetadataRequest(topics=None), soon())


def test_an_answer_that_cannot_be_read_names_its_request(broker: Start, options: Options) -> None:
    garbage = Raw(struct.pack(">ii", 8, 1) + b"\xff\xff\xff\xff")
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(garbage)})
    connection = connected(fake, options)
    with pytest.raises(DecodeError, match=r"to Metadata v\d+ \(correlation id 1\): "):
        connection.call(MetadataRequest(topics=None), soon())


def test_abort_resets_and_close_does_not(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    connected(fake, options).abort()
    fake.wait_for(lambda f: f.resets == 1)
    connected(fake, options).close()
    fake.wait_for(lambda f: f.ends == 1)
    assert fake.resets == 1


def test_a_closed_connection_refuses_requests_and_can_connect_again(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(METADATA)})
    connection = connected(fake, options)
    connection.close()
    with pytest.raises(TransportError, match="not connected"):
        connection.send(MetadataRequest(topics=None))
    connection.connect(soon())
    assert connection.call(MetadataRequest(topics=None), soon()) == METADATA


def test_an_api_that_the_broker_lacks_is_named_and_the_connection_stays(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(api_versions())})
    connection = connected(fake, options)
    with pytest.raises(UnsupportedVersionError, match=rf"Metadata.*broker 127.0.0.1:{fake.port} does not have it"):
        connection.send(MetadataRequest(topics=None))
    assert connection.open
    assert connection.outstanding == 0


def test_a_port_without_a_listener_is_an_error_with_address_and_cause(options: Options) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(
        TransportError, match=rf"cannot connect to broker 127.0.0.1:{port}: 127.0.0.1: Connection refused"
    ):
        Connection("127.0.0.1", port, options()).connect(soon())


def test_each_address_of_a_name_is_tried(broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", at) for at in (nobody, ("127.0.0.1", fake.port))]

    def look_up(host: str, port: int, *, type: int, flags: int) -> Any:  # noqa: A002
        if flags:
            raise socket.gaierror("not numeric")
        return found

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    connection = Connection("kafka.example", fake.port, options())
    connection.connect(soon())
    assert connection.open


def test_a_name_that_does_not_exist_is_named(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(
        TransportError, match=r"cannot connect to broker nowhere:9092: its name does not resolve: .*not known"
    ):
        Connection("nowhere", 9092, options()).connect(soon())


def test_a_resolver_that_hangs_is_waited_for_no_longer_than_the_time_for_setting_up(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = threading.Event()

    def look_up(*_: Any, flags: int, **__: Any) -> Any:
        if flags:
            raise socket.gaierror("not numeric")
        hang.wait(TIMEOUT_S)
        raise socket.gaierror("at last")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    connection = Connection("slow", 9092, options(connection_setup_timeout_ms=50))
    with pytest.raises(TransportError, match=r"not resolved within 0\.05 s"):
        connection.connect(soon())
    hang.set()


def test_a_listener_that_never_answers_the_handshake_is_given_up(broker: Start, options: Options) -> None:
    clock = Clock()
    fake = broker({ApiVersionsRequest: clock.before(0.08, SILENCE)})
    connection = Connection("127.0.0.1", fake.port, options(connection_setup_timeout_ms=80), clock)
    with pytest.raises(TransportError, match=r"to the ApiVersions handshake within 0\.08 s"):
        connection.connect(clock.now + 20)
    with pytest.raises(TransportError, match=r"within 0\.1 s: still handshake"):
        Connection("127.0.0.1", fake.port, options(), clock).connect(clock.now + 0.05)


@pytest.mark.slow
def test_a_large_answer_arrives_whole(broker: Start, options: Options) -> None:
    many = replace(METADATA, brokers=tuple(replace(METADATA.brokers[0], node_id=i) for i in range(30_000)))
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(many)})
    response = connected(fake, options).call(MetadataRequest(topics=None), soon())
    assert [b.node_id for b in response.brokers] == list(range(30_000))


def test_answers_that_came_before_the_end_are_received_before_its_error(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(METADATA, OtherId(METADATA, 9))})
    connection = connected(fake, options)
    for _ in range(2):
        connection.send(MetadataRequest(topics=None))
    fake.wait_for(lambda f: len(f.requests) == 3)
    assert connection.receive(soon()).correlation_id == 1
    with pytest.raises(DecodeError, match="correlation id 9"):
        connection.receive(soon())


def test_connecting_again_ends_the_old_connection(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    connection = connected(fake, options)
    connection.connect(soon())
    fake.wait_for(lambda f: f.ends == 1)
    assert connection.open
