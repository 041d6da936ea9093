"""A task knows of each planned range what it has fetched and delivered, from which broker, and how much to ask for."""

from __future__ import annotations

import pytest

from streamgroup.executor.read.cursor import Cursor
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import Broker, FetchRange, OffsetRange, TopicPartition

TP = TopicPartition("orders", 0)
LEADER = Broker(1, "h1", 92)
KIB = 1024


def cursor(start: int = 10, until: int = 100) -> Cursor:
    return Cursor.of(FetchRange(OffsetRange(TP, start, until), LEADER, "an id", 7))


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
