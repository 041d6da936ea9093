import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import BrokerError, DecodeError, TooLarge, TransportError, error_of
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.connection_totals import TOTALS, ConnectionTotals
from streamgroup.kafka.net.poller import ConnectionLost, Poller
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import CLOSE, SILENCE, Cut, FakeBroker, Held, OtherId, Raw
from tests.unit.kafka.net.polling import collect
from tests.waiting import soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
EVERYTHING = MetadataRequest(topics=None)


def script(*answers: Any) -> Callable[[Any, int], Any]:
    """A handler that gives one answer after the other, the last for ever."""
    left = list(answers)
    return lambda request, version: left.pop(0) if len(left) > 1 else left[0]


def connected(broker: FakeBroker, options: Options, **others: Any) -> Connection:
    connection = Connection("127.0.0.1", broker.port, options(**others))
    connection.connect(soon())
    return connection


def answering(start: Start, *answers: Any) -> FakeBroker:
    return start({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(*answers)})


@pytest.mark.parametrize("code", [-1, 7, 8])
def test_a_handshake_that_fails_in_passing_is_a_failed_connection(code: int, broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(replace(API_VERSIONS, error_code=code), API_VERSIONS)})
    with pytest.raises(TransportError, match=f"ApiVersions handshake with broker .* failed: {error_of(code).name}"):
        connected(fake, options)
    assert connected(fake, options).open
    fake = broker({ApiVersionsRequest: script(replace(API_VERSIONS, error_code=29))})
    with pytest.raises(BrokerError, match=r"ApiVersions handshake with broker .* failed: TOPIC_AUTHORIZATION_FAILED"):
        connected(fake, options)


def test_requests_are_pipelined_and_answered_in_their_order(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA)
    connection = connected(fake, options)
    asked = [connection.send(EVERYTHING, ceiling=4 + i) for i in range(3)]
    assert connection.outstanding == 3
    assert [connection.receive(soon()).correlation_id for _ in asked] == asked
    assert connection.outstanding == 0
    assert [version for name, version, _ in fake.requests if name == "Metadata"] == [4, 5, 6]


def test_a_missed_deadline_names_what_was_asked_and_how_long_was_waited(broker: Start, options: Options) -> None:
    fake = answering(broker, SILENCE)
    connection = connected(fake, options)
    began = time.monotonic()
    with pytest.raises(TransportError) as missed:
        connection.call(EVERYTHING, soon(0.1))
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
    first = connection.send(EVERYTHING)
    with pytest.raises(TransportError, match="no response"):
        connection.receive(soon(0.01))
    released.set()
    second = connection.send(EVERYTHING)
    assert connection.receive(soon()).correlation_id == first
    assert connection.receive(soon()).correlation_id == second


def test_a_call_is_refused_while_answers_are_outstanding(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA)
    connection = connected(fake, options)
    connection.send(EVERYTHING)
    with pytest.raises(ValueError, match="1 responses are outstanding"):
        connection.call(EVERYTHING, soon())


def test_an_answer_under_another_correlation_id_ends_the_connection(broker: Start, options: Options) -> None:
    fake = answering(broker, OtherId(METADATA, 77))
    connection = connected(fake, options)
    with pytest.raises(DecodeError, match=r"correlation id 77; expected: Metadata v\d+ \(correlation id 1\)"):
        connection.call(EVERYTHING, soon())
    assert not connection.open


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_cut_in_the_middle_of_a_frame_says_so(reset: bool, broker: Start, options: Options) -> None:
    fake = answering(broker, Cut(METADATA, 5, reset))
    connection = connected(fake, options)
    expected = "lost|closed the connection" if reset else "5 bytes before the end of a frame; pending: Metadata"
    with pytest.raises(TransportError, match=expected):
        connection.call(EVERYTHING, soon())
    assert not connection.open


def test_a_frame_beyond_the_cap_is_refused_unread(broker: Start, options: Options) -> None:
    huge = Raw(struct.pack(">ii", 1 << 20, 1))
    fake = answering(broker, huge)
    connection = connected(fake, options, max_frame_bytes=1 << 16)
    with pytest.raises(TooLarge, match=r"1048576 bytes: the limit is 65536; pending: Metadata"):
        connection.call(EVERYTHING, soon())


def test_abort_resets_and_close_does_not(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    connected(fake, options).abort()
    fake.wait_for(lambda f: f.resets == 1)
    connected(fake, options).close()
    fake.wait_for(lambda f: f.ends == 1)
    assert fake.resets == 1


def test_a_closed_connection_refuses_requests_and_can_connect_again(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA)
    connection = connected(fake, options)
    connection.close()
    with pytest.raises(TransportError, match="not connected"):
        connection.send(EVERYTHING)
    connection.connect(soon())
    assert connection.call(EVERYTHING, soon()) == METADATA


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
    def look_up(*_: Any, flags: int, **__: Any) -> Any:
        time.sleep(0 if flags else 0.05)  # the connection waits for it
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(
        TransportError, match=r"cannot connect to broker nowhere:9092: its name does not resolve: .*not known"
    ):
        Connection("nowhere", 9092, options()).connect(soon())


def test_a_listener_that_never_answers_the_handshake_is_given_up(broker: Start, options: Options) -> None:
    clock = Clock()
    fake = broker({ApiVersionsRequest: clock.before(0.08, SILENCE)})
    connection = Connection("127.0.0.1", fake.port, options(connection_setup_timeout_ms=80), clock)
    with pytest.raises(TransportError, match=r"to the ApiVersions handshake within 0\.08 s"):
        connection.connect(clock.now + 20)
    with pytest.raises(TransportError, match=r"within 0\.1 s: still handshake"):
        Connection("127.0.0.1", fake.port, options(), clock).connect(clock.now + 0.05)


def test_answers_that_came_before_the_end_are_received_before_its_error(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA, OtherId(METADATA, 9))
    connection = connected(fake, options)
    for _ in range(2):
        connection.send(EVERYTHING)
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


# -- the counts of connections -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOTALS, "_counts", ConnectionTotals().status())


def counts(**others: float) -> dict[str, float]:
    return {"open": 0, "opened": 0, "failed": 0, "lost": 0, "unanswered": 0, "throttled_s": 0.0} | others


def test_a_connection_is_open_from_its_handshake_until_it_is_closed(broker: Start, options: Options) -> None:
    connection = connected(answering(broker, METADATA), options)
    assert TOTALS.status() == counts(open=1, opened=1)
    connection.call(EVERYTHING, soon())
    connection.close()
    connection.close()
    assert TOTALS.status() == counts(opened=1)


def test_a_connection_that_the_broker_ends_is_lost_with_its_pending_requests(broker: Start, options: Options) -> None:
    connection = connected(answering(broker, CLOSE), options)
    connection.send(EVERYTHING)
    connection.send(EVERYTHING)
    with pytest.raises(TransportError):
        connection.receive(soon())
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=2)
    connection.abort()
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=2), "counted once"


def test_the_connections_of_a_poller_are_counted(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: lambda request, version: API_VERSIONS})
    poller = Poller(options())
    handles = [poller.connect("127.0.0.1", fake.port) for _ in range(3)]
    refused = poller.connect("127.0.0.1", 1)
    seen = collect(poller, 4)
    assert [event.handle for event in seen if isinstance(event, ConnectionLost)] == [refused]
    assert TOTALS.status() == counts(open=3, opened=3, failed=1)
    poller.send(handles[0], EVERYTHING)
    poller.drop(handles[0], reset=True)
    poller.drop(handles[1], reset=True)
    assert TOTALS.status() == counts(open=1, opened=3, failed=1, lost=1, unanswered=1)
    poller.close()
    assert TOTALS.status() == counts(opened=3, failed=1, lost=1, unanswered=1)


def test_the_address_of_this_machine_is_that_of_the_newest_connection(broker: Start, options: Options) -> None:
    totals = ConnectionTotals()
    assert totals.local_host == ""
    for host in ("10.0.0.7", "10.0.0.8"):
        totals.on_opened(host)
        assert totals.local_host == host
    connected(answering(broker, METADATA), options).close()
    assert TOTALS.local_host == "127.0.0.1"
