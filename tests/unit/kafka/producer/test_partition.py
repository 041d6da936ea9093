"""One partition of a producer: which batch may be sent next, so that each record is written once and in order."""

from __future__ import annotations

import pytest

from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch, ProducerIdentity
from streamgroup.kafka.producer.partition import CONFIRMED_FOR_S, SILENT_AFTER_S, PartitionQueue
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


def test_a_payload_that_does_not_fit_fills_the_batch_before_it_and_may_exceed_the_size() -> None:
    queue = PartitionQueue(P0)
    for count in (1, 9, 1):
        queue.append(records(count), NOW, batch_size=60)
    assert [(batch.count, batch.full) for batch in queue] == [(1, True), (9, True), (1, False)]


def test_a_partition_yields_its_batches_in_the_order_of_the_records_until_they_are_resolved() -> None:
    queue = partition(1, 2, 3)
    assert [batch.count for batch in queue] == [1, 2, 3]
    first, second = send(queue, 2)
    assert [batch.count for batch in queue] == [1, 2, 3]
    assert queue.oldest is first
    queue.remove(first)
    assert first.state is BatchState.RESOLVED
    assert queue.oldest is second
    for batch in list(queue):
        queue.remove(batch)
    assert queue.is_empty
    with pytest.raises(IndexError):
        _ = queue.oldest


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


@pytest.mark.parametrize(
    ("leader_epoch", "topic_id", "leader"),
    [
        (3, "", 1),  # metadata of a broker that is behind
        (4, "", 2),
        (5, "", 2),
        (-1, "", 2),  # brokers before 2.1 have no epochs
        (0, "another", 2),  # the topic was deleted and created again
        (3, "id", 1),
    ],
)
def test_metadata_name_the_leader_unless_they_are_older_than_what_an_answer_has_said(
    leader_epoch: int, topic_id: str, leader: int
) -> None:
    queue = PartitionQueue(P0)
    queue.follow(PartitionInfo(0, 1, 4), "id")
    queue.follow(PartitionInfo(0, 2, leader_epoch), topic_id)
    assert queue.leader == leader


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


def test_a_topic_that_was_created_again_gets_one_batch_before_any_other() -> None:
    queue = partition(1, 1, 1)
    queue.topic_id = "old"
    queue.follow(PartitionInfo(0, 1, 4), "new")
    (first,) = send(queue)
    assert queue.next_in_sequence(MOST, NOW) is None
    queue.confirm(first, 0, NOW)
    assert len(send(queue, 2)) == 2


# -- the order of an idempotent producer ------------------------------------------------------------------------------


def test_batches_are_numbered_one_behind_the_other_and_no_more_than_the_limit_are_sent() -> None:
    queue = partition(2, 3, 1, 1)
    sent = send(queue, 3)
    assert [(batch.identity, batch.base_sequence) for batch in sent] == [(IDENTITY, 0), (IDENTITY, 2), (IDENTITY, 5)]
    assert [(batch.state, batch.attempts, batch.node) for batch in sent] == [(IN_FLIGHT, 1, 1)] * 3
    assert [batch.sent_first for batch in sent] == [True, False, False]
    assert queue.next_in_sequence(3, NOW) is None
    assert queue.next_in_sequence(4, NOW) is queue.queue[0]


def test_one_batch_goes_alone_before_the_broker_has_confirmed_the_identity() -> None:
    queue = partition(1, 1, confirmed=False)
    (first,) = send(queue)
    assert queue.next_in_sequence(MOST, NOW) is None
    queue.confirm(first, 40, NOW)
    send(queue)
    queue.append(records(), NOW, batch_size=1)
    assert queue.next_in_sequence(MOST, NOW + CONFIRMED_FOR_S) is queue.queue[0]
    assert queue.next_in_sequence(MOST, NOW + CONFIRMED_FOR_S + 0.001) is None


def test_a_batch_that_is_sent_again_goes_first_and_keeps_its_number() -> None:
    queue = partition(1, 1, 1)
    first, second = send(queue, 2)
    retry(second)
    assert queue.next_in_sequence(MOST, NOW) is None  # the answer to the first decides
    retry(first, at=NOW + 5)
    assert queue.next_in_sequence(MOST, NOW + 4.9) is None
    assert queue.next_in_sequence(MOST, NOW + 5) is first
    queue.sent(first)
    assert (first.base_sequence, first.attempts) == (0, 2)


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


def test_a_new_leader_gets_nothing_before_the_old_one_has_answered() -> None:
    queue = partition(1, 1)
    (first,) = send(queue)
    queue.moved_to(2, 5)
    assert queue.next_in_sequence(MOST, NOW) is None
    queue.remove(first)
    assert send(queue)[0].node == 2


@pytest.mark.parametrize("state", [BatchState.SPLITTING, BatchState.RESOLVED])
def test_a_queued_batch_that_waits_for_its_parts_is_not_sent(state: BatchState) -> None:
    queue = partition(1)
    queue.queue[0].state = state
    assert queue.next_in_sequence(MOST, NOW) is None


# -- the order without idempotence ------------------------------------------------------------------------------------


def test_without_idempotence_batches_have_no_number_and_a_retry_goes_before_new_ones() -> None:
    queue = partition(1, 1, 1, identity=NO_IDENTITY, confirmed=False)
    first, second = send(queue, 2)
    assert [(batch.identity, batch.base_sequence) for batch in (first, second)] == [(NO_IDENTITY, -1)] * 2
    retry(second, at=NOW + 5)
    assert queue.next_in_order(MOST, NOW) is None
    assert queue.next_in_order(MOST, NOW + 5) is second


def test_without_idempotence_a_limit_of_one_keeps_the_order() -> None:
    queue = partition(1, 1, identity=NO_IDENTITY)
    (first,) = send(queue)
    assert queue.next_in_order(1, NOW) is None
    queue.remove(first)
    assert queue.next_in_order(1, NOW) is queue.queue[0]


# -- acknowledgements -------------------------------------------------------------------------------------------------


def test_an_acknowledgement_behind_a_doubtful_batch_proves_that_the_broker_has_both() -> None:
    queue = partition(2, 3, 1)
    queue.surplus = 40
    first, second = send(queue, 2)
    first.state, first.doubtful = UNRECOGNIZED, True
    assert queue.confirm(second, 42, NOW) == ([first], [])
    assert [batch.count for batch in queue] == [1]


def test_an_acknowledgement_of_a_log_without_room_for_the_doubtful_batch_proves_nothing() -> None:
    queue = partition(2, 3)
    queue.surplus = 40
    first, second = send(queue, 2)
    first.state, first.doubtful = UNRECOGNIZED, True
    assert queue.confirm(second, 41, NOW) == ([], [first])
    assert list(queue) == [first]
    assert (first.followed, queue.surplus) == (False, 40)


def test_an_acknowledgement_without_an_offset_proves_what_the_last_surplus_allows() -> None:
    queue = partition(1, 1)
    first, second = send(queue, 2)
    first.state, first.doubtful = UNRECOGNIZED, True
    assert queue.confirm(second, -1, NOW) == ([first], [])
    again = partition(1, 1)
    again.doubt_the_log()
    again.first_goes_alone = False
    first, second = send(again, 2)
    first.state, first.doubtful = UNRECOGNIZED, True
    assert again.confirm(second, -1, NOW) == ([], [first])


def test_a_rejected_batch_is_not_taken_for_written_by_a_later_acknowledgement() -> None:
    queue = partition(1, 1)
    first, second = send(queue, 2)
    first.state = REJECTED
    assert queue.confirm(second, 40, NOW) == ([], [first])


def test_a_batch_in_flight_before_the_acknowledged_one_waits_for_its_own_answer() -> None:
    queue = partition(1, 1)
    first, second = send(queue, 2)
    assert queue.confirm(second, 41, NOW) == ([], [])
    assert list(queue) == [first]
    assert not first.followed


def test_unrecognized_batches_are_unprovable_once_no_later_batch_can_tell() -> None:
    queue = partition(1, 1)
    first, second = send(queue, 2)
    first.state = UNRECOGNIZED
    assert queue.unprovable == []
    second.state = REJECTED
    assert queue.unprovable == [first]


# -- another identity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("confirmed_at", "queued", "silent"),
    [
        (0.0, 0, True),
        (NOW, 0, False),
        (float("-inf"), 0, False),  # never acknowledged: the sequence is at its start
        (0.0, 1, False),
    ],
)
def test_an_idle_partition_is_silent_an_hour_after_its_last_acknowledgement(
    confirmed_at: float, queued: int, silent: bool
) -> None:
    queue = partition(*[1] * queued)
    queue.confirmed_at = confirmed_at
    assert queue.is_silent(SILENT_AFTER_S + 0.001) is silent
    assert not queue.is_silent(SILENT_AFTER_S)


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


def test_nothing_new_is_sent_under_an_identity_that_is_given_up() -> None:
    queue = partition(1, 1)
    send(queue)
    queue.begin_reset()
    assert queue.next_in_sequence(MOST, NOW) is None


def test_a_doubtful_batch_is_not_rejected_so_that_it_gets_no_second_number() -> None:
    queue = partition(1)
    (first,) = send(queue)
    retry(first, doubtful=True)
    queue.begin_reset()
    assert first.state is RETRY
    assert not queue.may_reset


def test_after_a_reset_the_rejected_batches_come_first_from_sequence_0() -> None:
    queue = partition(2, 3, 1)
    first, second = send(queue, 2)
    retry(first)
    retry(second)
    queue.begin_reset()
    queue.reset(NEXT, NOW)
    assert [(batch.identity, batch.base_sequence, batch.state) for batch in queue.outstanding] == [
        (NEXT, 0, RETRY),
        (NEXT, 2, RETRY),
    ]
    assert not queue.may_reset
    assert send(queue) == [first]
    queue.confirm(first, 40, NOW)
    send(queue)
    (new,) = send(queue)
    assert (new.identity, new.base_sequence) == (NEXT, 5)


def test_a_new_identity_is_confirmed_by_one_batch_before_others_follow() -> None:
    queue = partition(1, 1)
    (first,) = send(queue)
    retry(first)
    queue.begin_reset()
    queue.reset(NEXT, NOW)
    assert send(queue) == [first]
    assert queue.next_in_sequence(MOST, NOW) is None
    queue.confirm(first, 40, NOW)
    assert send(queue)[0].identity == NEXT


def test_a_partition_whose_sequence_is_sound_has_nothing_to_reset() -> None:
    queue = partition()
    assert not queue.may_reset
    queue.begin_reset()
    assert queue.may_reset
