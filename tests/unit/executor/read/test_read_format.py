"""A task that cannot read on says in words what the broker answered, for Kafka 0.7 as for later brokers."""

from __future__ import annotations

import pytest

from streamgroup.errors import DecodeError, ErrorCode, KafkaError, StreamGroupError, TransportError, error_of
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.kafka07 import KAFKA07_READ_FORMAT
from streamgroup.executor.read.read_format import Portion, describe_failure, has_failed_with
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.wire.kafka07 import ErrorCode07, error07_of
from streamgroup.model import Broker, FetchRange, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions
from tests.unit.executor.leader import batch

LEADER = Broker(1, "h1", 92)
Failure = KafkaError | StreamGroupError | None


def failed(failure: Failure, leader: Broker | None = LEADER) -> Cursor:
    cursor = Cursor.of(FetchRange(OffsetRange(TopicPartition("orders", 0), 0, 100), leader))
    if failure is not None:
        cursor.mark_failed(failure, 1.0)
    return cursor


@pytest.mark.parametrize(
    ("cursor", "text"),
    [
        (failed(None), "an empty answer"),
        (failed(None, leader=None), "the partition has no leader"),
        (failed(error_of(ErrorCode.OFFSET_NOT_AVAILABLE)), "OFFSET_NOT_AVAILABLE"),
        (failed(error07_of(ErrorCode07.WRONG_PARTITION)), "WRONG_PARTITION"),
        (failed(TransportError("h1:92: Connection refused"), leader=None), "h1:92: Connection refused"),
    ],
    ids=["nothing came", "no leader", "a code", "a code of 0.7", "no connection"],
)
def test_the_last_failure_is_the_brokers_code_or_the_text_of_the_error(cursor: Cursor, text: str) -> None:
    assert describe_failure(cursor) == text


@pytest.mark.parametrize(
    ("failure", "has_failed"),
    [
        (error_of(ErrorCode.OFFSET_OUT_OF_RANGE), True),
        (error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), False),
        (TransportError("OFFSET_OUT_OF_RANGE"), False),
        (DecodeError("1"), False),
        (None, False),
    ],
)
def test_only_the_brokers_own_code_counts_as_that_failure(failure: Failure, has_failed: bool) -> None:
    assert has_failed_with(failed(failure), ErrorCode.OFFSET_OUT_OF_RANGE) is has_failed


def test_a_failure_that_progress_has_cleared_is_not_a_failure_any_more() -> None:
    cursor = failed(error_of(ErrorCode.OFFSET_OUT_OF_RANGE))
    cursor.skip_to(50)
    assert not has_failed_with(cursor, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert describe_failure(cursor) == "an empty answer"


def test_a_portion_reaches_to_the_end_of_its_last_whole_batch() -> None:
    data = batch(0, 10) + batch(10, 5)
    cursor = failed(None)
    whole, cut = (Frames(memoryview(each), 0, 100) for each in (data, data[:-1]))
    assert [Portion(cursor, 0, frames, ()).ahead for frames in (whole, cut)] == [15, 10]


def test_a_log_of_kafka_07_has_no_follower_to_read_from() -> None:
    lookup = KAFKA07_READ_FORMAT.lookup(ClientOptions(()), FetchOptions(), lambda: 0.0)
    assert lookup.replica(failed(None), 2, 1.0) is None
    lookup.close()
