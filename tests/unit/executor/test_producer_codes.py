"""A task writes to brokers that answer each error code of Produce: it writes each record once, or says what to do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamgroup.errors import ErrorCode, ProduceAuthorizationError, ProduceError, RecordTooLargeError, error_of
from streamgroup.executor.write.producer import TaskProducer
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC, placed, write
from tests.unit.kafka.producer.broker import Era

Start = Callable[..., ScriptedCluster]
Open = Callable[..., TaskProducer]
VALUES = [b"value %d" % n for n in range(20)]
THROTTLED_S = 0.3


@pytest.mark.parametrize(
    ("code", "appended"),
    [
        (ErrorCode.CORRUPT_MESSAGE, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.LEADER_NOT_AVAILABLE, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.UNKNOWN_PRODUCER_ID, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
    ],
)
def test_a_code_that_passes_costs_no_record_no_order_and_no_duplicate(
    start_cluster: Start, open_producer: Open, code: ErrorCode, appended: bool
) -> None:
    """Several batches are in flight, so the broker refuses those behind the first one as out of order."""
    cluster = start_cluster()
    producer = open_producer(cluster, batch_size=1)
    write(producer, placed(b"first"))
    cluster.answer(code, TOPIC, 0, times=3, appended=appended)
    write(producer, *map(placed, VALUES))
    assert cluster.values(TOPIC, 0) == [b"first", *VALUES]
    assert producer.written.records == 1 + len(VALUES)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError, "Raise max.message.bytes of the topic"),
        (ErrorCode.RECORD_LIST_TOO_LARGE, RecordTooLargeError, "Raise segment.bytes of the topic"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, ProduceError, "Choose a valid topic name"),
        (ErrorCode.INVALID_REQUIRED_ACKS, ProduceError, "Set kafka.acks to 0, 1 or all"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ProduceAuthorizationError, f"--operation Write --topic {TOPIC}`"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ProduceAuthorizationError, "--operation IdempotentWrite --cluster"),
        (ErrorCode.INVALID_TIMESTAMP, ProduceError, "message.timestamp.before.max.ms"),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ProduceError, "Raise the topic's message.format.version"),
        (ErrorCode.POLICY_VIOLATION, ProduceError, "Ask the operator of the cluster"),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ProduceError, "Choose another compression.type"),
        (ErrorCode.INVALID_RECORD, ProduceError, "Give records of a compacted topic keys"),
    ],
)
def test_a_code_that_stays_fails_the_task_with_the_partition_the_code_and_the_next_step(
    start_cluster: Start, open_producer: Open, code: ErrorCode, kind: type[ProduceError], advice: str
) -> None:
    cluster = start_cluster()
    cluster.answer(code, TOPIC, 1)
    producer = open_producer(cluster)
    with pytest.raises(kind) as raised:
        write(producer, placed(b"a", partition=1))
    said = str(raised.value)
    assert f"could not write 1 record (8 bytes) to {TOPIC}-1 at broker 0: {error_of(code).name} ({code.value})" in said
    assert advice in said
    assert (raised.value.code, raised.value.maybe_written) == (code, False)
    assert cluster.values(TOPIC, 1) == []
    assert not producer.is_usable


def test_a_batch_that_no_segment_can_hold_is_divided(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster()
    cluster.answer(ErrorCode.RECORD_LIST_TOO_LARGE, times=2)
    producer = open_producer(cluster)
    write(producer, placed(*VALUES))
    assert cluster.values(TOPIC, 0) == VALUES
    assert len(cluster.log(TOPIC, 0)) > 2


def test_a_user_who_may_not_write_idempotently_learns_what_to_grant(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster()
    cluster.refuse_producer_id(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(ProduceAuthorizationError, match=r"IdempotentWrite .*kafka\.enable\.idempotence=false"):
        write(open_producer(cluster), placed(b"a"))
    assert cluster.values(TOPIC, 0) == []


@pytest.mark.parametrize(
    ("era", "numbers"), [(Era.MIDDLE, [(0, 0), (1, 0), (2, 0)]), (Era.MODERN, [(0, 0), (0, 1), (0, 2)])]
)
def test_a_producer_that_the_brokers_have_forgotten_goes_on(
    start_cluster: Start, open_producer: Open, era: Era, numbers: list[tuple[int, int]]
) -> None:
    """Under the next epoch where they answer UNKNOWN_PRODUCER_ID, as they did before Kafka 2.5."""
    cluster = start_cluster(era=era)
    producer = open_producer(cluster)
    for value in VALUES[:3]:
        write(producer, placed(value))
        cluster.forget_producers()
    assert cluster.values(TOPIC, 0) == VALUES[:3]
    assert [(each.epoch, each.sequence) for each in cluster.log(TOPIC, 0)] == numbers
    assert len(cluster.producer_ids) == 1


def test_a_broker_that_asks_to_wait_gets_nothing_meanwhile(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster()
    cluster.throttle(THROTTLED_S)
    producer = open_producer(cluster)
    write(producer, placed(b"a"))
    asked = time.monotonic()
    write(producer, placed(b"b"))
    assert time.monotonic() - asked >= 0.9 * THROTTLED_S
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
