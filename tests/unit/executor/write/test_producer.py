"""A task writes to a scripted cluster: each record arrives once and in its order, or the task fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.errors import (
    ConfigError,
    DeliveryTimeoutError,
    EncodeError,
    ErrorCode,
    ProduceAuthorizationError,
    ProduceError,
    RecordTooLargeError,
    TransportError,
    UnknownTopicError,
    error_of,
)
from streamgroup.executor.write.produce_links import ProduceLinks
from streamgroup.executor.write.producer import RecordSlices, TaskClock, TaskProducer
from streamgroup.executor.write.written import PartitionWritten
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, ResponseReceived
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.records.encode import RecordColumns
from streamgroup.kafka.records.record_columns import concat
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataResponse
from streamgroup.kafka.wire.messages.log import FetchRequest
from streamgroup.kafka.wire.messages.produce import InitProducerIdRequest, ProduceRequest
from streamgroup.model import Broker, TopicPartition
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import metadata, topic
from tests.fakes.broker import SILENCE
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import (
    ENCODER,
    HEADERS,
    TOPIC,
    VERSIONS,
    SkippingClock,
    StubPoller,
    client_of,
    clock_of_metadata,
    payload,
    placed,
    write,
)
from tests.unit.kafka.producer.broker import Era
from tests.unit.kafka.records import reference
from tests.waiting import soon, wait_until

Start = Callable[..., ScriptedCluster]
Open = Callable[..., TaskProducer]
VALUES = [b"value %d" % n for n in range(20)]


def test_records_lie_in_their_partitions_in_their_order(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(2)
    producer = open_producer(cluster)
    write(producer, *(placed(value, partition=n % 2) for n, value in enumerate(VALUES)), placed(None))
    assert cluster.values(TOPIC, 0) == [*VALUES[::2], None]
    assert cluster.values(TOPIC, 1) == VALUES[1::2]
    size = sum(payload(value).size for value in VALUES[1::2])
    assert producer.written.partitions[TopicPartition(TOPIC, 1)] == PartitionWritten(10, size, 0, 9)
    assert producer.written.records == 21
    assert producer.is_usable


def test_the_commit_message_has_the_append_time_and_the_producer(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(log_append_time_ms=1_234)
    producer = open_producer(cluster)
    write(producer, placed(b"value"))
    assert producer.written.partitions[TopicPartition(TOPIC, 0)].log_append_time_ms == 1_234
    (appended,) = cluster.log(TOPIC, 0)
    assert producer.written.producers == {(appended.producer_id, appended.epoch)}


def test_payloads_of_one_batch_are_one_record_batch(cluster: ScriptedCluster, open_producer: Open) -> None:
    producer = open_producer(cluster, linger_ms=1_000)
    for value in VALUES:
        producer.append([placed(value)])
    producer.flush()
    (appended,) = cluster.log(TOPIC, 0)
    assert list(appended.values) == VALUES


def test_rows_may_come_slowly(start_cluster: Start, open_producer: Open) -> None:
    """While the task waits for rows, nobody sends a batch or reads the answer to one."""
    cluster, clock = start_cluster(), SkippingClock()
    producer = open_producer(cluster, clock=clock)
    producer.append([placed(b"not sent yet")])
    clock.skipped += 3_600
    write(producer, placed(b"next"))
    producer.append([placed(b"sent")])
    wait_until(lambda: b"sent" in cluster.values(TOPIC, 0), "the broker has answered")
    clock.skipped += 3_600
    write(producer, placed(b"last"))
    assert cluster.values(TOPIC, 0) == [b"not sent yet", b"next", b"sent", b"last"]
    assert len(cluster.requests) <= 4, "no request has timed out and was sent twice"


@pytest.mark.parametrize("is_next_task", [True, False])
def test_a_connection_that_was_idle_for_too_long_is_not_used_again(
    start_cluster: Start, open_producer: Open, is_next_task: bool
) -> None:
    cluster, clock = start_cluster(), SkippingClock()
    producer = open_producer(cluster, clock=clock)
    write(producer, placed(b"a"))
    clock.skipped += client_of(cluster).max_idle_s + 1
    if is_next_task:
        producer.begin()
    write(producer, placed(b"b"))
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
    assert (cluster.brokers[0].connections, cluster.brokers[0].resets) == (2, 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(cluster: ScriptedCluster, open_producer: Open, codec: str) -> None:
    write(open_producer(cluster, compression=codec), placed(*VALUES))
    assert cluster.values(TOPIC, 0) == VALUES


@pytest.mark.parametrize("version", [0, 2, 3, 9])
def test_old_brokers_get_their_own_format(start_cluster: Start, open_producer: Open, version: int) -> None:
    without_ids = {InitProducerIdRequest: (0, -1)} if version < 3 else {}
    cluster = start_cluster(versions={ProduceRequest: (0, version), **without_ids})
    write(open_producer(cluster), placed(*VALUES))
    assert [(list(each.values), each.version) for each in cluster.log(TOPIC, 0)] == [(VALUES, version)]


def test_zstd_is_refused_for_a_broker_before_kafka_2_1(start_cluster: Start, open_producer: Open) -> None:
    producer = open_producer(start_cluster(versions={ProduceRequest: (0, 6)}), compression="zstd")
    with pytest.raises(ConfigError, match=r"its broker is older than Kafka 2\.1"):
        write(producer, placed(b"a"))


# -- errors that pass --------------------------------------------------------------------------------------------------


def test_a_batch_that_too_few_replicas_have_is_not_there_twice(cluster: ScriptedCluster, open_producer: Open) -> None:
    cluster.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, times=2, appended=True)
    producer = open_producer(cluster, batch_size=1)
    write(producer, *map(placed, VALUES))
    assert cluster.values(TOPIC, 0) == VALUES
    assert producer.written.records == len(VALUES)


@pytest.mark.parametrize("appended", [True, False])
def test_a_cut_connection_loses_and_repeats_nothing(
    cluster: ScriptedCluster, open_producer: Open, appended: bool
) -> None:
    cluster.cut(times=2, appended=appended)
    write(open_producer(cluster, batch_size=1), *map(placed, VALUES))
    assert cluster.values(TOPIC, 0) == VALUES
    assert len(cluster.producer_ids) == 1


@pytest.mark.slow
def test_a_silent_broker_is_asked_over_another_connection(cluster: ScriptedCluster, open_producer: Open) -> None:
    cluster.mute(appended=True)
    write(open_producer(cluster, request_timeout_ms=1_000), placed(b"a"))
    assert cluster.values(TOPIC, 0) == [b"a"]
    assert cluster.brokers[0].connections >= 2


def test_the_next_leader_gets_what_the_last_one_refuses(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(2)
    producer = open_producer(cluster)
    write(producer, placed(b"a"))
    cluster.move(TOPIC, 0, 1)
    write(producer, placed(b"b"))
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
    assert [node for node, _, _ in cluster.requests] == [0, 0, 1]


def test_a_batch_that_is_too_large_for_the_broker_is_divided(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(max_message_bytes=400)
    values = [b"%d" % n * 50 for n in range(10)]
    producer = open_producer(cluster, linger_ms=1_000)
    write(producer, *map(placed, values[:5]), placed(*values[5:]))
    assert cluster.values(TOPIC, 0) == values
    assert len(cluster.log(TOPIC, 0)) >= 2
    assert producer.written.records == 10
    assert producer.written.bytes == pytest.approx(sum(payload(value).size for value in values), abs=20)


def test_brokers_that_all_hang_up_at_once_are_connected_to_again(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(3, {TOPIC: 3})
    producer = open_producer(cluster)
    for round_ in range(3):
        write(producer, *(placed(b"%d" % round_, partition=partition) for partition in range(3)))
        for broker in cluster.brokers:
            broker.hang_up()
    assert [cluster.values(TOPIC, n) for n in range(3)] == [[b"0", b"1", b"2"]] * 3


# -- without idempotence ----------------------------------------------------------------------------------------------


def test_a_broker_without_producer_ids_is_written_to_without_idempotence(
    start_cluster: Start, open_producer: Open
) -> None:
    # The question for the producer id is refused on the connection over which the metadata are to be asked for.
    cluster = start_cluster(versions={InitProducerIdRequest: (0, -1)})
    producer = open_producer(cluster)
    assert len(producer.topic(TOPIC).partitions) == 2
    write(producer, placed(*VALUES))
    assert cluster.values(TOPIC, 0) == VALUES
    assert [each.producer_id for each in cluster.log(TOPIC, 0)] == [-1]
    assert cluster.brokers[0].connections == 1
    assert [note.split(":")[0] for note in producer.written.notes] == ["this task writes without idempotence"]


def test_a_broker_without_producer_ids_is_refused_with_idempotence(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(versions={InitProducerIdRequest: (0, -1)})
    producer = open_producer(cluster, require_idempotence=True)
    with pytest.raises(ProduceError, match=r"0\.11 or later: leave kafka\.enable\.idempotence out"):
        write(producer, placed(*VALUES))
    assert cluster.values(TOPIC, 0) == []
    assert not producer.is_usable


def test_without_acknowledgements_a_batch_counts_as_written_once_it_is_sent(
    cluster: ScriptedCluster, open_producer: Open
) -> None:
    producer = open_producer(cluster, acks=0)
    write(producer, placed(*VALUES))
    assert producer.written.partitions[TopicPartition(TOPIC, 0)].first_offset == -1
    assert (producer.written.records, producer.written.producers) == (20, set())
    wait_until(lambda: cluster.values(TOPIC, 0) == VALUES, "the records arrive")
    assert not cluster.producer_ids


def test_with_one_acknowledgement_the_offsets_are_known(cluster: ScriptedCluster, open_producer: Open) -> None:
    producer = open_producer(cluster, acks=1, enable_idempotence=False)
    write(producer, placed(*VALUES))
    assert producer.written.partitions[TopicPartition(TOPIC, 0)].last_offset == 19
    assert producer.written.producers == set()
    assert not cluster.producer_ids


# -- errors that do not pass -------------------------------------------------------------------------------------------


def test_a_refused_batch_fails_the_task_and_all_after_it(cluster: ScriptedCluster, producer: TaskProducer) -> None:
    cluster.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for act in (lambda: write(producer, placed(b"a")), producer.flush, lambda: producer.append([placed(b"b")])):
        with pytest.raises(ProduceError) as raised:
            act()
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not producer.is_usable
    assert cluster.values(TOPIC, 0) == []


def test_a_partition_that_is_refused_leaves_the_others_of_its_request_written(
    cluster: ScriptedCluster, producer: TaskProducer
) -> None:
    cluster.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC, 1)
    with pytest.raises(ProduceError, match=f"{TOPIC}-1"):
        write(producer, placed(b"a"), placed(b"b", partition=1))
    assert len(cluster.requests) == 1
    assert (cluster.values(TOPIC, 0), cluster.values(TOPIC, 1)) == ([b"a"], [])
    assert producer.written.records == 1


def test_headers_before_kafka_0_11_are_an_error_with_the_partition(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(versions={ProduceRequest: (0, 2), InitProducerIdRequest: (0, -1)})
    records = RecordColumns(None, pa.array([b"a"], pa.binary()), np.zeros(1, np.int64), HEADERS)
    with pytest.raises(
        EncodeError, match=rf"cannot write to {TOPIC}-1: .* no headers .* Write the records without them"
    ):
        write(open_producer(cluster), (TopicPartition(TOPIC, 1), RecordSlices.of(records, 0, 1, 80)))


def test_a_record_above_max_request_size_fails(start_cluster: Start, open_producer: Open) -> None:
    with pytest.raises(RecordTooLargeError, match=TOPIC):
        write(open_producer(start_cluster(), max_request_size=100), placed(b"x" * 101))


def test_a_batch_that_nobody_acknowledges_fails_in_time(cluster: ScriptedCluster, open_producer: Open) -> None:
    cluster.answer(ErrorCode.NOT_ENOUGH_REPLICAS, times=1_000)
    producer = open_producer(cluster, clock=lambda: time.monotonic() + 10 * len(cluster.requests))
    with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS"):
        write(producer, placed(b"a"))


def test_a_topic_that_does_not_exist_fails_within_max_block_ms_and_the_log_names_it(
    cluster: ScriptedCluster, open_producer: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """The time moves with the answers, so a slow machine changes nothing."""
    producer = open_producer(cluster, clock=clock_of_metadata(cluster, seconds=2), max_block_ms=30_000)
    with pytest.raises(UnknownTopicError, match="missing"):
        producer.topic("missing")
    assert len(cluster.brokers[0].asked("Metadata")) <= 20, "it waited for longer than max.block.ms"
    assert "cannot write topic missing so far: the brokers report that it does not exist" in caplog.text


def test_a_topic_that_appears_within_max_block_ms_is_found(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster(auto_create=3)
    cluster.refuse_topic("new", ErrorCode.LEADER_NOT_AVAILABLE, times=2)
    producer = open_producer(cluster)
    assert len(producer.topic("new").partitions) == 3
    write(producer, placed(b"a", partition=2, topic="new"))
    assert cluster.values("new", 2) == [b"a"]


# -- memory ------------------------------------------------------------------------------------------------------------


def test_what_is_buffered_stays_within_buffer_memory(cluster: ScriptedCluster, open_producer: Open) -> None:
    producer = open_producer(
        cluster, buffer_memory=5_000, batch_size=1_000, linger_ms=10_000, delivery_timeout_ms=60_000
    )
    values = [b"%d" % n + b"x" * 480 for n in range(100)]
    where = TopicPartition(TOPIC, 0)
    for value in values:
        producer.append([placed(value)])
        assert producer.queued_bytes(where) < 5_000 + payload(value).size
    producer.flush()
    assert producer.queued_bytes(where) == 0
    assert cluster.values(TOPIC, 0) == values


def test_large_payloads_are_appended_in_parts(cluster: ScriptedCluster, open_producer: Open) -> None:
    producer = open_producer(cluster, buffer_memory=1)
    large = [bytes([n]) * 600_000 for n in range(4)]
    write(producer, *map(placed, large))
    assert cluster.values(TOPIC, 0) == large


@pytest.mark.slow
def test_no_room_within_max_block_ms_fails(cluster: ScriptedCluster, open_producer: Open) -> None:
    cluster.mute(times=100)
    producer = open_producer(cluster, buffer_memory=10, max_block_ms=1_000)
    started = time.monotonic()
    producer.append([placed(b"x" * 100)])
    said = (
        r"no room in buffer\.memory=10 within max\.block\.ms=1000: "
        r"1 unresolved batch\. Check whether the brokers keep up"
    )
    with pytest.raises(DeliveryTimeoutError, match=said):
        producer.append([placed(b"y")])
    assert time.monotonic() - started > 0.9


def test_a_pause_is_left_out() -> None:
    now = 100.0
    clock = TaskClock(lambda: now)
    assert clock() == 100
    now = 101
    assert clock() == 101
    clock.pause()
    now = 150
    clock.pause()
    assert clock() == 101
    clock.resume()
    assert clock() == 101
    now = 152
    clock.resume()
    assert clock() == 103


def values_of(slices: RecordSlices) -> list[bytes | None]:
    """The values, from the one record batch that `slices` becomes."""
    data = bytes(slices.encode(ENCODER).sealed(-1, -1, -1))
    ((header, batch),) = reference.split(data)
    return [row.value for row in reference.batch_rows(header, batch)]


@pytest.mark.parametrize("sizes", [(1, 1), (1, 100), (100, 1), (10, 10, 10, 10), (1, 1, 1, 1, 100)])
def test_halves_have_all_records_in_their_order(sizes: tuple[int, ...]) -> None:
    values = [b"%d" % n * size for n, size in enumerate(sizes)]
    whole = RecordSlices.joined([payload(value) for value in values])
    first, second = whole.halves(ENCODER)
    assert min(first.count, second.count) >= 1
    assert values_of(first) + values_of(second) == values
    again = int(ENCODER.sizes(concat([each.columns for each in whole.slices])).sum())
    assert first.size + second.size == again


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
    cluster: ScriptedCluster, open_producer: Open, code: ErrorCode, appended: bool
) -> None:
    """Several batches are in flight, so the broker refuses those behind the first one as out of order."""
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
        (ErrorCode.POLICY_VIOLATION, ProduceError, "Look up the policies of the cluster"),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ProduceError, "Choose another compression.type"),
        (ErrorCode.INVALID_RECORD, ProduceError, "Give records of a compacted topic keys"),
    ],
)
def test_a_code_that_stays_fails_the_task_with_the_partition_the_code_and_the_next_step(
    cluster: ScriptedCluster, producer: TaskProducer, code: ErrorCode, kind: type[ProduceError], advice: str
) -> None:
    cluster.answer(code, TOPIC, 1)
    with pytest.raises(kind) as raised:
        write(producer, placed(b"a", partition=1))
    said = str(raised.value)
    assert f"could not write 1 record (8 bytes) to {TOPIC}-1 at broker 0: {error_of(code).name} ({code.value})" in said
    assert advice in said
    assert (raised.value.code, raised.value.maybe_written) == (code, False)
    assert cluster.values(TOPIC, 1) == []
    assert not producer.is_usable


def test_a_batch_that_no_segment_can_hold_is_divided(cluster: ScriptedCluster, producer: TaskProducer) -> None:
    cluster.answer(ErrorCode.RECORD_LIST_TOO_LARGE, times=2)
    write(producer, placed(*VALUES))
    assert cluster.values(TOPIC, 0) == VALUES
    assert len(cluster.log(TOPIC, 0)) > 2


def test_a_user_without_idempotent_write_learns_what_to_grant(cluster: ScriptedCluster, producer: TaskProducer) -> None:
    cluster.refuse_producer_id(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(ProduceAuthorizationError, match=r"IdempotentWrite .*kafka\.enable\.idempotence=false"):
        write(producer, placed(b"a"))
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


def test_a_broker_that_asks_to_wait_gets_nothing_meanwhile(cluster: ScriptedCluster, producer: TaskProducer) -> None:
    cluster.throttle(THROTTLED_S)
    write(producer, placed(b"a"))
    asked = time.monotonic()
    write(producer, placed(b"b"))
    assert time.monotonic() - asked >= 0.9 * THROTTLED_S
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]


# -- the connections of a producer, and what becomes of its requests when they end -------------------------------------

OpenLinks = Callable[..., ProduceLinks]


@pytest.fixture
def open_links() -> Iterator[OpenLinks]:
    opened: list[ProduceLinks] = []

    def make(client: ClientOptions, clock: Callable[[], float] = time.monotonic) -> ProduceLinks:
        opened.append(ProduceLinks(client, lambda _, version: b"%d" % version, clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def links(cluster: ScriptedCluster, open_links: OpenLinks) -> ProduceLinks:
    return open_links(client_of(cluster))


def events_of(links: ProduceLinks, count: int) -> list[ev.Event]:
    """The next events, at least so many."""
    found: list[ev.Event] = []
    deadline = soon()
    while len(found) < count and deadline > time.monotonic():
        found += links.wait(0.1)
    return found


def test_metadata_and_producer_id_come_over_one_connection(cluster: ScriptedCluster, links: ProduceLinks) -> None:
    links.read_metadata(frozenset({TOPIC, "missing"}))
    links.get_producer_id()
    assert not links.is_usable
    read, given = events_of(links, 2)
    assert isinstance(read, ev.MetadataRead)
    assert set(read.topics) == {TOPIC}
    assert read.errors == {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert given == ev.ProducerIdGiven(1000, 0)
    assert cluster.brokers[0].connections == 1
    assert links.is_usable


def test_a_broker_to_which_no_retry_connects_fails_the_task(start_cluster: Start, open_links: OpenLinks) -> None:
    tls = TlsOptions(truststore_type="PEM", truststore_location="/nowhere.pem")
    links = open_links(replace(client_of(start_cluster()), security_protocol="SSL", tls=tls))
    links.read_metadata(frozenset({TOPIC}))
    with pytest.raises(ConfigError, match=r"/nowhere\.pem: No such file"):
        events_of(links, 1)


@pytest.mark.parametrize("id_first", [True, False])
def test_a_refused_question_leaves_the_next_one_on_the_same_connection(
    start_cluster: Start, open_links: OpenLinks, id_first: bool
) -> None:
    links = open_links(client_of(start_cluster(versions={InitProducerIdRequest: (0, -1)})))
    asks = [links.get_producer_id, lambda: links.read_metadata(frozenset({TOPIC}))]
    for ask in asks if id_first else reversed(asks):
        ask()
    refused, read = events_of(links, 2)
    assert isinstance(refused, ev.ProducerIdRefused)
    assert refused.code == ErrorCode.UNSUPPORTED_VERSION
    assert isinstance(read, ev.MetadataRead)


def test_the_next_bootstrap_server_is_asked_where_one_is_away(start_cluster: Start, open_links: OpenLinks) -> None:
    cluster = start_cluster(2)
    cluster.brokers[0].stop()
    links = open_links(client_of(cluster))
    links.read_metadata(frozenset({TOPIC}))
    (read,) = events_of(links, 1)
    assert isinstance(read, ev.MetadataRead)


def test_metadata_fail_where_no_broker_answers(start_cluster: Start, open_links: OpenLinks) -> None:
    cluster = start_cluster(2)
    cluster.stop()
    links = open_links(client_of(cluster))
    links.read_metadata(frozenset({TOPIC}))
    links.get_producer_id()
    failed, refused = sorted(events_of(links, 2), key=lambda event: type(event).__name__)
    assert isinstance(failed, ev.MetadataFailed)
    assert all(str(port) in failed.reason for _, port in cluster.addresses)
    assert isinstance(refused, ev.ProducerIdRefused)
    assert refused.code == ErrorCode.NETWORK_EXCEPTION


@pytest.mark.slow
def test_a_question_is_given_up_after_the_request_timeout(cluster: ScriptedCluster, open_links: OpenLinks) -> None:
    cluster.brokers[0].handlers[MetadataRequest] = lambda *_: SILENCE
    links = open_links(client_of(cluster, request_timeout_ms=1_000))
    links.read_metadata(frozenset({TOPIC}))
    assert events_of(links, 1) == [ev.MetadataFailed("no answer within request.timeout.ms=1000")]


def a_send(node: int, token: int = 1, acks: int = -1) -> ev.Send:
    return ev.Send(node, token, (), acks, 1_000, {})


def test_a_send_to_an_unknown_broker_is_reported_as_not_written(start_cluster: Start, open_links: OpenLinks) -> None:
    links = open_links(client_of(start_cluster()))
    links.send(a_send(7))
    assert links.wait(None) == [ev.Disconnected(7, "broker 7 is not in the metadata", written=False)]


@pytest.mark.parametrize(("acks", "is_away"), [(-1, False), (1, False), (-1, True)])
def test_a_request_without_an_answer_may_be_written_unless_its_broker_is_away(
    cluster: ScriptedCluster, links: ProduceLinks, acks: int, is_away: bool
) -> None:
    cluster.cut(appended=True)
    if is_away:
        cluster.stop()
    links.use_brokers((Broker(0, *cluster.addresses[0]),))
    links.send(a_send(0, acks=acks))
    (lost,) = events_of(links, 1)
    assert isinstance(lost, ev.Disconnected)
    assert lost.written is not is_away
    assert links.is_usable


def test_a_request_without_an_answer_is_written_after_the_throttle_time_of_its_broker(
    start_cluster: Start, open_links: OpenLinks
) -> None:
    """With acks=0 the task ends when its requests are written, and its worker process may end next."""
    cluster, skipped = start_cluster(versions={FetchRequest: FetchRequest.VERSIONS}), Clock(0.0)
    throttled = replace(metadata({0: cluster.addresses[0][1]}, topic(TOPIC, 0)), throttle_time_ms=3_600_000)
    cluster.brokers[0].handlers[MetadataRequest] = lambda *_: throttled
    links = open_links(client_of(cluster), lambda: time.monotonic() + skipped())
    links.read_metadata(frozenset({TOPIC}))
    events_of(links, 1)
    links.send(a_send(0, acks=0))
    assert (links.wait(0), cluster.requests) == ([], [])
    skipped.sleep(3_600)
    assert events_of(links, 1) == [ev.Written(1)]
    cluster.brokers[0].wait_for(lambda _: len(cluster.requests) == 1)


def test_no_event_follows_a_connection_that_was_given_up(cluster: ScriptedCluster, links: ProduceLinks) -> None:
    cluster.mute()
    links.use_brokers((Broker(0, *cluster.addresses[0]),))
    links.send(a_send(0))
    while not cluster.requests:
        links.wait(0.01)
    links.disconnect(0)
    assert links.wait(0.05) == []
    assert links.is_usable
    cluster.brokers[0].wait_for(lambda broker: broker.resets + broker.ends == 1)


def test_a_broker_at_another_address_is_connected_to_there(start_cluster: Start, open_links: OpenLinks) -> None:
    cluster = start_cluster(2)
    links = open_links(client_of(cluster))
    for node in range(2):
        links.use_brokers((Broker(0, *cluster.addresses[node]),))
        links.send(a_send(0, token=node))
        assert [type(event) for event in events_of(links, 1)] == [ev.Answered]
    assert [node for node, _, _ in cluster.requests] == [0, 1]


@pytest.fixture
def poller(monkeypatch: pytest.MonkeyPatch) -> StubPoller:
    stub = StubPoller()
    monkeypatch.setattr("streamgroup.executor.write.produce_links.Poller", lambda *_: stub)
    return stub


TWO = ClientOptions((("first", 1), ("second", 2)))
END = TransportError("it has ended")


def test_a_question_does_not_go_to_a_connection_that_ended_with_another(
    poller: StubPoller, open_links: OpenLinks
) -> None:
    links = open_links(TWO)
    links.use_brokers((Broker(0, "first", 1), Broker(1, "second", 2)))
    links.send(a_send(0))
    links.send(a_send(1))
    one, two = poller.handles
    poller.events = [ConnectionReady(one, VERSIONS), ConnectionReady(two, VERSIONS)]
    links.wait(0.0)
    links.read_metadata(frozenset({TOPIC}))
    assert [type(request) for handle, request in poller.sent if handle == one][-1] is MetadataRequest
    poller.events = [ConnectionLost(one, END, ()), ConnectionLost(two, END, ())]
    assert [type(event) for event in links.wait(0.0)] == [ev.Disconnected] * 2
    assert [(handle.host, handle.port) for handle in poller.handles[2:]] == [("second", 2)]
    poller.events = [ConnectionLost(poller.handles[2], END, ())]
    assert links.wait(0.0) == [ev.MetadataFailed("it has ended; it has ended")]


def test_a_connection_that_ends_as_it_begins_carries_nothing(poller: StubPoller, open_links: OpenLinks) -> None:
    links = open_links(TWO)
    links.use_brokers((Broker(0, "first", 1),))
    links.send(a_send(0))
    (handle,) = poller.handles
    poller.events = [ConnectionReady(handle, VERSIONS), ConnectionLost(handle, END, ())]
    assert links.wait(0.0) == [ev.Disconnected(0, "it has ended", written=False)]
    assert poller.sent == []


def test_a_broker_that_asks_for_it_sends_the_next_question_to_the_bootstrap_servers(
    poller: StubPoller, open_links: OpenLinks
) -> None:
    """REBOOTSTRAP_REQUIRED (KIP-1102): the connections to all known brokers end, also those with requests."""
    links = open_links(TWO)
    links.use_brokers((Broker(0, "old", 1), Broker(1, "older", 2)))
    links.send(a_send(0))
    links.send(a_send(1))
    old, older = poller.handles
    poller.events = [ConnectionReady(old, VERSIONS), ConnectionReady(older, VERSIONS)]
    links.wait(0.0)
    links.read_metadata(frozenset({TOPIC}))
    assert isinstance(poller.sent[-1][1], MetadataRequest)
    asked, number = poller.sent[-1][0], len(poller.sent)
    answer = MetadataResponse(brokers=(), error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    poller.events = [ResponseReceived(asked, number, answer, 13)]
    events = links.wait(0.0)
    assert [type(event) for event in events] == [ev.Disconnected, ev.Disconnected, ev.MetadataFailed]
    links.read_metadata(frozenset({TOPIC}))
    assert [(handle.host, handle.port) for handle in poller.handles[2:]] == [("first", 1)]
    links.send(a_send(0))
    assert [str(event) for event in links.wait(0.0) if "not in the metadata" in str(event)] != []
