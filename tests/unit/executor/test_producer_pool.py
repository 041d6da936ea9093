"""A worker process lends a producer again to the next task, or closes it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from streamgroup.errors import ErrorCode, ProduceError
from streamgroup.executor import idle_pool
from streamgroup.executor.producer import TaskProducer
from streamgroup.executor.producer_pool import MAX_KEPT, ProducerPool
from streamgroup.options.types import ClientOptions, ProducerOptions
from tests.clock import Clock
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC, client_of, placed, producer_options, write
from tests.waiting import wait_until

Start = Callable[..., ScriptedCluster]
Pool = ProducerPool[tuple[ClientOptions, ProducerOptions], TaskProducer]


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def pool(clock: Clock) -> Pool:
    return ProducerPool(lambda key: TaskProducer(*key), clock)


def test_two_tasks_in_a_row_use_one_connection_and_one_producer_id(start_cluster: Start, pool: Pool) -> None:
    cluster = start_cluster()
    for value in (b"a", b"b"):
        with pool.lend((client_of(cluster), producer_options())) as producer:
            write(producer, placed(value))
            assert producer.written.records == 1
    pool.clear()
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
    assert [each.sequence for each in cluster.log(TOPIC, 0)] == [0, 1]
    assert (cluster.brokers[0].connections, len(cluster.producer_ids)) == (1, 1)
    assert len(cluster.brokers[0].asked("Metadata")) == 1


def test_two_tasks_at_a_time_have_a_producer_each(start_cluster: Start, pool: Pool) -> None:
    cluster = start_cluster()
    options = client_of(cluster), producer_options()
    with pool.lend(options) as one, pool.lend(options) as other:
        write(one, placed(b"a"))
        write(other, placed(b"b"))
    pool.clear()
    assert len(set(cluster.producer_ids)) == 2


def test_other_options_get_another_producer(start_cluster: Start, pool: Pool) -> None:
    cluster = start_cluster()
    for acks in (1, -1):
        with pool.lend((client_of(cluster), producer_options(acks=acks))) as producer:
            write(producer, placed(b"a"))
    pool.clear()
    assert [request.acks for _, request, _ in cluster.requests] == [1, -1]


def test_a_producer_that_failed_is_closed_and_not_lent_again(start_cluster: Start, pool: Pool) -> None:
    cluster = start_cluster()
    cluster.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    options = client_of(cluster), producer_options()
    with pytest.raises(ProduceError), pool.lend(options) as failed:
        write(failed, placed(b"a"))
    wait_until(
        lambda: cluster.brokers[0].ends + cluster.brokers[0].resets == 1, "the connection is closed", every=0.002
    )
    with pool.lend(options) as producer:
        assert producer is not failed
        write(producer, placed(b"b"))
    pool.clear()
    assert cluster.values(TOPIC, 0) == [b"b"]


def test_a_producer_is_closed_with_what_a_task_left_unacknowledged(start_cluster: Start, pool: Pool) -> None:
    cluster = start_cluster()
    options = client_of(cluster), producer_options(linger_ms=2_000)
    with pool.lend(options) as left:
        left.append([placed(b"a")])
    with pool.lend(options) as producer:
        assert producer is not left
        assert producer.queued_bytes(placed()[0]) == 0
    pool.clear()


def test_a_producer_that_was_idle_for_too_long_is_closed(start_cluster: Start, pool: Pool, clock: Clock) -> None:
    cluster = start_cluster()
    options = client_of(cluster), producer_options()
    with pool.lend(options) as old:
        write(old, placed(b"a"))
    clock.now += options[0].max_idle_s + 1
    with pool.lend(options) as producer:
        assert producer is not old
    wait_until(
        lambda: cluster.brokers[0].ends + cluster.brokers[0].resets == 1, "the connection is closed", every=0.002
    )
    pool.clear()


def test_at_most_so_many_producers_are_kept(start_cluster: Start, pool: Pool) -> None:
    cluster = start_cluster()
    options = [(client_of(cluster), producer_options(linger_ms=n)) for n in range(MAX_KEPT + 1)]
    for each in options:
        with pool.lend(each) as producer:
            write(producer, placed(b"a"))
    broker = cluster.brokers[0]
    wait_until(lambda: broker.ends + broker.resets == 1, "the oldest is closed", every=0.002)
    for each in options[1:]:
        with pool.lend(each) as producer:
            write(producer, placed(b"a"))
    pool.clear()
    assert broker.connections == MAX_KEPT + 1


def test_a_broker_that_hung_up_between_two_tasks_is_connected_to_again(
    start_cluster: Start, pool: ProducerPool
) -> None:
    cluster = start_cluster()
    for value in (b"a", b"b"):
        with pool.lend((client_of(cluster), producer_options())) as producer:
            write(producer, placed(value))
        cluster.brokers[0].hang_up()
    pool.clear()
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
    assert len(cluster.producer_ids) == 1


def test_a_forked_process_does_not_use_its_parents_producers(
    start_cluster: Start, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster()
    options = client_of(cluster), producer_options()
    with pool.lend(options) as parents:
        write(parents, placed(b"a"))
    parent = os.getpid()
    monkeypatch.setattr(idle_pool.os, "getpid", lambda: parent + 1)
    with pool.lend(options) as producer:
        assert producer is not parents
        write(producer, placed(b"b"))
    with pool.lend(options) as again:
        assert again is producer
    pool.clear()
    write(parents, placed(b"c"))  # the parent's connection is untouched
    parents.close()
    assert len(set(cluster.producer_ids)) == 2
    assert cluster.values(TOPIC, 0) == [b"a", b"b", b"c"]
