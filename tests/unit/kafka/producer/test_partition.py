"""One partition of a producer: which batch may be sent next, so that each record is written once and in order."""

from __future__ import annotations

import pytest

from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch, ProducerIdentity
from streamgroup.kafka.producer.partition import CONFIRMED_FOR_S, PartitionQueue
from streamgroup.model import NO_LEADER, PartitionInfo
from tests.unit.kafka.producer.drivers import P0
from tests.unit.kafka.producer.world import Records

IDENTITY, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
NOW = 1_000.0
MOST = 5
QUEUED, IN_FLIGHT, RETRY = BatchState.QUEUED, BatchState.IN_FLIGHT, BatchState.RETRY
UNRECOGNIZED, REJECTED = BatchState.UNRECOGNIZED, BatchState.REJECTED


def records(count: int = 1) -> Records:
    return Records(tuple(range(count)))


def partition(*counts: int, identity: ProducerIdentity = IDENTITY, confirmed: bool = True) -> PartitionQueue:
    """A partition led by broker 1 with one queued batch for each of `counts`."""
    queue = PartitionQueue(P0)
    queue.follow(PartitionInfo(0, 1, 4), "")
    queue.identity = identity
    if confirmed:
        queue.confirmed_at = NOW
    for count in counts:
        queue.append(records(count), NOW, batch_size=1)
    return queue


def send(queue: PartitionQueue, batches: int = 1) -> list[ProducerBatch]:
    """Send the next batches, as the producer does."""
    sent = []
    for _ in range(batches):
        batch = queue.next_in_sequence(MOST, NOW) if queue.identity != NO_IDENTITY else queue.next_in_order(MOST, NOW)
        assert batch is not None
        queue.sent(batch)
        sent.append(batch)
    return sent


def retry(batch: ProducerBatch, *, doubtful: bool = False, at: float = NOW) -> None:
    batch.state, batch.doubtful, batch.retry_at = RETRY, doubtful, at


# -- batches ----------------------------------------------------------------------------------------------------------


def test_payloads_share_a_batch_up_to_exactly_its_size() -> None:
    queue = PartitionQueue(P0)
    assert queue.append(records(4), NOW, batch_size=60)  # ten bytes each
    assert not queue.append(records(2), NOW + 1, batch_size=60)
    assert queue.oldest.full  # it is sent without lingering
    assert queue.append(records(), NOW + 2, batch_size=60)
    assert [(batch.count, batch.full, batch.created_at) for batch in queue] == [(6, True, NOW), (1, False, NOW + 2)]


def test_the_parts_of_a_sent_batch_share_its_sequence_numbers_and_are_sent_again() -> None:
    queue = partition(1, 5, 1)
    send(queue)
    (whole,) = send(queue)
    queue.replace(whole, [whole.part(records(3)), whole.part(records(2))])
    assert whole.state is BatchState.RESOLVED
    assert [(batch.count, batch.state) for batch in queue] == [(1, IN_FLIGHT), (3, RETRY), (2, RETRY), (1, QUEUED)]
    assert [batch.base_sequence for batch in queue.outstanding] == [0, 1, 4]
    assert {batch.identity for batch in queue.outstanding} == {IDENTITY}


def test_the_parts_of_a_batch_that_was_not_sent_take_its_place_in_the_queue() -> None:
    queue = partition(1, 5, 2)
    whole = queue.queue[1]
    queue.replace(whole, [whole.part(records(3)), whole.part(records(2))])
    assert [(batch.count, batch.state) for batch in queue] == [(n, QUEUED) for n in (1, 3, 2, 2)]


# -- the leader -------------------------------------------------------------------------------------------------------


def test_a_partition_that_metadata_lack_has_no_leader_but_has_existed() -> None:
    queue = PartitionQueue(P0)
    queue.stale = True
    queue.follow(None, "")
    assert (queue.leader, queue.exists, queue.stale) == (NO_LEADER, False, False)
    queue.follow(PartitionInfo(0, 1, 4), "")
    queue.follow(None, "")
    assert (queue.leader, queue.exists) == (NO_LEADER, True)


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "follows"), [(2, 5, True), (2, 4, False), (2, 3, False), (-1, 9, False), (0, 5, True)]
)
def test_an_answer_moves_the_leader_if_its_epoch_is_newer(leader: int, leader_epoch: int, follows: bool) -> None:
    queue = partition()
    queue.stale = True
    assert queue.moved_to(leader, leader_epoch) is follows
    assert queue.leader == (leader if follows else 1)
    assert queue.stale is not follows


# -- the order of an idempotent producer ------------------------------------------------------------------------------


def test_one_batch_goes_alone_before_the_broker_has_confirmed_the_identity() -> None:
    queue = partition(1, 1, confirmed=False)
    (first,) = send(queue)
    assert queue.next_in_sequence(MOST, NOW) is None
    queue.confirm(first, 40, NOW)
    send(queue)
    queue.append(records(), NOW, batch_size=1)
    assert queue.next_in_sequence(MOST, NOW + CONFIRMED_FOR_S) is queue.queue[0]
    assert queue.next_in_sequence(MOST, NOW + CONFIRMED_FOR_S + 0.001) is None


def test_nothing_new_is_sent_behind_a_doubtful_batch() -> None:
    queue = partition(1, 1)
    (first,) = send(queue)
    retry(first, doubtful=True)
    assert send(queue) == [first]
    assert queue.next_in_sequence(MOST, NOW) is None


def test_an_unrecognized_batch_is_passed_over_and_nothing_new_follows() -> None:
    queue = partition(1, 1, 1)
    first, second = send(queue, 2)
    first.state = UNRECOGNIZED
    assert queue.next_in_sequence(MOST, NOW) is None
    assert not queue.is_recognized
    retry(second)
    assert send(queue) == [second]
    assert second.sent_first
    queue.remove(first)
    assert queue.is_recognized


# -- the order without idempotence ------------------------------------------------------------------------------------


def test_without_idempotence_batches_have_no_number_and_a_retry_goes_before_new_ones() -> None:
    queue = partition(1, 1, 1, identity=NO_IDENTITY, confirmed=False)
    first, second = send(queue, 2)
    assert [(batch.identity, batch.base_sequence) for batch in (first, second)] == [(NO_IDENTITY, -1)] * 2
    retry(second, at=NOW + 5)
    assert queue.next_in_order(MOST, NOW) is None
    assert queue.next_in_order(MOST, NOW + 5) is second


# -- another identity -------------------------------------------------------------------------------------------------


def test_a_reset_waits_until_no_broker_can_get_a_batch_of_the_old_identity() -> None:
    queue = partition(1, 1, 1)
    first, second = send(queue, 2)
    assert not queue.may_reset
    retry(first)
    queue.begin_reset()
    assert first.state is REJECTED
    assert not queue.may_reset
    assert queue.next_in_sequence(MOST, NOW) is None
    retry(second)
    queue.begin_reset()
    assert queue.may_reset


# -- one batch --------------------------------------------------------------------------------------------------------


def test_a_new_batch_is_queued_without_a_number_and_adds_up_its_payloads() -> None:
    new = ProducerBatch(P0, records(3), 12.5)
    assert (new.created_at, new.retry_at, new.attempts) == (12.5, 12.5, 0)
    assert (new.state, new.full, new.identity, new.base_sequence) == (QUEUED, False, ProducerIdentity(-1, -1), -1)
    new.add(records(0))
    new.add(records(4))
    assert [payload.count for payload in new.payloads] == [3, 0, 4]
    assert (new.count, new.size) == (7, 70)
    new.number(IDENTITY, 40)
    assert repr(new) == "ProducerBatch(t-0, 7 records, queued, 40)"


def test_a_part_is_a_full_queued_batch_without_a_number_that_is_as_old_and_doubtful_as_the_whole() -> None:
    whole = ProducerBatch(P0, records(4), 3.0)
    whole.number(IDENTITY, 40)
    whole.state, whole.attempts, whole.node = BatchState.SPLITTING, 4, 1
    whole.doubtful, whole.followed, whole.code, whole.cause = True, True, 10, "MESSAGE_TOO_LARGE (10)"
    part = whole.part(records(2))
    assert (part.partition, part.count, part.size, part.created_at) == (P0, 2, 20, 3.0)
    assert (part.full, part.state, part.identity, part.base_sequence) == (True, QUEUED, NO_IDENTITY, -1)
    assert (part.attempts, part.node, part.code, part.cause) == (4, 1, 10, "MESSAGE_TOO_LARGE (10)")
    assert (part.doubtful, part.followed) == (True, True)
