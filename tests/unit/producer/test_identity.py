"""The producer id and its epochs: the producer asks for an id once, and raises its epoch by itself."""

from __future__ import annotations

from streamgroup.producer.batch import NO_IDENTITY, ProducerIdentity
from streamgroup.producer.identity import IdentitySource

FIRST = ProducerIdentity(7, 0)
LAST_EPOCH = ProducerIdentity(7, 2**15 - 1)


def given(identity: ProducerIdentity = FIRST) -> IdentitySource:
    source = IdentitySource()
    assert source.take_due(0.0)
    source.given(identity)
    return source


def test_the_first_request_is_due_at_once_and_no_second_one_while_it_is_pending() -> None:
    source = IdentitySource()
    assert source.current == NO_IDENTITY
    assert source.take_due(0.0)
    assert source.pending
    assert not source.take_due(1e9)


def test_a_request_after_a_refused_one_waits_for_its_backoff() -> None:
    source = IdentitySource()
    source.take_due(0.0)
    source.refused("COORDINATOR_LOAD_IN_PROGRESS (14)")
    source.retry_at = 5.0
    assert not source.take_due(4.999)
    assert source.take_due(5.0)


def test_refused_requests_are_counted_until_one_succeeds() -> None:
    source = IdentitySource()
    for attempt in (1, 2):
        source.take_due(0.0)
        source.refused("COORDINATOR_LOAD_IN_PROGRESS (14)")
        assert (source.attempts, source.pending) == (attempt, False)
    assert source.reason == "no producer id: COORDINATOR_LOAD_IN_PROGRESS (14)"
    source.take_due(0.0)
    source.given(FIRST)
    assert (source.current, source.attempts, source.reason, source.pending) == (FIRST, 0, "", False)


def test_a_broken_sequence_raises_the_epoch_without_a_request() -> None:
    source = given()
    assert source.renew(FIRST)
    assert source.current == ProducerIdentity(7, 1)
    assert not source.pending


def test_a_second_partition_of_an_old_epoch_takes_the_epoch_that_is_raised_already() -> None:
    source = given()
    source.renew(FIRST)
    assert source.renew(FIRST)
    assert source.current == ProducerIdentity(7, 1)


def test_the_epoch_before_the_last_can_be_raised_once_more() -> None:
    used = ProducerIdentity(7, 2**15 - 2)
    source = given(used)
    assert source.renew(used)
    assert source.current == LAST_EPOCH


def test_behind_the_last_epoch_a_new_id_is_asked_for_at_once() -> None:
    source = given(LAST_EPOCH)
    source.retry_at = 100.0  # the backoff of an earlier failure
    assert not source.renew(LAST_EPOCH)
    assert source.current == NO_IDENTITY
    assert source.take_due(0.0)


def test_an_id_that_another_producer_uses_is_given_up_and_the_next_one_is_not() -> None:
    source = given()
    source.fenced(FIRST)
    assert not source.renew(FIRST)
    assert source.current == NO_IDENTITY
    source.take_due(0.0)
    source.given(ProducerIdentity(8, 0))
    assert source.renew(ProducerIdentity(8, 0))
    assert source.current == ProducerIdentity(8, 1)


def test_a_late_answer_about_an_id_that_was_given_up_leaves_the_current_one() -> None:
    source = given(ProducerIdentity(8, 0))
    source.fenced(FIRST)
    assert source.renew(ProducerIdentity(8, 0))
    assert source.current == ProducerIdentity(8, 1)


def test_a_partition_under_a_given_up_id_takes_the_new_one_as_it_is() -> None:
    source = given(ProducerIdentity(8, 0))
    assert source.renew(LAST_EPOCH)
    assert source.current == ProducerIdentity(8, 0)
