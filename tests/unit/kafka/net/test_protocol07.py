"""The protocol of Kafka 0.7 without a socket, then over one."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import DecodeError, TooLarge, TransportError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.poller import ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.protocol07 import Protocol07
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
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions
from tests.fakes.broker07 import OldBroker
from tests.unit.kafka.net.polling import collect
from tests.unit.kafka.net.test_protocol import deliver
from tests.waiting import soon

FETCH = FetchRequest07("events", 1, 30, 1_000)
OFFSETS = OffsetsRequest07("events", 1, LATEST_TIME, 1)
OPTIONS = ClientOptions(())


def protocol(most: int = 1_000_000) -> Protocol07:
    return Protocol07("b0:9092", "ignored", most)


def test_versions_are_known_at_once_and_nothing_is_said_before_the_first_request() -> None:
    speaking = protocol()
    assert speaking.versions is not None
    assert b"".join(speaking.outgoing()) == b""
    assert speaking.unanswered == ()


def test_answers_are_those_of_the_requests_in_their_order() -> None:
    speaking = protocol()
    multi = MultiFetchRequest07((FETCH, FETCH))
    numbers = [speaking.send(request) for request in (FETCH, OFFSETS, multi)]
    assert b"".join(speaking.outgoing()) == FETCH.encode() + OFFSETS.encode() + multi.encode()
    responses = [
        FetchResponse07(0, b"abc"),
        OffsetsResponse07((30, 0)),
        MultiFetchResponse07((FetchResponse07(1), FetchResponse07(0, b"x"))),
    ]
    answers = deliver(speaking, b"".join(response.encode() for response in responses))
    assert [answer.correlation_id for answer in answers] == numbers
    assert [answer.response for answer in answers] == responses
    assert speaking.unanswered == ()


def test_a_produce_is_not_waited_for() -> None:
    speaking = protocol()
    speaking.send(ProduceRequest07("events", 0, message07(b"x")))
    speaking.send(MultiProduceRequest07((ProduceRequest07("events", 0, message07(b"x")),)))
    number = speaking.send(OFFSETS)
    assert speaking.unanswered == (number,)
    (answer,) = deliver(speaking, OffsetsResponse07((7,)).encode())
    assert answer.correlation_id == number


def test_the_smallest_answer_has_two_bytes() -> None:
    speaking = protocol()
    speaking.send(FETCH)
    (answer,) = deliver(speaking, bytes.fromhex("000000020001"))
    assert answer.response == FetchResponse07(1)


@pytest.mark.parametrize("data", ["00000001ff", "ffffffff"])
def test_a_length_that_cannot_be_is_an_error(data: str) -> None:
    speaking = protocol()
    speaking.send(FETCH)
    with pytest.raises(
        DecodeError, match=r"b0:9092: .*FETCH of events-1@30.*Check that this is a broker of Kafka 0\.7"
    ):
        deliver(speaking, bytes.fromhex(data))


def test_an_answer_beyond_the_cap_is_refused_before_it_is_read() -> None:
    speaking = protocol(most=1_000)
    speaking.send(FETCH)
    with pytest.raises(TooLarge, match="b0:9092: invalid frame of 1002 bytes"):
        deliver(speaking, FetchResponse07(0, b"x" * 1_000).encode()[:4])


def test_an_unexpected_response_is_an_error() -> None:
    with pytest.raises(DecodeError, match="expected: none"):
        deliver(protocol(), FetchResponse07(0, b"abc").encode())


def test_an_answer_that_does_not_fit_its_request_is_an_error_that_names_it() -> None:
    speaking = protocol()
    speaking.send(OFFSETS)
    with pytest.raises(DecodeError, match=r"invalid response from broker b0:9092 to OFFSETS of events-1: "):
        deliver(speaking, FetchResponse07(0, b"abcdefg").encode())


def test_why_the_broker_may_have_hung_up() -> None:
    speaking = protocol()
    speaking.send(OFFSETS)
    speaking.send(FETCH)
    deliver(speaking, FetchResponse07(0, b"abc").encode()[:6])
    text = speaking.describe_eof()
    assert "3 bytes before the end of a frame" in text
    assert "pending: OFFSETS of events-1, and 1 more requests" in text
    assert "a partition that it does not have" in text
    assert "Kafka 0.8 or later" in text
    assert protocol().describe_eof() == "closed the connection; pending: nothing"


def test_many_fetches_are_named_by_a_few() -> None:
    speaking = protocol()
    speaking.send(MultiFetchRequest07((FETCH,) * 5))
    assert speaking.describe_pending() == "MULTIFETCH of events-1@30, events-1@30, events-1@30 and 2 more"


# -- over a socket -----------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> OldBroker:
    return OldBroker(tmp_path)


def test_a_connection_carries_kafka_07(broker: OldBroker) -> None:
    where = broker.produce(1, b"hello")
    connection = Connection("127.0.0.1", broker.port, OPTIONS, dialect=Dialect.KAFKA07)
    connection.connect(soon())
    assert connection.idle
    connection.send(OFFSETS)
    connection.send(FetchRequest07("events", 1, 0, 100))
    assert connection.receive(soon()).response == OffsetsResponse07((broker.end(where),))
    assert bytes(connection.receive(soon()).response.records) == message07(b"hello")
    connection.send(OffsetsRequest07("events", 9, LATEST_TIME, 1))
    with pytest.raises(TransportError, match="a partition that it does not have"):
        connection.receive(soon())
    broker.stop()


def test_a_poller_carries_kafka_07_and_reports_the_connection_once(broker: OldBroker) -> None:
    poller = Poller(OPTIONS, dialect=Dialect.KAFKA07)
    handle = poller.connect("127.0.0.1", broker.port)
    numbers = [poller.send(handle, OFFSETS) for _ in range(3)]
    events = collect(poller, 4)
    assert [type(event) for event in events] == [ConnectionReady, ResponseReceived, ResponseReceived, ResponseReceived]
    assert [event.correlation_id for event in events if isinstance(event, ResponseReceived)] == numbers
    poller.close()
    broker.stop()
