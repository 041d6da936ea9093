"""The errors of a producer of Kafka 0.7, which acknowledges nothing: a user learns whether the broker may have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, DeliveryTimeoutError, ProduceError
from streamgroup.kafka.producer import kafka07_parts
from streamgroup.kafka.producer.kafka07 import Kafka07Config
from streamgroup.kafka.producer.kafka07_parts import (
    ConnectionLost07,
    MessageSet,
    MessageSetState,
    Partition07,
    read_back,
)
from streamgroup.kafka.wire.kafka07 import message07, message_set07
from streamgroup.testing.kafka07 import Compressed, message_set
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


def test_a_set_that_the_log_does_not_have_is_not_written_and_points_to_the_brokers_limit() -> None:
    error = kafka07_parts.missing(failed_set(HANDLED), 480, 486)
    assert str(error).startswith(
        f"{WHAT}expected 12 bytes from position 480 on, and the log ends at 486: they are not there after 2 attempts. "
    )
    assert "lower kafka.max.request.size" in str(error)
    assert not error.maybe_written


@pytest.mark.parametrize(("attempts", "maybe"), [(0, False), (1, True)])
def test_a_set_that_a_broker_hangs_up_on_may_be_written_once_it_was_sent(attempts: int, maybe: bool) -> None:
    assert kafka07_parts.refused(failed_set(QUEUED, attempts=attempts)).maybe_written is maybe


@pytest.mark.parametrize(("state", "maybe"), [(QUEUED, False), (SENT, True), (HANDLED, True)])
def test_a_set_whose_time_is_over_may_be_written_unless_it_waits_to_be_sent(
    state: MessageSetState, maybe: bool
) -> None:
    late = kafka07_parts.timed_out(
        failed_set(state), Kafka07Config(delivery_timeout_ms=40_000), "broker 2 is not registered"
    )
    assert isinstance(late, DeliveryTimeoutError)
    assert str(late).startswith(f"{WHAT}not delivered within delivery.timeout.ms=40000: broker 2 is not registered")
    assert str(late).endswith(". Start the broker, or raise kafka.delivery.timeout.ms")
    for error in (late, kafka07_parts.abandoned(failed_set(state), "the task has failed")):
        assert error.maybe_written is maybe
        assert (AGAIN in str(error)) is maybe


@pytest.mark.parametrize("movable", [False, True])
def test_a_set_of_a_broker_that_is_gone_says_why_no_other_broker_got_it(movable: bool) -> None:
    error = kafka07_parts.timed_out(failed_set(QUEUED, movable=movable), Kafka07Config(), "broker 2 is not registered")
    assert ("Records with a key, or with a partition, cannot go to another broker" in str(error)) is not movable


def test_an_abandoned_set_has_the_reason_of_the_application() -> None:
    assert (
        str(kafka07_parts.abandoned(failed_set(QUEUED), "the task has failed"))
        == f"{WHAT}given up: the task has failed"
    )


OTHER = message07(b"of another producer")


def sets(*payloads: list[bytes]) -> list[MessageSet]:
    return [MessageSet(tp(0, 0), message_set07(each), len(each)) for each in payloads]


def test_sets_are_found_where_they_begin() -> None:
    ours = sets([b"a", b"b"], [b"c"])
    data = OTHER + ours[0].messages + OTHER + OTHER + ours[1].messages
    found, position, wanted = read_back(data, 1000, ours)
    assert [(each, at) for each, at in found] == [
        (ours[0], 1000 + len(OTHER)),
        (ours[1], 1000 + len(data) - ours[1].size),
    ]
    assert (position, wanted) == (1000 + len(data), 0)


def test_a_part_of_a_set_is_not_the_set() -> None:
    (ours,) = sets([b"a", b"b"])
    assert read_back(message07(b"a") + OTHER, 0, [ours]).found == []


def test_a_set_behind_its_own_beginning_is_found() -> None:
    (ours,) = sets([b"a", b"b"])
    assert read_back(message07(b"a") + ours.messages, 0, [ours]).found == [(ours, 11)]


def test_equal_sets_are_found_as_often_as_they_are_there() -> None:
    ours = sets([b"a"], [b"a"], [b"a"])
    assert read_back(ours[0].messages * 2, 0, ours).found == [(ours[0], 0), (ours[1], 11)]


def test_a_compressed_set_is_found_by_its_wrapper() -> None:
    data = message_set([Compressed("gzip", [b"a", b"b"])])
    ours = MessageSet(tp(0, 0), data, 2)
    assert read_back(OTHER + data, 0, [ours]).found == [(ours, len(OTHER))]


def test_a_set_that_is_cut_has_to_be_read_at_once() -> None:
    (ours,) = sets([b"a", b"b" * 100])
    found, position, wanted = read_back(OTHER + ours.messages[:-1], 50, [ours])
    assert (found, position, wanted) == ([], 50 + len(OTHER), ours.size)


def test_a_message_without_payload_of_magic_0_is_stepped_over() -> None:
    (ours,) = sets([b"a"])
    assert read_back(message07(b"", magic=0) + ours.messages, 0, [ours]).found == [(ours, 9)]


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


EMPTY_MESSAGE_BYTES = 10
"""Length, magic, attributes and checksum of a message of 0.7."""


@pytest.mark.parametrize("payloads", [(), (b"",), (b"a", b"bcd")])
def test_the_size_of_a_set_is_that_of_its_bytes_as_the_broker_stores_them(payloads: tuple[bytes, ...]) -> None:
    data = message_set07(payloads)
    expected = sum(EMPTY_MESSAGE_BYTES + len(payload) for payload in payloads)
    for stored in (data, bytearray(data), memoryview(data)):
        assert MessageSet(tp(0, 0), stored, len(payloads)).size == expected


def test_a_new_set_waits_for_its_first_attempt_at_its_own_broker() -> None:
    new = MessageSet(tp(2, 17), message_set07([b"a"]), 1)
    assert (new.state, new.attempts, new.cause) == (MessageSetState.QUEUED, 0, "")
    assert not new.movable


def test_two_sets_with_the_same_records_are_two_sets() -> None:
    one, other = (MessageSet(tp(0, 0), message_set07([b"a"]), 1) for _ in range(2))
    assert one != other
    assert [other, one].index(one) == 1
    assert len({one, other}) == 2


def test_a_lost_connection_leaves_every_pending_request_sent_unless_the_shell_says_so() -> None:
    assert ConnectionLost07(0, "reset by peer").unsent == frozenset()


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
