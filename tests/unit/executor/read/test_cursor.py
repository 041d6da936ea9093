"""A task knows of each planned range what it has fetched and delivered, from which broker, and how much to ask for."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode, error_of
from streamgroup.executor.read.cursor import Cursor
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import UNKNOWN_EPOCH, Broker, FetchRange, OffsetRange, TopicPartition

TP = TopicPartition("orders", 0)
LEADER, OTHER, FOLLOWER = Broker(1, "h1", 92), Broker(2, "h2", 92), Broker(3, "h3", 92)
FAILURE = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
KIB = 1024


def cursor(start: int = 10, until: int = 100) -> Cursor:
    return Cursor.of(FetchRange(OffsetRange(TP, start, until), LEADER, "an id", 7))


def test_a_cursor_begins_where_the_plan_does_at_the_planned_leader() -> None:
    made = cursor()
    assert (made.tp, made.start, made.until, made.position, made.ahead) == (TP, 10, 100, 10, 10)
    assert (made.topic_id, made.source, made.leader_epoch) == ("an id", LEADER, 7)
    assert (made.wants_more, made.done) == (True, False)


def test_an_empty_range_is_done_before_anything_is_fetched() -> None:
    made = cursor(10, 10)
    assert (made.wants_more, made.done) == (False, True)


@pytest.mark.parametrize(("ahead", "wants_more"), [(50, True), (99, True), (100, False), (103, False)])
def test_a_range_is_fetched_to_its_end_or_to_a_batch_beyond_it(ahead: int, wants_more: bool) -> None:
    made = cursor()
    made.mark_fetched(ahead, 1_000)
    assert (made.wants_more, made.done) == (wants_more, False)
    made.mark_delivered(ahead)
    assert made.done is not wants_more


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


def test_a_partition_in_an_election_has_no_broker_to_fetch_from() -> None:
    made = cursor()
    made.move_to(None)
    assert (made.source, made.leader_epoch) == (None, UNKNOWN_EPOCH)


def test_a_redirected_cursor_waits_for_its_follower_and_fetches_there_behind_what_is_delivered() -> None:
    made = cursor()
    made.mark_fetched(50, 1_000)
    made.mark_delivered(30)
    made.mark_redirected(3)
    assert (made.wants_more, made.named_replica) == (False, 3)
    made.read_from(FOLLOWER, 60.0)
    assert (made.wants_more, made.named_replica, made.ahead) == (True, None, 30)
    assert (made.source, made.leader, made.review_at) == (FOLLOWER, LEADER, 60.0)
    made.mark_failed(FAILURE, 5.0)
    made.read_from(None, 70.0, is_leader_only=True)
    assert (made.source, made.is_leader_only, made.wants_more) == (LEADER, True, True)


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
