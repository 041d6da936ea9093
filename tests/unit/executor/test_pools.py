"""A worker process keeps connections and producers between tasks: a few, for some minutes, and each for one task."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import ErrorCode, ProduceError, TransportError
from streamgroup.executor import pools
from streamgroup.executor.pools import MAX_KEPT, MAX_KEPT_PRODUCERS, ConnectionPool, IdlePool, ProducerPool
from streamgroup.executor.write.producer import TaskProducer
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.options.types import ClientOptions, ProducerOptions
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA
from tests.fakes.broker import FakeBroker
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC, client_of, placed, producer_options, write
from tests.waiting import TIMEOUT_S, soon

MAX_IDLE_S = 180.0


class Kept:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def idle_pool(clock: Clock) -> IdlePool[str, Kept]:
    return IdlePool(2, clock)


def test_an_object_is_taken_by_its_key_and_by_one_task_only(idle_pool: IdlePool[str, Kept]) -> None:
    kept = Kept()
    idle_pool.keep("a", kept, MAX_IDLE_S)
    assert idle_pool.take("b") is None
    assert idle_pool.take("a") is kept
    assert idle_pool.take("a") is None
    assert kept.closed == 0


def test_of_several_with_one_key_the_one_used_last_is_taken_first(idle_pool: IdlePool[str, Kept]) -> None:
    first, last = Kept(), Kept()
    idle_pool.keep("a", first, MAX_IDLE_S)
    idle_pool.keep("a", last, MAX_IDLE_S)
    assert [idle_pool.take("a"), idle_pool.take("a")] == [last, first]


def test_the_oldest_above_the_limit_is_closed_whatever_its_key(idle_pool: IdlePool[str, Kept]) -> None:
    kept = {key: Kept() for key in "abc"}
    for key, each in kept.items():
        idle_pool.keep(key, each, MAX_IDLE_S)
    assert [each.closed for each in kept.values()] == [1, 0, 0]
    assert [idle_pool.take(key) for key in "abc"] == [None, kept["b"], kept["c"]]


@pytest.mark.parametrize(("idle", "is_kept"), [(MAX_IDLE_S, True), (MAX_IDLE_S + 0.5, False)])
def test_an_object_that_was_idle_for_too_long_is_closed_by_the_next_take(
    idle: float, is_kept: bool, idle_pool: IdlePool[str, Kept], clock: Clock
) -> None:
    """Any key's take looks for them."""
    old, asked, patient = Kept(), Kept(), Kept()
    idle_pool.keep("old", old, MAX_IDLE_S)
    clock.now += idle
    idle_pool.keep("a", asked, 1.0)
    assert idle_pool.take("a") is asked
    assert old.closed == (0 if is_kept else 1)
    assert idle_pool.take("old") is (old if is_kept else None)
    idle_pool.keep("b", patient, math.inf)
    clock.now += 1e9
    assert idle_pool.take("b") is patient


def test_use_starts_the_idle_time_anew(idle_pool: IdlePool[str, Kept], clock: Clock) -> None:
    kept = Kept()
    for _ in range(3):
        idle_pool.keep("a", kept, MAX_IDLE_S)
        clock.now += MAX_IDLE_S - 1
        assert idle_pool.take("a") is kept


def test_a_cleared_pool_has_closed_everything_once(idle_pool: IdlePool[str, Kept]) -> None:
    kept = [Kept(), Kept()]
    for each in kept:
        idle_pool.keep("a", each, MAX_IDLE_S)
    idle_pool.clear()
    idle_pool.clear()
    assert [each.closed for each in kept] == [1, 1]
    assert idle_pool.take("a") is None


def test_a_forked_process_leaves_its_parents_objects_open_and_keeps_its_own(
    idle_pool: IdlePool[str, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    parents, own = Kept(), Kept()
    idle_pool.keep("a", parents, MAX_IDLE_S)
    child = os.getpid() + 1
    monkeypatch.setattr(pools.os, "getpid", lambda: child)
    assert idle_pool.take("a") is None
    idle_pool.keep("a", own, MAX_IDLE_S)
    assert idle_pool.take("a") is own
    idle_pool.clear()
    assert parents.closed == 0


def test_an_object_may_use_the_pool_while_it_is_closed(idle_pool: IdlePool[str, Kept]) -> None:
    """It is closed outside of the lock: a producer's close may take seconds, and other threads go on."""

    class Returning(Kept):
        def close(self) -> None:
            other = threading.Thread(target=idle_pool.take, args=("b",), daemon=True)
            other.start()
            other.join(5)
            assert not other.is_alive()
            super().close()

    kept = Returning()
    idle_pool.keep("a", kept, MAX_IDLE_S)
    idle_pool.clear()
    assert kept.closed == 1


Start = Callable[..., ScriptedCluster]
Pool = ProducerPool[tuple[ClientOptions, ProducerOptions], TaskProducer]


@pytest.fixture
def pool(clock: Clock) -> Pool:
    return ProducerPool(lambda key: TaskProducer(*key), clock)


def test_two_tasks_in_a_row_use_one_connection_and_one_producer_id(cluster: ScriptedCluster, pool: Pool) -> None:
    for value in (b"a", b"b"):
        with pool.lend((client_of(cluster), producer_options())) as producer:
            write(producer, placed(value))
            assert producer.written.records == 1
    pool.clear()
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
    assert [each.sequence for each in cluster.log(TOPIC, 0)] == [0, 1]
    assert (cluster.brokers[0].connections, len(cluster.producer_ids)) == (1, 1)
    assert len(cluster.brokers[0].asked("Metadata")) == 1


def test_a_producer_that_failed_is_closed_and_not_lent_again(cluster: ScriptedCluster, pool: Pool) -> None:
    cluster.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    options = client_of(cluster), producer_options()
    with pytest.raises(ProduceError), pool.lend(options) as failed:
        write(failed, placed(b"a"))
    cluster.brokers[0].wait_for(lambda broker: broker.ends + broker.resets == 1)
    with pool.lend(options) as producer:
        assert producer is not failed
        write(producer, placed(b"b"))
    pool.clear()
    assert cluster.values(TOPIC, 0) == [b"b"]


class LentProducer(Kept):
    is_usable = True

    def begin(self) -> None: ...


def test_at_most_so_many_producers_are_kept(clock: Clock) -> None:
    keys = [(ClientOptions(()), number) for number in range(MAX_KEPT_PRODUCERS + 1)]
    made = {key: LentProducer() for key in keys}
    kept = ProducerPool(made.__getitem__, clock)
    for key in keys:
        with kept.lend(key):
            pass
    assert [each.closed for each in made.values()] == [1] + [0] * MAX_KEPT_PRODUCERS


def test_a_producer_is_closed_with_what_a_task_left_unacknowledged(cluster: ScriptedCluster, pool: Pool) -> None:
    options = client_of(cluster), producer_options(linger_ms=2_000)
    with pool.lend(options) as left:
        left.append([placed(b"a")])
    with pool.lend(options) as producer:
        assert producer is not left
        assert producer.queued_bytes(placed()[0]) == 0
    pool.clear()


def test_a_producer_that_was_idle_for_too_long_is_closed(cluster: ScriptedCluster, pool: Pool, clock: Clock) -> None:
    options = client_of(cluster), producer_options()
    with pool.lend(options) as old:
        write(old, placed(b"a"))
    clock.now += options[0].max_idle_s + 1
    with pool.lend(options) as producer:
        assert producer is not old
    cluster.brokers[0].wait_for(lambda broker: broker.ends + broker.resets == 1)
    pool.clear()


StartServer = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]


class PoolOfOneBroker(ConnectionPool):
    """A pool at one broker, whose clock can be moved."""

    def __init__(self, broker: StartServer, options: Options) -> None:
        self.offset = 0.0
        super().__init__(lambda: time.monotonic() + self.offset)
        handlers: dict[Any, Any] = {ApiVersionsRequest: lambda *_: API_VERSIONS, MetadataRequest: lambda *_: METADATA}
        self.broker = broker(handlers)
        self.client = options(self.broker.port)

    def borrow(self, client: ClientOptions | None = None) -> Any:
        deadline = time.monotonic() + self.offset + TIMEOUT_S
        return self.take("127.0.0.1", self.broker.port, client or self.client, deadline)


@pytest.fixture
def connection_pool(broker: StartServer, options: Options) -> PoolOfOneBroker:
    return PoolOfOneBroker(broker, options)


def test_connections_of_other_options_are_others(connection_pool: PoolOfOneBroker, options: Options) -> None:
    first = connection_pool.borrow()
    connection_pool.give_back(first)
    assert connection_pool.borrow(options(connection_pool.broker.port, client_id="other")) is not first


def test_a_connection_with_an_answer_outstanding_is_reset_instead_of_kept(connection_pool: PoolOfOneBroker) -> None:
    connection = connection_pool.borrow()
    connection.send(MetadataRequest(topics=None))
    connection_pool.give_back(connection)
    connection_pool.broker.wait_for(lambda f: f.resets == 1)
    assert connection_pool.borrow() is not connection


def test_a_connection_that_has_something_to_read_is_not_lent(connection_pool: PoolOfOneBroker) -> None:
    connection = connection_pool.borrow()
    connection_pool.give_back(connection)
    connection_pool.broker.hang_up()
    assert connection_pool.borrow() is not connection
    assert connection_pool.broker.connections == 2


def test_a_connection_that_was_idle_for_too_long_is_closed(connection_pool: PoolOfOneBroker, options: Options) -> None:
    client = options(connection_pool.broker.port, connections_max_idle_ms=5_000)
    connection = connection_pool.borrow(client)
    connection_pool.give_back(connection)
    connection_pool.offset += 4
    assert connection_pool.borrow(client) is connection
    connection_pool.give_back(connection)
    connection_pool.offset += 6
    other = connection_pool.borrow(client)
    assert other is not connection
    connection_pool.broker.wait_for(lambda f: f.ends == 1)


def test_a_task_that_was_slow_to_fetch_again_does_not_use_its_idle_connection(connection_pool: PoolOfOneBroker) -> None:
    connection = connection_pool.borrow()
    connection_pool.offset += connection_pool.client.max_idle_s + 1
    assert not connection.open
    assert connection.call(MetadataRequest(topics=()), connection._clock() + 5).brokers == METADATA.brokers
    assert connection_pool.broker.connections == 2


def test_no_more_than_so_many_are_kept(connection_pool: PoolOfOneBroker) -> None:
    lent = [connection_pool.borrow() for _ in range(MAX_KEPT + 2)]
    for connection in lent:
        connection_pool.give_back(connection)
    assert [connection.open for connection in lent] == [False] * 2 + [True] * MAX_KEPT
    connection_pool.clear()
    assert not any(connection.open for connection in lent)


def test_a_broker_that_is_gone_is_an_error(options: Options) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(TransportError, match="Connection refused"):
        ConnectionPool().take("127.0.0.1", port, options(), soon())
