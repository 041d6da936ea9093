import os
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import TransportError
from streamgroup.executor import idle_pool
from streamgroup.executor.pool import MAX_KEPT, ConnectionPool
from streamgroup.options.types import ClientOptions
from streamgroup.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import FakeBroker
from tests.waiting import TIMEOUT_S, soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]


class Pool(ConnectionPool):
    """A pool at one broker, whose clock can be moved."""

    def __init__(self, broker: Start, options: Options) -> None:
        self.offset = 0.0
        super().__init__(lambda: time.monotonic() + self.offset)
        handlers: dict[Any, Any] = {ApiVersionsRequest: lambda *_: API_VERSIONS, MetadataRequest: lambda *_: METADATA}
        self.broker = broker(handlers)
        self.client = options(self.broker.port)

    def borrow(self, client: ClientOptions | None = None) -> Any:
        deadline = time.monotonic() + self.offset + TIMEOUT_S
        return self.take("127.0.0.1", self.broker.port, client or self.client, deadline)


@pytest.fixture
def pool(broker: Start, options: Options) -> Pool:
    return Pool(broker, options)


def test_a_connection_in_order_is_lent_again(pool: Pool) -> None:
    first = pool.borrow()
    pool.give_back(first)
    assert pool.borrow() is first


def test_a_connection_is_lent_to_one_reader_at_a_time(pool: Pool) -> None:
    assert pool.borrow() is not pool.borrow()


def test_connections_of_other_options_are_others(pool: Pool, options: Options) -> None:
    first = pool.borrow()
    pool.give_back(first)
    assert pool.borrow(options(pool.broker.port, client_id="other")) is not first


def test_a_connection_with_an_answer_outstanding_is_reset_instead_of_kept(pool: Pool) -> None:
    connection = pool.borrow()
    connection.send(MetadataRequest(topics=None))
    pool.give_back(connection)
    pool.broker.wait_for(lambda f: f.resets == 1)
    assert pool.borrow() is not connection


def test_a_connection_that_has_something_to_read_is_not_lent(pool: Pool) -> None:
    connection = pool.borrow()
    pool.give_back(connection)
    pool.broker.hang_up()
    assert pool.borrow() is not connection
    assert pool.broker.connections == 2


def test_a_connection_that_was_idle_for_longer_than_the_option_says_is_closed(pool: Pool, options: Options) -> None:
    client = options(pool.broker.port, connections_max_idle_ms=5_000)
    connection = pool.borrow(client)
    pool.give_back(connection)
    pool.offset += 4
    assert pool.borrow(client) is connection
    pool.give_back(connection)
    pool.offset += 6
    other = pool.borrow(client)
    assert other is not connection
    pool.broker.wait_for(lambda f: f.ends == 1)


def test_a_task_that_was_slow_to_fetch_again_does_not_use_its_idle_connection(pool: Pool) -> None:
    connection = pool.borrow()
    pool.offset += pool.client.max_idle_s + 1
    assert not connection.open
    assert connection.call(MetadataRequest(topics=()), connection._clock() + 5).brokers == METADATA.brokers
    assert pool.broker.connections == 2


def test_after_a_fork_the_parents_connections_are_left_alone(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = pool.borrow()
    pool.give_back(connection)
    child = os.getpid() + 1
    monkeypatch.setattr(idle_pool.os, "getpid", lambda: child)
    assert pool.borrow() is not connection
    assert connection.open


def test_no_more_than_so_many_are_kept(pool: Pool) -> None:
    lent = [pool.borrow() for _ in range(MAX_KEPT + 2)]
    for connection in lent:
        pool.give_back(connection)
    assert [connection.open for connection in lent] == [False] * 2 + [True] * MAX_KEPT
    pool.clear()
    assert not any(connection.open for connection in lent)


def test_a_broker_that_is_gone_is_an_error(options: Options) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(TransportError, match="Connection refused"):
        ConnectionPool().take("127.0.0.1", port, options(), soon())
