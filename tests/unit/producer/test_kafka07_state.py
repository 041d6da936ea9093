"""The state of the producer of Kafka 0.7: which sets of a broker-partition are open, and whether its log is read."""

from __future__ import annotations

import pytest

from streamgroup.producer.kafka07_events import MessageSet, MessageSetState
from streamgroup.producer.kafka07_state import Partition07
from tests.fakes.broker07 import tp

WHERE = tp(2, 17)


def a_set(state: MessageSetState = MessageSetState.QUEUED, created_at: float = 0.0) -> MessageSet:
    return MessageSet(WHERE, b"12345", 1, state=state, created_at=created_at)


@pytest.mark.parametrize(
    ("broker", "number"),
    [(0, 0), (2, 17), (3, 9_999), (214_747, 0)],
)
def test_a_partition_knows_its_broker_and_its_number_there(broker: int, number: int) -> None:
    partition = Partition07(tp(broker, number))
    assert (partition.node, partition.number) == (broker, number)


def test_a_partition_without_sets_has_nothing_to_read_and_no_oldest_set() -> None:
    partition = Partition07(WHERE, doubtful=True)
    assert not partition.to_read
    assert partition.oldest == float("inf")
    assert list(partition.unresolved()) == []


@pytest.mark.parametrize(
    ("first", "doubtful", "to_read"),
    [
        (MessageSetState.SENT, False, False),
        (MessageSetState.SENT, True, True),
        (MessageSetState.HANDLED, False, True),
        (MessageSetState.HANDLED, True, True),
    ],
)
def test_the_log_is_read_once_the_broker_has_handled_the_first_set_or_may_have_it(
    first: MessageSetState, doubtful: bool, to_read: bool
) -> None:
    partition = Partition07(WHERE, doubtful=doubtful)
    partition.written.append(a_set(first))
    partition.written.append(a_set(MessageSetState.SENT))
    assert partition.to_read is to_read


def test_a_set_that_only_waits_gives_no_reason_to_read_the_log() -> None:
    partition = Partition07(WHERE, doubtful=True)
    partition.queue.append(a_set())
    assert not partition.to_read


@pytest.mark.parametrize(
    ("written", "queued", "oldest"),
    [((), (4.0, 5.0), 4.0), ((3.0, 6.0), (), 3.0), ((3.0,), (4.0,), 3.0), ((5.0,), (2.0, 6.0), 2.0)],
)
def test_the_oldest_set_may_wait_to_be_sent_again(
    written: tuple[float, ...], queued: tuple[float, ...], oldest: float
) -> None:
    partition = Partition07(WHERE)
    partition.written.extend(a_set(MessageSetState.SENT, at) for at in written)
    partition.queue.extend(a_set(created_at=at) for at in queued)
    assert partition.oldest == oldest


def test_the_unresolved_sets_are_those_that_were_sent_and_then_those_that_wait() -> None:
    sent, second, waiting = a_set(MessageSetState.HANDLED), a_set(MessageSetState.SENT), a_set()
    partition = Partition07(WHERE)
    partition.queue.append(waiting)
    partition.written.extend((sent, second))
    assert list(partition.unresolved()) == [sent, second, waiting]
