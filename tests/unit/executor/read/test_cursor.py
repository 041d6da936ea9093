"""A task knows of each planned range what it has fetched and delivered, from which broker, and how much to ask for."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode, error_of
from streamgroup.executor.read.cursor import Cursor
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import Broker, FetchRange, OffsetRange, TopicPartition

TP = TopicPartition("orders", 0)
LEADER, OTHER = Broker(1, "h1", 92), Broker(2, "h2", 92)
FAILURE = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
KIB = 1024


def cursor(start: int = 10, until: int = 100) -> Cursor:
    return Cursor.of(FetchRange(OffsetRange(TP, start, until), LEADER, "an id", 7))


def test_the_time_without_records_runs_from_the_first_empty_answer_until_records_come() -> None:
    made = cursor()
    made.mark_waiting(5.0)
    made.mark_waiting(6.0)
    assert made.waiting_since == 5.0
    made.empty_answers = 2
    made.mark_fetched(20, 100)
    assert (made.waiting_since, made.empty_answers) == (None, 0)


def test_a_failure_stops_fetching_until_the_leader_is_known_again_and_what_was_not_delivered_is_fetched_anew() -> None:
    made = cursor()
    made.mark_fetched(50, 1_000)
    made.mark_delivered(30)
    made.mark_failed(FAILURE, 5.0)
    assert (made.wants_more, made.waiting_since) == (False, 5.0)
    made.move_to(OTHER, 8)
    assert (made.wants_more, made.failure) == (True, None)
    assert (made.source, made.leader_epoch) == (OTHER, 8)
    assert (made.ahead, made.position) == (30, 30)
    assert made.waiting_since == 5.0, "a new leader that sends nothing does not extend the timeout"


@pytest.mark.parametrize(("offset", "position", "done"), [(40, 40, False), (100, 100, True), (140, 100, True)])
def test_a_skip_goes_on_behind_the_loss_and_never_beyond_the_range(offset: int, position: int, done: bool) -> None:
    made = cursor()
    made.mark_failed(FAILURE, 5.0)
    made.empty_answers = 3
    made.skip_to(offset)
    assert (made.position, made.ahead, made.done) == (position, position, done)
    assert (made.failure, made.waiting_since, made.empty_answers) == (None, None, 0)


# -- how much is asked for ---------------------------------------------------------------------------------------------


def test_a_first_request_takes_records_of_256_bytes_and_a_quarter_more() -> None:
    assert cursor(0, 1_000).bytes_wanted(1024 * KIB) == 320_000


@pytest.mark.parametrize(
    ("until", "most", "wanted"), [(1, 1024 * KIB, 64 * KIB), (1_000_000, 1024 * KIB, 1024 * KIB), (1, 1_000, 1_000)]
)
def test_a_request_asks_for_64_kib_at_least_and_for_its_limit_at_most(until: int, most: int, wanted: int) -> None:
    assert cursor(0, until).bytes_wanted(most) == wanted


def test_the_size_of_the_last_answer_sizes_the_next_requests_of_its_topic_and_of_no_other() -> None:
    made = cursor(0, 1_000)
    made.mark_fetched(100, 200_000)
    assert made.bytes_wanted(10_000 * KIB) == 900 * 2_000 * 5 // 4
    assert cursor(0, 100).bytes_wanted(10_000 * KIB) == 100 * 2_000 * 5 // 4, "the next task of the process"
    other = Cursor.of(FetchRange(OffsetRange(TopicPartition("returns", 0), 0, 1_000), LEADER))
    assert other.bytes_wanted(10_000 * KIB) == 320_000


def test_a_message_known_to_be_larger_is_asked_for_whole_once() -> None:
    made = cursor(0, 10)
    made.min_bytes = 5_000 * KIB
    assert made.bytes_wanted(1024 * KIB) == 5_000 * KIB
    made.mark_fetched(1, 100)
    assert made.bytes_wanted(1024 * KIB) == 64 * KIB


@pytest.mark.parametrize(
    ("planned", "text"),
    [
        (Cursor.of(FetchRange(OffsetRange(TP, 10, 100), None)), "orders-0 at offset 10 of [10, 100)"),
        (
            Cursor.of(FetchRange(OffsetRange(TopicPartition("events", 10_002), 30, 90), None), KAFKA07_LOG),
            "events 1-2 at position 30 of [30, 90)",
        ),
    ],
)
def test_messages_name_the_partition_and_the_place_as_its_kafka_does(planned: Cursor, text: str) -> None:
    assert str(planned) == text
