"""The counts of connections, by real sockets to brokers that break them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroup.errors import TransportError
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.connection_totals import TOTALS, ConnectionTotals
from streamgroup.kafka.net.poller import ConnectionLost, Poller
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.options.types import ClientOptions
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker
from tests.unit.kafka.net.polling import collect
from tests.waiting import soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
EVERYTHING = MetadataRequest(topics=None)


@pytest.fixture(autouse=True)
def no_counts_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOTALS, "_counts", ConnectionTotals().status())


def connected(broker: Start, options: Options, answer: object = METADATA) -> Connection:
    fake = broker(
        {ApiVersionsRequest: lambda request, version: API_VERSIONS, MetadataRequest: lambda request, version: answer}
    )
    connection = Connection("127.0.0.1", fake.port, options())
    connection.connect(soon())
    return connection


def counts(**others: float) -> dict[str, float]:
    return {"open": 0, "opened": 0, "failed": 0, "lost": 0, "unanswered": 0, "throttled_s": 0.0} | others


def test_a_connection_is_open_from_its_handshake_until_it_is_closed(broker: Start, options: Options) -> None:
    connection = connected(broker, options)
    assert TOTALS.status() == counts(open=1, opened=1)
    connection.call(EVERYTHING, soon())
    connection.close()
    connection.close()
    assert TOTALS.status() == counts(opened=1)


def test_a_connection_that_the_broker_ends_is_lost_with_its_pending_requests(broker: Start, options: Options) -> None:
    connection = connected(broker, options, CLOSE)
    connection.send(EVERYTHING)
    connection.send(EVERYTHING)
    with pytest.raises(TransportError):
        connection.receive(soon())
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=2)
    connection.abort()
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=2), "counted once"


def test_an_overdue_response_resets_its_connection(broker: Start, options: Options) -> None:
    connection = connected(broker, options, SILENCE)
    with pytest.raises(TransportError):
        connection.call(EVERYTHING, soon(0.05))
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=1)


def test_a_reset_of_an_idle_connection_is_its_end_and_no_failure(broker: Start, options: Options) -> None:
    """The broker has left the cluster."""
    connected(broker, options).abort()
    assert TOTALS.status() == counts(opened=1)


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
    connected(broker, options).close()
    assert TOTALS.local_host == "127.0.0.1"


def test_a_connection_that_is_refused_has_failed(options: Options) -> None:
    with pytest.raises(TransportError):
        Connection("127.0.0.1", 1, options()).connect(soon())
    assert TOTALS.status() == counts(failed=1)


def test_a_handshake_without_a_response_has_failed(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: lambda request, version: SILENCE})
    with pytest.raises(TransportError):
        Connection("127.0.0.1", fake.port, options()).connect(soon(0.05))
    assert TOTALS.status() == counts(failed=1)
