"""The errors of a producer of Kafka 0.7, which acknowledges nothing: a user learns whether the broker may have it."""

from __future__ import annotations

import pytest

from streamgroup.errors import DeliveryTimeoutError, ProduceError
from streamgroup.producer import kafka07_failures as failures
from streamgroup.producer.kafka07 import Kafka07Config
from streamgroup.producer.kafka07_events import MessageSet, MessageSetState
from tests.fakes.broker07 import tp

AGAIN = "The broker may have the records: writing them again may duplicate them"
WHAT = "could not write 3 records (12 bytes) to events 2-17: "
QUEUED, SENT, HANDLED = MessageSetState.QUEUED, MessageSetState.SENT, MessageSetState.HANDLED


def a_set(
    state: MessageSetState = SENT, *, movable: bool = False, attempts: int = 2, cause: str = "reset by peer"
) -> MessageSet:
    return MessageSet(tp(2, 17), b"twelve bytes", 3, movable, attempts=attempts, state=state, cause=cause)


@pytest.mark.parametrize(
    ("error", "cause", "next_step"),
    [
        (failures.unconfirmed(a_set()), "the connection was lost after they were sent: reset by peer", "verify=true"),
        (failures.refused(a_set()), "hangs up on every request for this partition: reset by peer", "(num.partitions)"),
        (failures.log_lost(a_set(), 480), "the log no longer has position 480", "then write the records again"),
        (failures.unreadable(a_set(), 480), "the broker refuses to send its log from position 480 on", AGAIN),
        (failures.damaged(a_set(), "magic 9 at position 40"), "the log is damaged: magic 9 at position 40", AGAIN),
    ],
)
def test_an_error_about_a_sent_set_names_the_partition_the_cause_and_the_next_step(
    error: ProduceError, cause: str, next_step: str
) -> None:
    text = str(error)
    assert text.startswith(WHAT)
    assert cause in text
    assert next_step in text.partition(cause)[2]
    assert error.maybe_written


def test_a_set_that_the_log_does_not_have_is_not_written_and_points_to_the_brokers_limit() -> None:
    error = failures.missing(a_set(HANDLED), 480, 486)
    assert str(error).startswith(
        f"{WHAT}expected 12 bytes from position 480 on, and the log ends at 486: they are not there after 2 attempts. "
    )
    assert "lower kafka.max.request.size" in str(error)
    assert not error.maybe_written


@pytest.mark.parametrize(("attempts", "maybe"), [(0, False), (1, True)])
def test_a_set_that_a_broker_hangs_up_on_may_be_written_once_it_was_sent(attempts: int, maybe: bool) -> None:
    assert failures.refused(a_set(QUEUED, attempts=attempts)).maybe_written is maybe


@pytest.mark.parametrize(("state", "maybe"), [(QUEUED, False), (SENT, True), (HANDLED, True)])
def test_a_set_whose_time_is_over_may_be_written_unless_it_waits_to_be_sent(
    state: MessageSetState, maybe: bool
) -> None:
    late = failures.timed_out(a_set(state), Kafka07Config(delivery_timeout_ms=40_000), "broker 2 is not registered")
    assert isinstance(late, DeliveryTimeoutError)
    assert str(late).startswith(f"{WHAT}not delivered within delivery.timeout.ms=40000: broker 2 is not registered")
    assert str(late).endswith(". Start the broker, or raise kafka.delivery.timeout.ms")
    for error in (late, failures.abandoned(a_set(state), "the task has failed")):
        assert error.maybe_written is maybe
        assert (AGAIN in str(error)) is maybe


@pytest.mark.parametrize("movable", [False, True])
def test_a_set_of_a_broker_that_is_gone_says_why_no_other_broker_got_it(movable: bool) -> None:
    error = failures.timed_out(a_set(QUEUED, movable=movable), Kafka07Config(), "broker 2 is not registered")
    assert ("Records with a key, or with a partition, cannot go to another broker" in str(error)) is not movable


def test_an_abandoned_set_has_the_reason_of_the_application() -> None:
    assert str(failures.abandoned(a_set(QUEUED), "the task has failed")) == f"{WHAT}given up: the task has failed"
