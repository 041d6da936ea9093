"""Producer ids, epochs and sequence numbers, scenario by scenario.

A broker remembers the last five batches of a producer, and after its restart only the last one. So it may reject a
batch that it has, or has lost: the answers to later batches show which.
"""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.bookkeeping import ProducerState
from streamgroup.kafka.producer.config import Idempotence
from tests.unit.kafka.producer.drivers import P1, Driver
from tests.unit.kafka.producer.world import Records


def test_nothing_is_sent_before_there_is_an_id() -> None:
    d = Driver()
    d.append(1)
    assert d.only(ev.GetProducerId)
    d.metadata(0, 1)
    assert not d.all(ev.Send)
    d.step(ev.ProducerIdRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert any(isinstance(a, ev.GetProducerId) for a in d.later(0.2))
    d.step(ev.ProducerIdGiven(9, 0))
    assert d.numbers() == [(9, 0, 0)]


def test_an_old_broker_is_written_without_idempotence_and_in_order() -> None:
    d = Driver()
    d.append(1, 1)
    d.metadata(0, 1)
    d.step(ev.ProducerIdRefused(ErrorCode.UNSUPPORTED_VERSION, "broker b:1 does not have it"))
    assert d.only(ev.NotIdempotent).reason == "broker b:1 does not have it"
    assert d.producer.state is ProducerState.WITHOUT_ID
    assert d.numbers() == [(-1, -1, -1)]


def test_idempotence_that_is_required_fails_on_an_old_broker() -> None:
    d = Driver(idempotence=Idempotence.REQUIRED)
    d.append(1)
    d.step(ev.ProducerIdRefused(ErrorCode.UNSUPPORTED_VERSION))
    assert "0.11 or later" in str(d.only(ev.Failed).error)
    assert d.producer.state is ProducerState.FAILED
    d.append(1)
    assert "0.11 or later" in str(d.only(ev.Failed).error)


def test_a_user_who_may_not_write_idempotently_learns_what_to_grant() -> None:
    d = Driver()
    d.append(1)
    d.step(ev.ProducerIdRefused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert "--operation IdempotentWrite --cluster" in str(d.only(ev.Failed).error)


def test_a_forgotten_producer_starts_again_under_the_next_epoch() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.UNKNOWN_PRODUCER_ID)
    assert not d.all(ev.Send)  # the other batch is in flight under the old epoch
    d.answer(ErrorCode.UNKNOWN_PRODUCER_ID)
    assert d.numbers() == [(7, 1, 0)]
    d.answer(0)
    assert d.numbers() == [(7, 1, 1)]


def test_other_partitions_keep_their_epoch_and_go_on() -> None:
    d = Driver().ready().confirmed()
    d.append(1)
    d.append(1, to=P1)
    d.answer(ErrorCode.UNKNOWN_PRODUCER_ID, min(d.sent))
    d.answer(0, next(token for token, send in d.sent.items() if send.node == 1))
    d.append(1, to=P1)
    assert d.numbers() == [(7, 0, 1)]


def test_a_doubtful_batch_never_gets_another_sequence() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.cut()  # both are in doubt
    d.later(0.3)
    d.answer(ErrorCode.INVALID_TIMESTAMP)  # the first is refused for good
    d.later(0.3)
    d.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    error = d.only(ev.Failed).error
    assert error.maybe_written
    assert "earlier records of the partition have failed" in str(error)


def test_lost_acknowledged_records_fail_the_batch_behind_them() -> None:
    d = Driver().ready().confirmed()
    d.append(1)
    d.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    error = d.only(ev.Failed).error
    assert "unclean leader election" in str(error)
    assert not error.maybe_written
    d.append(1)
    assert d.numbers() == [(7, 1, 0)]


def test_a_fenced_id_is_replaced() -> None:
    d = Driver().ready().confirmed()
    d.append(1)
    d.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert d.only(ev.GetProducerId)
    assert d.producer.state is ProducerState.ASKING_ID
    d.step(ev.ProducerIdGiven(8, 0))
    assert d.numbers() == [(8, 0, 0)]
    assert d.producer.state is ProducerState.READY


def test_epochs_that_are_used_up_need_another_id() -> None:
    d = Driver()
    d.step(ev.FindTopics(("t",)))
    d.step(ev.ProducerIdGiven(7, 2**15 - 1))
    d.metadata(0, 1)
    d.confirmed().append(1)
    d.answer(ErrorCode.UNKNOWN_PRODUCER_ID)
    assert d.only(ev.GetProducerId)
    d.step(ev.ProducerIdGiven(8, 0))
    assert d.numbers() == [(8, 0, 0)]


def test_a_partition_of_a_forgotten_topic_starts_again_under_the_next_epoch() -> None:
    """The broker knows the producer still, and refuses sequence 0 under the epoch that it had."""
    d = Driver(metadata_max_idle_ms=60_000).ready().confirmed()
    d.now += 60
    d.producer.begin_task(d.now)
    d.step(ev.FindTopics(("t",)))
    d.metadata(0, 1)
    d.append(1)
    assert d.numbers() == [(7, 1, 0)]


def test_a_partition_is_kept_if_its_epoch_is_the_last_one() -> None:
    d = Driver(metadata_max_idle_ms=60_000)
    d.step(ev.FindTopics(("t",)))
    d.step(ev.ProducerIdGiven(7, 2**15 - 1))
    d.metadata(0, 1)
    d.confirmed()
    d.now += 60
    d.producer.begin_task(d.now)
    d.step(ev.FindTopics(("t",)))
    d.metadata(0, 1)
    d.append(1)
    assert d.numbers() == [(7, 2**15 - 1, 1)]


# -- batches that a broker does not recognize -------------------------------------------------------------------------

REFUSED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
LATER_S = 0.3


def cut_behind(count: int, each: int = 1) -> Driver:
    """`count` batches are in flight when their connection breaks. The first one is sent again."""
    d = Driver().ready().confirmed()
    d.append(*[each] * count)
    d.cut()
    d.later(LATER_S)
    return d


def resolved(d: Driver) -> list[tuple[int, int]]:
    """Sequence and offset of the batches that the last step delivered."""
    return [(action.batch.base_sequence, action.base_offset) for action in d.all(ev.Delivered)]


def test_batches_that_a_restarted_broker_has_forgotten_are_delivered_with_the_last_one() -> None:
    d = cut_behind(3)
    d.answer(REFUSED)
    assert d.numbers() == [(7, 0, 2)]
    d.answer(REFUSED)
    assert d.numbers() == [(7, 0, 3)]
    d.answer(0)
    assert resolved(d) == [(1, -1), (2, -1), (3, 43)]
    assert not [action for action in d.seen if isinstance(action, ev.Failed)]
    d.append(1)
    assert d.numbers() == [(7, 0, 4)]


def test_a_batch_that_the_broker_lacks_follows_the_forgotten_ones() -> None:
    """The second one was appended last: the third one is appended now."""
    d = cut_behind(3)
    d.answer(REFUSED)
    d.answer(0)
    assert resolved(d) == [(1, -1), (2, 42)]
    assert d.numbers() == [(7, 0, 3)]
    d.answer(0)
    assert resolved(d) == [(3, 43)]


def test_nothing_new_is_sent_behind_a_doubtful_batch() -> None:
    d = cut_behind(1)
    d.append(1)
    assert not d.all(ev.Send)
    d.answer(0)
    assert d.numbers() == [(7, 0, 2)]


def test_nothing_new_is_sent_behind_a_batch_that_the_broker_does_not_recognize() -> None:
    d = cut_behind(2)
    d.append(1)
    d.answer(REFUSED)
    assert d.numbers() == [(7, 0, 2)]
    d.append(1)
    assert not d.all(ev.Send)
    d.answer(0)
    assert d.numbers() == [(7, 0, 3), (7, 0, 4)]


def test_nothing_new_is_sent_behind_it_while_a_batch_of_which_nothing_is_in_doubt_is_in_flight() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    d.later(LATER_S)
    d.answer(REFUSED, max(d.sent))
    d.append(1)
    assert not d.all(ev.Send)
    d.answer(0)
    assert resolved(d) == [(1, -1), (2, 42)]


def test_where_the_broker_refuses_them_all_it_has_lost_acknowledged_records() -> None:
    d = cut_behind(3)
    for _ in range(2):
        d.answer(REFUSED)
        assert not d.all(ev.Failed)
    d.answer(REFUSED)
    errors = [action.error for action in d.all(ev.Failed)]
    assert len(errors) == 3
    assert all(error.maybe_written and "unclean leader election" in str(error) for error in errors)
    d.append(1)
    assert d.numbers() == [(7, 1, 0)]


def test_a_batch_of_which_nothing_is_in_doubt_fails_at_once() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(REFUSED)
    assert not d.only(ev.Failed).error.maybe_written


def test_the_last_batch_is_one_that_every_broker_remembers() -> None:
    d = cut_behind(1)
    d.answer(REFUSED)
    assert "unclean leader election" in str(d.only(ev.Failed).error)


def test_a_batch_is_delivered_if_the_broker_has_forgotten_it_and_acknowledged_those_behind_it() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    d.answer(0)
    assert resolved(d) == [(2, 42)]
    d.later(LATER_S)  # the broker restarts
    d.answer(REFUSED)
    assert resolved(d) == [(1, -1)]


def test_a_batch_that_the_broker_remembers_is_delivered_at_its_offset() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    d.answer(0)
    d.later(LATER_S)
    d.answer(0)
    assert resolved(d) == [(1, 41)]


def test_the_parts_of_a_forgotten_batch_are_delivered() -> None:
    """The limit was lowered between the two attempts."""
    d = Driver().ready().confirmed()
    d.append(2, 1)
    d.answer(ErrorCode.REQUEST_TIMED_OUT)
    d.answer(0)
    d.later(LATER_S)
    d.answer(ErrorCode.MESSAGE_TOO_LARGE)
    d.step(ev.SplitInto(d.only(ev.Split).batch, (Records((0,)), Records((1,)))))
    d.answer(REFUSED)
    assert resolved(d) == [(1, -1)]
    d.answer(REFUSED)
    assert resolved(d) == [(2, -1)]


def test_records_of_others_lie_between_the_batches() -> None:
    d = cut_behind(2)
    d.answer(REFUSED)
    d.answer(0, first_offset=70)
    assert resolved(d) == [(1, -1), (2, 72)]


@pytest.mark.parametrize("first_offset", [39, 0])
def test_a_log_without_room_for_a_batch_does_not_have_it(first_offset: int) -> None:
    """A broker that has forgotten the producer altogether appends any batch."""
    d = cut_behind(2)
    d.answer(REFUSED)
    d.answer(0, first_offset=first_offset)
    assert len(resolved(d)) == 1
    error = d.only(ev.Failed).error
    assert "accepted records that follow them. The broker may have the records" in str(error)
    assert error.maybe_written


def test_a_batch_without_room_in_the_log_is_not_delivered_later_either() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.REQUEST_TIMED_OUT)
    d.answer(0, first_offset=39)
    d.later(LATER_S)
    d.answer(REFUSED)
    assert d.only(ev.Failed).error.maybe_written


def test_a_batch_without_room_in_the_log_is_not_proven_by_those_that_follow_without_a_gap() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1, 1)
    d.answer(ErrorCode.REQUEST_TIMED_OUT)
    d.answer(0, first_offset=-2)
    d.answer(0, first_offset=-2)
    d.later(LATER_S)
    d.answer(REFUSED)
    assert d.only(ev.Failed).error.maybe_written
    assert not resolved(d)


def created_anew() -> Driver:
    """Two batches are in flight when the metadata shows that their topic was created anew."""
    d = Driver().ready()
    d.metadata(0, 1, topic_id="first")
    d.confirmed()
    d.append(1, 1)
    d.metadata(0, 1, topic_id="second")
    return d


def test_to_a_topic_that_was_created_anew_the_first_batch_goes_alone() -> None:
    """The new log knows nothing of the producer, so it would accept a later batch before the first."""
    d = created_anew()
    d.append(1)
    assert not d.all(ev.Send)
    d.answer(ErrorCode.UNKNOWN_TOPIC_ID)
    d.answer(ErrorCode.UNKNOWN_TOPIC_ID)
    d.metadata(0, 1, topic_id="second")
    d.later(LATER_S)
    assert [batch.base_sequence for send in d.sent.values() for batch in send.batches] == [1]
    d.answer(0, first_offset=-1)
    assert resolved(d) == [(1, 0)]
    assert [batch.base_sequence for send in d.sent.values() for batch in send.batches] == [2, 3]
    for sequence in (2, 3):
        d.answer(0, first_offset=-1)
        assert resolved(d) == [(sequence, sequence - 1)]


def test_the_first_batch_of_a_task_goes_alone() -> None:
    """Without topic ids nobody tells that the topic was created anew since the last task."""
    d = Driver().ready().confirmed()
    d.producer.begin_task(d.now)
    d.append(1, 1, 1)
    assert d.numbers() == [(7, 0, 1)]
    d.answer(0)
    assert d.numbers() == [(7, 0, 2), (7, 0, 3)]


@pytest.mark.parametrize("code", [0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
def test_the_log_of_a_topic_that_was_created_anew_proves_no_earlier_batch(code: int) -> None:
    """Old versions of Produce name the topic, so a batch that was in flight may reach the new log first."""
    d = created_anew()
    d.answer(ErrorCode.REQUEST_TIMED_OUT)
    d.answer(code, first_offset=99)
    d.later(LATER_S)
    d.answer(REFUSED)
    assert d.only(ev.Failed).error.maybe_written


def test_a_batch_of_which_every_attempt_was_refused_is_not_delivered_with_a_later_one() -> None:
    d = Driver().ready().confirmed()
    d.append(1, 1)
    d.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    d.answer(0)
    d.later(LATER_S)
    d.answer(REFUSED)
    assert not d.only(ev.Failed).error.maybe_written


def test_an_unrecognized_batch_fails_with_the_last_one_behind_it() -> None:
    d = cut_behind(2)
    d.answer(REFUSED)
    d.answer(ErrorCode.INVALID_TIMESTAMP)
    assert len(d.all(ev.Failed)) == 2
    assert d.producer.state is ProducerState.READY
    d.append(1)
    assert d.numbers() == [(7, 1, 0)]


def test_an_unrecognized_batch_waits_no_longer_than_the_delivery_timeout() -> None:
    d = cut_behind(2)
    d.answer(REFUSED)
    d.later(120)
    errors = [str(action.error) for action in d.seen if isinstance(action, ev.Failed)]
    assert len(errors) == 2
    assert "last: OUT_OF_ORDER_SEQUENCE_NUMBER" in errors[0]
    assert not any("unclean leader election" in error for error in errors)


def test_without_idempotence_a_refused_number_is_not_looked_into() -> None:
    d = Driver(idempotence=Idempotence.OFF, max_in_flight=5).ready()
    d.append(1, 1)
    d.answer(ErrorCode.REQUEST_TIMED_OUT)
    d.answer(0)
    d.later(LATER_S)
    d.answer(REFUSED)
    assert d.only(ev.Failed)
