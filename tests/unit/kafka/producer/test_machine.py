"""The producer, scenario by scenario."""

from __future__ import annotations

import pytest

from streamgroup import errors
from streamgroup.errors import ErrorCode, NoBrokerError, ProduceError, RecordTooLargeError, UnknownTopicError
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.batch import ProducerIdentity
from streamgroup.kafka.producer.bookkeeping import ProducerState
from streamgroup.kafka.producer.config import Idempotence
from streamgroup.kafka.producer.requests import produce_ceiling, produce_request
from streamgroup.kafka.producer.transaction import Transaction, TransactionalId
from streamgroup.kafka.wire.messages import produce
from streamgroup.kafka.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceResponse
from streamgroup.model import Broker, PartitionInfo, TopicInfo, TopicPartition
from tests.unit.kafka.producer.drivers import P0, P1, Driver, batches_of
from tests.unit.kafka.producer.world import Records

OFF = Idempotence.OFF


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_waits_until_it_is_full_or_has_lingered() -> None:
    d = Driver(batch_size=60, linger_ms=20).ready()
    d.append(2)
    assert not d.all(ev.Send)
    assert d.wake_at == pytest.approx(10.02)
    d.append(2, 3)  # 20 + 20 bytes, and 30 more than fit
    assert [b.count for b in batches_of(d.actions)] == [4]
    d.answer(0)
    assert [b.count for b in batches_of(d.later(0.02))] == [3]
    d.answer(0)
    assert [b.count for b in batches_of(d.append(4, 2, 1))] == [6]  # full: it does not linger


def test_a_flush_sends_without_lingering_and_says_when_all_is_resolved() -> None:
    d = Driver(batch_size=60, linger_ms=1_000).ready()
    d.append(1)
    d.step(ev.Flush())
    assert d.only(ev.Send)
    assert not d.all(ev.Flushed)
    d.answer(0)
    assert [type(a) for a in d.actions[:2]] == [ev.Delivered, ev.Flushed]
    d.step(ev.Flush())
    assert d.all(ev.Flushed)


def test_without_room_in_the_buffer_batches_do_not_linger() -> None:
    d = Driver(batch_size=1_000, linger_ms=1_000, buffer_memory=50).ready()
    d.append(2)
    assert d.producer.has_room
    assert d.producer.buffered_bytes == 20
    d.append(3)
    assert not d.producer.has_room
    assert d.only(ev.Send).batches[0].count == 5
    assert d.producer.queued_bytes(P0) == 50
    d.answer(0)
    assert (d.producer.buffered_bytes, d.producer.queued_bytes(P0), d.producer.unresolved) == (0, 0, 0)


def test_a_request_has_one_batch_of_each_partition_up_to_its_size() -> None:
    d = Driver(max_request_size=50).ready()
    d.metadata(0, 0)
    d.step(ev.Append([(P0, Records((0, 1))), (P0, Records((2,))), (P1, Records((0, 1, 2))), (P1, Records((3,)))]))
    assert [[(b.partition, b.count) for b in send.batches] for send in d.all(ev.Send)] == [[(P0, 2), (P1, 3)]]
    d.step(ev.Abandon("test"))
    d = Driver(max_request_size=40).ready()
    d.metadata(0, 0)
    d.step(ev.Append([(P0, Records((0, 1))), (P1, Records((0, 1, 2)))]))
    assert [[b.partition for b in send.batches] for send in d.all(ev.Send)] == [[P0], [P1]]


def test_the_answer_brings_offset_and_time() -> None:
    d = Driver().ready()
    d.append(2)
    d.answer(0, log_append_time_ms=1_234)
    delivered = d.only(ev.Delivered)
    assert (delivered.base_offset, delivered.log_append_time_ms) == (40, 1_234)
    d.append(2)
    d.answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert d.only(ev.Delivered).base_offset == -1


def test_with_acks_0_a_batch_is_delivered_when_it_is_written() -> None:
    d = Driver(acks=0).ready()
    assert d.producer.state is ProducerState.WITHOUT_ID
    d.append(1)
    send = d.only(ev.Send)
    assert send.acks == 0
    d.step(ev.Written(send.token))
    assert (d.only(ev.Delivered).base_offset, d.producer.unresolved) == (-1, 0)


# -- transactions -----------------------------------------------------------------------------------------------------


def in_transaction(d: Driver, epoch: int, *, is_v2: bool = True) -> Driver:
    """Begin a task that writes in a transaction of producer id 7."""
    transaction = Transaction(TransactionalId("copy", 60_000), ProducerIdentity(7, epoch), is_v2)
    d.producer.begin_task(d.now, transaction)
    d.step(ev.FindTopics(("t",)))
    d.metadata(0, 1)
    return d


def test_each_transaction_writes_from_sequence_0_under_the_identity_that_it_was_given() -> None:
    d = in_transaction(Driver(), 4)
    d.append(2)
    assert d.numbers() == [(7, 4, 0)]
    d.answer(0)
    d.append(1)
    assert d.numbers() == [(7, 4, 2)]
    d.answer(0)
    in_transaction(d, 5)
    d.append(1)
    assert d.numbers() == [(7, 5, 0)]
    assert not [action for action in d.seen if isinstance(action, ev.GetProducerId)]


@pytest.mark.parametrize(("is_v2", "ceiling"), [(False, 11), (True, 12)])
def test_a_request_in_a_transaction_names_it_in_a_version_that_its_brokers_expect(is_v2: bool, ceiling: int) -> None:
    d = in_transaction(Driver(), 4, is_v2=is_v2)
    d.append(2)
    send = d.only(ev.Send)
    assert (produce_ceiling(send), produce_request(send, lambda _: b"").transactional_id) == (ceiling, "copy")


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING],
)
def test_a_batch_whose_transaction_has_ended_fails_and_no_other_identity_is_used(code: int) -> None:
    d = in_transaction(Driver(), 4)
    d.append(1)
    d.answer(code)
    error = d.only(ev.Failed).error
    assert f"in the transaction of 'copy': {errors.error_of(code).name}" in error.message
    assert "kafka.transaction.timeout.ms=60000" in error.message
    d.append(1)
    assert all(epoch == 4 for _, epoch, _ in d.numbers())
    assert d.producer.identity == ProducerIdentity(7, 4)


def test_a_task_that_pauses_for_hours_keeps_its_identity() -> None:
    d = in_transaction(Driver(), 4).confirmed()
    d.later(7_200)
    d.metadata(0, 1)
    d.append(1)
    assert d.numbers() == [(7, 4, 1)]


# -- order ------------------------------------------------------------------------------------------------------------


def test_the_first_batch_goes_alone_and_then_five_at_once() -> None:
    d = Driver().ready()
    d.append(1, 2, 1)
    assert d.numbers() == [(7, 0, 0)]
    d.answer(0)
    assert d.numbers() == [(7, 0, 1), (7, 0, 3)]
    d.append(*[1] * 9)
    assert d.numbers() == [(7, 0, n) for n in (4, 5, 6)]


def test_after_a_minute_of_silence_the_first_batch_goes_alone_again() -> None:
    d = Driver().ready().confirmed()
    d.later(61)
    d.append(1, 1)
    assert len(d.all(ev.Send)) == 1


def test_after_an_hour_of_silence_a_partition_starts_again_under_the_next_epoch() -> None:
    """The broker may have forgotten the producer, and then refuses every number but 0."""
    d = Driver().ready().confirmed()
    d.append(1, to=P1)
    d.answer(0)
    d.later(3_601)
    d.append(1)
    assert d.numbers() == [(7, 1, 0)]
    d.append(1, to=P1)
    assert d.numbers() == [(7, 1, 0)]  # the next epoch serves all partitions
    d.answer(0)
    d.answer(0)
    d.append(1)
    assert d.numbers() == [(7, 1, 1)]


def test_sequences_wrap_behind_the_largest_int32() -> None:
    d = Driver().ready().confirmed()
    d.producer._partitions[P0].next_sequence = 2**31 - 2
    d.append(3, 1)
    assert [sequence for _, _, sequence in d.numbers()] == [2**31 - 2, 1]


def test_a_failed_batch_is_sent_again_before_its_successors_with_the_same_sequence() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    d.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not d.all(ev.Failed)
    assert [b.base_sequence for b in batches_of(d.later(0.2))] == [1]
    d.answer(0)
    assert d.numbers() == [(7, 0, 2)]


def test_without_idempotence_one_in_flight_keeps_the_order() -> None:
    d = Driver(idempotence=OFF, max_in_flight=1).ready()
    d.append(1, 2)
    assert [b.count for b in batches_of(d.actions)] == [1]
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [b.count for b in batches_of(d.later(0.2))] == [1]
    d.answer(0)
    assert [b.count for b in batches_of(d.actions)] == [2]


def test_without_idempotence_more_in_flight_may_change_the_order() -> None:
    d = Driver(idempotence=OFF).ready()
    d.append(1, 2)
    first, second = d.sent
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS, first)
    d.answer(0, second)
    assert d.only(ev.Delivered).batch.count == 2
    assert [b.count for b in batches_of(d.later(0.2))] == [1]


def test_retries_back_off_exponentially() -> None:
    d = Driver().ready()
    d.append(1)
    waits = []
    for _ in range(6):
        d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        sent_at = d.now
        while not d.sent:
            assert d.wake_at is not None
            d.now = d.wake_at
            d.step(ev.Tick())
        waits.append(d.now - sent_at)
    for wait, middle in zip(waits, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=True):
        assert 0.8 * middle <= wait <= 1.2 * middle


def test_retries_are_limited_where_the_option_says_so() -> None:
    d = Driver(retries=1).ready()
    d.append(1)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    d.later(0.2)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert d.only(ev.Failed).error.code == ErrorCode.NOT_ENOUGH_REPLICAS


# -- leaders ----------------------------------------------------------------------------------------------------------


def test_a_leader_that_the_answer_names_gets_the_batch_at_once() -> None:
    d = Driver().ready()
    d.append(1)
    send = d.only(ev.Send)
    moved = produce.PartitionProduceResponse(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    )
    response = ProduceResponse(
        responses=(produce.TopicProduceResponse(name="t", partition_responses=(moved,)),),
        node_endpoints=(NodeEndpoint(node_id=2, host="h", port=9092),),
    )
    d.step(ev.Answered(send.token, response, 12))
    assert d.only(ev.UseBrokers).brokers == (Broker(2, "h", 9092),)
    assert d.only(ev.Send).node == 2
    d.metadata(0, 1, epoch=0)  # older than the answer
    d.append(1)
    d.answer(0, max(d.sent))
    assert d.only(ev.Send).node == 2


def test_a_moved_leader_is_looked_up_in_fresh_metadata() -> None:
    d = Driver().ready()
    d.append(1)
    d.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not any(isinstance(a, ev.Send) for a in d.later(0.3))
    assert any(isinstance(a, ev.ReadMetadata) for a in d.seen[-4:])
    d.metadata(3, 1, epoch=1)
    assert d.only(ev.Send).node == 3


def test_nothing_goes_to_the_new_leader_before_the_old_one_has_answered() -> None:
    d = Driver().ready().confirmed()
    d.append(1)
    d.metadata(2, 1, epoch=1)
    d.append(1)
    assert not d.all(ev.Send)
    d.answer(0)
    assert d.only(ev.Send).node == 2


def test_a_topic_that_was_created_again_may_have_a_lower_leader_epoch() -> None:
    d = Driver().ready().confirmed()
    d.metadata(0, 1, epoch=5, topic_id="a")
    d.metadata(3, 1, epoch=0, topic_id="a")
    d.append(1)
    assert d.only(ev.Send).node == 0
    d.step(ev.Abandon("test"))
    d.metadata(3, 1, epoch=0, topic_id="b")
    d.append(1)
    assert (d.only(ev.Send).node, d.only(ev.Send).topic_ids) == (3, {"t": "b"})


# -- connections and time ---------------------------------------------------------------------------------------------


def recreated_without_p1(topic_id: str) -> Driver:
    """Two batches of partition 1 are refused, since the topic was deleted and created again with one partition."""
    d = Driver()
    d.step(ev.FindTopics(("t",)))
    d.step(ev.ProducerIdGiven(7, 0))
    d.metadata(0, 1, topic_id=topic_id and "first")
    d.append(3, to=P1)
    d.answer(0)
    d.append(3, 2, to=P1)
    for _ in range(2):
        d.answer(ErrorCode.UNKNOWN_TOPIC_ID if topic_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    d.metadata(0, topic_id=topic_id)
    return d


def test_records_of_a_partition_that_a_new_topic_lacks_get_another_partition() -> None:
    d = recreated_without_p1("second")
    first, second = d.all(ev.Reroute)
    assert [first.batch.count, second.batch.count] == [3, 2]
    assert not d.producer.queued_bytes(P0)
    d.step(ev.Flush())
    assert not d.all(ev.Flushed)
    for reroute in (first, second):
        d.step(ev.Rerouted(reroute.batch, [(P0, payload) for payload in reroute.batch.payloads]))
    while d.sent:
        d.answer(0)
    assert d.only(ev.Flushed)
    delivered = [action.batch for action in d.seen if isinstance(action, ev.Delivered)]
    assert [(batch.partition, batch.count) for batch in delivered] == [(P1, 3), (P0, 3), (P0, 2)]
    assert not [action for action in d.seen if isinstance(action, ev.Failed)]
    d.step(ev.Rerouted(first.batch, [(P0, Records((1,)))]))  # too late
    assert not d.producer.unresolved


def test_rows_that_name_a_partition_which_a_new_topic_lacks_fail_without_doubt() -> None:
    d = recreated_without_p1("second")
    d.step(ev.Rerouted(d.all(ev.Reroute)[0].batch, None))
    error = d.only(ev.Failed).error
    assert not error.maybe_written
    assert "created again with 1 partition, without partition 1. Correct the column 'partition'" in str(error)


def test_a_record_that_goes_to_another_partition_waits_for_those_in_flight_before_it() -> None:
    d = Driver().ready()
    d.metadata(0, 1, topic_id="first")
    d.append(1, to=P1)
    d.answer(0)
    d.append(1, 1, to=P1)
    d.metadata(0, topic_id="second")
    d.answer(ErrorCode.UNKNOWN_TOPIC_ID)
    assert not d.all(ev.Reroute)
    d.answer(ErrorCode.UNKNOWN_TOPIC_ID)
    assert len(d.all(ev.Reroute)) == 2


def test_without_topic_ids_a_partition_is_waited_for_since_a_brokers_metadata_may_be_old() -> None:
    d = recreated_without_p1("")
    assert not d.all(ev.Reroute)
    assert not any(isinstance(action, ev.Reroute) for action in d.later(59))
    assert len([action for action in d.later(2) if isinstance(action, ev.Reroute)]) == 2


def test_a_batch_that_a_broker_may_have_gets_no_other_partition_of_the_same_topic() -> None:
    """A topic never loses a partition: the broker has not heard of it yet, and another one has written the batch."""
    d = Driver()
    d.step(ev.FindTopics(("t",)))
    d.step(ev.ProducerIdGiven(7, 0))
    d.metadata(0, 1, topic_id="first")
    d.append(3, to=P1)
    d.cut(1)
    d.append(2, to=P1)
    d.metadata(0, topic_id="first")
    actions = d.later(61)
    (failed,) = [action for action in actions if isinstance(action, ev.Failed)]
    assert (failed.batch.count, failed.error.maybe_written) == (3, True)
    assert "the metadata of topic t have lacked partition 1 for max.block.ms=60000" in str(failed.error)
    assert "The broker may have the records" in str(failed.error)
    (reroute,) = [action for action in actions if isinstance(action, ev.Reroute)]
    assert reroute.batch.count == 2


def test_a_partition_that_comes_back_gets_its_batch() -> None:
    d = recreated_without_p1("")
    d.later(1)
    d.metadata(0, 1)
    assert [batch.partition for batch in batches_of(d.actions)] == [P1]
    assert not [action for action in d.later(61) if isinstance(action, ev.Reroute)]


def test_a_cut_connection_repeats_the_batches_with_their_sequences() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.cut()
    assert [b.base_sequence for b in batches_of(d.later(0.3))] == [1]
    d.answer(0)
    assert d.numbers() == [(7, 0, 2)]


def test_an_answer_to_a_request_of_a_lost_connection_counts_for_nothing() -> None:
    d = Driver().ready()
    d.append(1)
    (token,) = d.sent
    d.cut()
    d.step(ev.Answered(token, ProduceResponse(), 12))
    assert not d.all(ev.Delivered)
    assert d.producer.unresolved == 1


def test_a_request_without_an_answer_ends_its_connection() -> None:
    d = Driver(request_timeout_ms=5_000).ready()
    d.append(1)
    d.sent.clear()
    actions = d.later(5.5)
    assert "request.timeout.ms=5000" in next(a.reason for a in actions if isinstance(a, ev.Disconnect))
    assert [b.base_sequence for b in batches_of(actions)] == [0]


def test_a_throttled_broker_gets_nothing_until_the_time_has_passed() -> None:
    d = Driver().ready()
    d.append(1)
    d.answer(0, throttle_ms=400)
    d.append(1)
    assert not d.all(ev.Send)
    assert not batches_of(d.later(0.39))
    assert batches_of(d.later(0.02))


def test_the_throttle_time_does_not_count_for_the_requests_in_flight() -> None:
    d = Driver(request_timeout_ms=5_000).ready().confirmed()
    d.append(1)
    d.append(1)
    assert len(d.sent) == 2
    d.answer(0, throttle_ms=8_000)
    assert not [a for a in d.later(12.5) if isinstance(a, ev.Disconnect)]
    assert [a for a in d.later(1) if isinstance(a, ev.Disconnect)]


def test_brokers_before_produce_v6_have_waited_themselves() -> None:
    d = Driver().ready()
    d.append(1)
    d.answer(0, throttle_ms=400, version=5)
    d.append(1)
    assert d.only(ev.Send)


def test_a_batch_that_was_never_sent_is_certainly_not_written() -> None:
    d = Driver(delivery_timeout_ms=40_000).ready()
    d.metadata(-1, 1)
    d.append(1)
    (failed,) = [a for a in d.later(41) if isinstance(a, ev.Failed)]
    assert isinstance(failed.error, errors.DeliveryTimeoutError)
    assert "could not write 1 record (10 bytes) to t-0: not acknowledged within delivery.timeout.ms=40000" in str(
        failed.error
    )
    assert "the partition has no leader" in str(failed.error)
    assert not failed.error.maybe_written


def test_a_batch_in_flight_may_be_written_when_its_time_is_over() -> None:
    d = Driver(request_timeout_ms=30_000, delivery_timeout_ms=30_000).ready().confirmed()
    d.append(1)
    d.sent.clear()
    (failed,) = [a for a in d.later(31) if isinstance(a, ev.Failed)]
    assert failed.error.maybe_written
    assert "at broker 0" in str(failed.error)
    assert d.producer.identity.epoch == 1  # its sequence is in doubt: the next batch begins at 0 under another epoch
    d.metadata(0, 1)
    d.append(1)
    assert (7, 1, 0) in d.numbers()


def test_a_connection_that_was_never_made_leaves_no_doubt() -> None:
    d = Driver(delivery_timeout_ms=31_000).ready()
    d.append(1)
    actions = []
    while d.producer.unresolved:
        d.cut(written=False)
        actions += d.actions + d.later(1.5)
    (failed,) = [a for a in actions if isinstance(a, ev.Failed)]
    assert "connection to broker 0 lost: reset by peer" in str(failed.error)
    assert not failed.error.maybe_written


def test_what_is_abandoned_fails_at_once_and_the_producer_goes_on() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.metadata(0, 1)
    d.step(ev.Abandon("the task was killed"))
    assert [f.error.maybe_written for f in d.all(ev.Failed)] == [True, True]
    assert "given up: the task was killed" in str(d.all(ev.Failed)[0].error)
    d.append(1)
    assert d.numbers() == [(7, 1, 0)]


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_too_large_is_sent_in_parts_with_its_sequence_numbers() -> None:
    d = Driver().ready()
    d.append(4, 1)
    d.answer(ErrorCode.MESSAGE_TOO_LARGE)
    split = d.only(ev.Split)
    d.step(ev.SplitInto(split.batch, (Records((0, 1)), Records((2, 3)))))
    assert d.numbers() == [(7, 0, 0)]
    assert d.producer.unresolved == 3
    d.answer(0)
    assert d.numbers() == [(7, 0, 2), (7, 0, 4)]
    d.answer(0)
    d.answer(0)
    assert (d.producer.unresolved, d.producer.buffered_bytes) == (0, 0)


def test_parts_that_lack_records_are_refused() -> None:
    d = Driver().ready()
    d.append(4)
    d.answer(ErrorCode.RECORD_LIST_TOO_LARGE)
    batch = d.only(ev.Split).batch
    with pytest.raises(ValueError, match="at least two parts with 4 records"):
        d.step(ev.SplitInto(batch, (Records((0, 1)), Records((2,)))))


def read_with_limit(d: Driver, limit: int | None, reason: str = "") -> None:
    topics = {"t": TopicInfo("t", (PartitionInfo(0, 0), PartitionInfo(1, 1)))}
    limits = {} if limit is None else {"t": limit}
    reasons = {"t": reason} if reason else {}
    d.step(ev.MetadataRead(topics, frozenset({"t"}), {}, limits, reasons))


def test_after_a_batch_that_was_too_large_the_limit_of_its_topic_is_read_and_kept() -> None:
    d = Driver(batch_size=500_000).ready()
    assert not any(action.limits for action in d.seen if isinstance(action, ev.ReadMetadata))
    assert d.producer.batch_size("t") == 500_000
    d.append(4)
    d.answer(ErrorCode.MESSAGE_TOO_LARGE)
    (read,) = [action for action in d.later(1.0) if isinstance(action, ev.ReadMetadata)]
    assert read.limits == {"t"}
    read_with_limit(d, 5_000)
    assert 4_800 < d.producer.batch_size("t") <= 5_000 - 61
    assert d.producer.batch_size("u") == 500_000
    d.cut()
    (read,) = [action for action in d.later(1.0) if isinstance(action, ev.ReadMetadata)]
    assert not read.limits


def test_a_limit_that_cannot_be_read_is_not_asked_for_again() -> None:
    d = Driver().ready()
    for times in (1, 0):
        d.append(4)
        d.answer(ErrorCode.MESSAGE_TOO_LARGE)
        assert [a.limits for a in d.later(1.0) if isinstance(a, ev.ReadMetadata)] == [{"t"}] * times
        read_with_limit(d, None, "not authorized")
        assert not d.all(ev.LimitUnknown)  # the broker refuses batches that are too large
        d.step(ev.Abandon("next"))


def test_without_acknowledgements_the_limit_is_read_with_all_metadata() -> None:
    d = Driver(acks=0)
    d.step(ev.FindTopics(("t",)))
    assert d.only(ev.ReadMetadata) == ev.ReadMetadata(frozenset({"t"}), frozenset({"t"}))
    read_with_limit(d, None, "not authorized")
    assert d.only(ev.TopicFound)
    assert d.only(ev.LimitUnknown) == ev.LimitUnknown("t", "not authorized")


def test_a_single_record_that_is_too_large_fails_and_the_next_goes_on_under_another_epoch() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.MESSAGE_TOO_LARGE)
    error = d.only(ev.Failed).error
    assert isinstance(error, RecordTooLargeError)
    assert "max.message.bytes" in str(error)
    assert "t-0 at broker 0" in str(error)
    assert d.producer.state is ProducerState.BUMPING
    d.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert d.producer.state is ProducerState.READY
    assert d.numbers() == [(7, 1, 0)]


def test_a_record_above_max_request_size_is_never_sent() -> None:
    d = Driver(max_request_size=25, batch_size=100).ready()
    d.append(3, 2)
    split = d.only(ev.Split)
    assert split.batch.count == 5
    d.step(ev.SplitInto(split.batch, (Records((0,)), Records((1, 2)), Records((0, 1)))))
    assert [b.count for b in batches_of(d.actions)] == [1]
    d = Driver(max_request_size=5).ready()
    d.append(1)
    assert "max.request.size=5" in str(d.only(ev.Failed).error)
    assert not d.all(ev.Send)


def test_a_split_batch_that_has_failed_meanwhile_stays_failed() -> None:
    d = Driver(delivery_timeout_ms=30_000).ready()
    d.append(4)
    d.answer(ErrorCode.MESSAGE_TOO_LARGE)
    batch = d.only(ev.Split).batch
    d.later(31)
    d.step(ev.SplitInto(batch, (Records((0, 1)), Records((2, 3)))))
    assert d.producer.unresolved == 0


# -- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_found_when_it_has_been_created() -> None:
    d = Driver(idempotence=OFF)
    d.step(ev.FindTopics(("t",)))
    assert d.only(ev.ReadMetadata).topics == {"t"}
    d.metadata()
    assert any(isinstance(a, ev.ReadMetadata) for a in d.later(0.2))
    d.metadata(0, 1)
    assert len(d.only(ev.TopicFound).topic.partitions) == 2
    d.step(ev.FindTopics(("t",)))
    assert d.only(ev.TopicFound)


def test_a_topic_that_does_not_appear_is_given_up_after_max_block_ms() -> None:
    d = Driver(idempotence=OFF, max_block_ms=2_000)
    d.step(ev.FindTopics(("t",)))
    d.metadata()
    (missing,) = [a for a in d.later(2.5) if isinstance(a, ev.TopicMissing)]
    assert isinstance(missing.error, UnknownTopicError)
    assert "max.block.ms=2000. Create it" in str(missing.error)


def warnings(actions: list[ev.Action]) -> list[str]:
    return [action.message for action in actions if isinstance(action, ev.Warn)]


def test_a_topic_that_is_missing_is_worth_a_warning_within_seconds() -> None:
    d = Driver(idempotence=OFF)
    d.step(ev.FindTopics(("t",)))
    d.metadata()
    assert not warnings(d.later(2.9))
    assert warnings(d.later(0.2)) == [
        "cannot write topic t so far: the brokers report that it does not exist. The task waits for it for 57 more "
        "seconds (kafka.max.block.ms=60000) and then fails. Create the topic, or correct its name"
    ]
    assert not warnings(d.later(50.0))


def test_brokers_that_do_not_answer_for_a_topic_are_worth_a_warning_within_seconds() -> None:
    d = Driver(idempotence=OFF)
    d.step(ev.FindTopics(("t",)))
    d.step(ev.MetadataFailed("b1:9092: connection refused"))
    (warning,) = warnings(d.later(3.5))
    assert "cannot write topic t so far: no broker has answered (b1:9092: connection refused)." in warning


def test_batches_that_are_not_acknowledged_are_worth_a_warning_now_and_then() -> None:
    d = Driver().ready().confirmed()
    d.later(100.0)
    d.append(3)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not warnings(d.later(29.5))
    (warning,) = warnings(d.later(1.0))
    assert warning.startswith("3 records for t-0 were not acknowledged within 30 s, after 2 attempts; last: ")
    assert "last: NOT_ENOUGH_REPLICAS (19)" in warning
    assert len(warnings(d.later(60.0))) == 2


@pytest.mark.parametrize("reason", ["cannot connect to broker b:9092", ""])
def test_where_no_broker_answers_the_error_does_not_ask_for_a_topic(reason: str) -> None:
    d = Driver(idempotence=OFF, max_block_ms=2_000)
    d.step(ev.FindTopics(("t",)))
    if reason:
        d.step(ev.MetadataFailed(reason))
    (missing,) = [a for a in d.later(2.5) if isinstance(a, ev.TopicMissing)]
    assert isinstance(missing.error, NoBrokerError)
    assert "topic t: no broker has answered for it within max.block.ms=2000" in str(missing.error)
    assert f"last: {reason or 'no answer so far'}. Check that the brokers" in str(missing.error)


def test_a_partition_that_does_not_exist_fails_after_max_block_ms() -> None:
    d = Driver(max_block_ms=2_000).ready()
    d.append(1, to=P0._replace(partition=9))
    assert not any(isinstance(action, ev.Reroute) for action in d.later(1.5))
    (reroute,) = [action for action in d.later(1.0) if isinstance(action, ev.Reroute)]
    d.step(ev.Rerouted(reroute.batch, None))
    failed = d.only(ev.Failed)
    assert isinstance(failed.error, UnknownTopicError)
    assert "topic t has 2 partitions, and partition 9 did not appear" in str(failed.error)


def test_a_topic_that_the_user_may_not_see_fails_at_once() -> None:
    d = Driver(idempotence=OFF)
    d.step(ev.FindTopics(("t",)))
    d.append(1)
    d.metadata(errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert "--operation Write" in str(d.only(ev.TopicMissing).error)
    assert "--operation Write" in str(d.only(ev.Failed).error)


def test_metadata_are_read_again_when_they_are_old() -> None:
    d = Driver(metadata_max_age_ms=7_000).ready()
    d.append(1)
    assert d.wake_at == pytest.approx(17.0)
    assert not any(isinstance(a, ev.ReadMetadata) for a in d.later(6.9))
    assert any(isinstance(a, ev.ReadMetadata) for a in d.later(0.2))


def test_no_request_for_metadata_names_a_topic_without_records_since_a_broker_may_create_it_again() -> None:
    d = Driver(metadata_max_age_ms=7_000).ready().confirmed()
    d.cut()
    d.later(3_600)
    assert not [action for action in d.seen[4:] if isinstance(action, ev.ReadMetadata)]
    d.step(ev.FindTopics(("u",)))
    assert d.only(ev.ReadMetadata).topics == {"u"}


def test_a_topic_that_is_written_again_after_metadata_max_idle_ms_is_looked_for_again() -> None:
    d = Driver(metadata_max_idle_ms=60_000).ready().confirmed()
    d.now += 59
    d.producer.begin_task(d.now)
    assert d.producer.topic("t") is not None
    d.now += 1
    d.producer.begin_task(d.now)
    assert d.producer.topic("t") is None


def test_a_long_task_forgets_the_topics_that_it_no_longer_writes() -> None:
    d = Driver(metadata_max_idle_ms=60_000, metadata_max_age_ms=7_000).ready().confirmed()
    d.now += 61
    u = TopicPartition("u", 0)
    d.append(1, to=u)
    assert d.only(ev.ReadMetadata).topics == {"u"}
    d.step(ev.MetadataRead({"u": TopicInfo("u", (PartitionInfo(0, 0, 0),))}, frozenset({"u"})))
    assert d.producer.topic("t") is None
    assert d.producer.topic("u") is not None


# -- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_names_the_records_in_the_brokers_words() -> None:
    d = Driver().ready()
    d.append(5)
    rejected = tuple(
        produce.BatchIndexAndErrorMessage(batch_index=n, batch_index_error_message="no key") for n in range(5)
    )
    d.answer(ErrorCode.INVALID_RECORD, record_errors=rejected, error_message="one or more records have been rejected")
    text = str(d.only(ev.Failed).error)
    assert "could not write 5 records (50 bytes) to t-0 at broker 0: INVALID_RECORD (87)" in text
    assert "; one or more records have been rejected; record 0 of the batch: no key;" in text
    assert "and 2 more records" in text


def test_a_fatal_error_fails_everything() -> None:
    d = Driver().ready()
    d.append(1)
    d.append(1, to=P1)
    d.answer(ErrorCode.INVALID_REQUIRED_ACKS)
    assert [type(f.error) for f in d.all(ev.Failed)] == [ProduceError, ProduceError]
    assert d.producer.state is ProducerState.FAILED
    assert d.producer.unresolved == 0


def test_an_answer_without_a_partition_leaves_it_open() -> None:
    d = Driver().ready()
    d.append(1)
    (token,) = d.sent
    d.sent.clear()
    d.step(ev.Answered(token, ProduceResponse(), 12))
    assert [b.base_sequence for b in batches_of(d.later(0.2))] == [0]
