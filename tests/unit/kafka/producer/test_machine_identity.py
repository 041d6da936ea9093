"""Producer ids, epochs, and sequences that start again, scenario by scenario."""

from __future__ import annotations

from streamgroup.errors import ErrorCode
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.bookkeeping import ProducerState
from streamgroup.kafka.producer.config import Idempotence
from tests.unit.kafka.producer.drivers import P1, Driver


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
