"""The errors of a producer of Kafka 0.7, which acknowledges nothing: a user learns whether the broker may have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, ProduceError
from streamgroup.kafka.producer import kafka07_parts
from streamgroup.kafka.producer.kafka07_parts import (
    MessageSet,
    MessageSetState,
    read_back,
)
from streamgroup.kafka.wire.kafka07 import message07, message_set07
from tests.fakes.broker07 import tp

AGAIN = "The broker may have the records: writing them again may duplicate them"
WHAT = "could not write 3 records (12 bytes) to events 2-17: "
QUEUED, SENT, HANDLED = MessageSetState.QUEUED, MessageSetState.SENT, MessageSetState.HANDLED


def failed_set(
    state: MessageSetState = SENT, *, movable: bool = False, attempts: int = 2, cause: str = "reset by peer"
) -> MessageSet:
    return MessageSet(tp(2, 17), b"twelve bytes", 3, movable, attempts=attempts, state=state, cause=cause)


@pytest.mark.parametrize(
    ("error", "cause", "next_step"),
    [
        (
            kafka07_parts.unconfirmed(failed_set()),
            "the connection was lost after they were sent: reset by peer",
            "verify=true",
        ),
        (
            kafka07_parts.refused(failed_set()),
            "closes the connection at every request for this partition: reset by peer",
            "(num.partitions)",
        ),
        (
            kafka07_parts.log_lost(failed_set(), 480),
            "the log no longer has position 480",
            "then write the records again",
        ),
        (kafka07_parts.unreadable(failed_set(), 480), "the broker refuses to send its log from position 480 on", AGAIN),
        (
            kafka07_parts.damaged(failed_set(), "magic 9 at position 40"),
            "the log is damaged: magic 9 at position 40",
            AGAIN,
        ),
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


@pytest.mark.parametrize(("attempts", "maybe"), [(0, False), (1, True)])
def test_a_set_that_a_broker_hangs_up_on_may_be_written_once_it_was_sent(attempts: int, maybe: bool) -> None:
    assert kafka07_parts.refused(failed_set(QUEUED, attempts=attempts)).maybe_written is maybe


def test_an_abandoned_set_has_the_reason_of_the_application() -> None:
    assert (
        str(kafka07_parts.abandoned(failed_set(QUEUED), "the task has failed"))
        == f"{WHAT}given up: the task has failed"
    )


def sets(*payloads: list[bytes]) -> list[MessageSet]:
    return [MessageSet(tp(0, 0), message_set07(each), len(each)) for each in payloads]


def test_a_set_behind_its_own_beginning_is_found() -> None:
    (ours,) = sets([b"a", b"b"])
    assert read_back(message07(b"a") + ours.messages, 0, [ours]).found == [(ours, 11)]


def test_equal_sets_are_found_as_often_as_they_are_there() -> None:
    ours = sets([b"a"], [b"a"], [b"a"])
    assert read_back(ours[0].messages * 2, 0, ours).found == [(ours[0], 0), (ours[1], 11)]


def test_a_message_that_is_longer_than_what_was_read_is_stepped_over() -> None:
    large = message07(b"x" * 1000)
    assert read_back(large[:100], 0, sets([b"a"])).position == len(large)


@pytest.mark.parametrize("length", [0, -1, 4])
def test_bytes_that_are_no_messages_are_an_error(length: int) -> None:
    with pytest.raises(DecodeError, match=f"position 19: a message of {length} bytes is announced there"):
        read_back(message07(b"", magic=0) + length.to_bytes(4, "big", signed=True) + bytes(20), 10, sets([b"a"]))


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from([b"", b"a", b"b", b"ab"]), min_size=1, max_size=3))),
    st.integers(20, 200),
)
def test_a_log_that_is_read_in_pieces_has_every_set_in_its_order(
    content: list[tuple[bool, list[bytes]]], piece: int
) -> None:
    ours = sets(*(payloads for is_ours, payloads in content if is_ours))
    log = b"".join(message_set07(payloads) for _, payloads in content)
    expected, position, wanted, found = list(ours), 0, 0, []
    while position < len(log):
        data = log[position : position + max(piece, wanted)]
        step = read_back(data, position, expected)
        assert step.position > position or step.wanted > wanted
        position, wanted = step.position, step.wanted
        found += [each for each, _ in step.found]
        expected = [each for each in ours if each not in found]
    # The same bytes may come from both producers. Then the first of them count.
    assert len(found) == len(ours)
